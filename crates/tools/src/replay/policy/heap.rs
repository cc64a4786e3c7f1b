//! Best fit on one heap that grows at its end by the missing bytes. A buffer of a GPU can only grow
//! by a new buffer and a copy, so each growth counts as a buffer.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::interface::Policy;

const UNIT_BYTES: u64 = 256;

#[derive(Default)]
pub(super) struct Heap {
    end: u64,
    /// Offset and size of each live storage.
    live: HashMap<usize, (u64, u64)>,
    /// The holes by size and offset.
    by_size: BTreeSet<(u64, u64)>,
    /// The holes by offset.
    by_offset: BTreeMap<u64, u64>,
    grown: u64,
}

impl Heap {
    fn add_hole(&mut self, offset: u64, size: u64) {
        if size > 0 {
            self.by_size.insert((size, offset));
            self.by_offset.insert(offset, size);
        }
    }

    fn take_hole(&mut self, offset: u64) -> u64 {
        let size = self.by_offset.remove(&offset).unwrap_or(0);
        self.by_size.remove(&(size, offset));
        size
    }

    /// The offset of the hole at the end of the heap.
    fn last_hole(&self) -> Option<u64> {
        let (&offset, &size) = self.by_offset.last_key_value()?;
        (offset + size == self.end).then_some(offset)
    }
}

impl Policy for Heap {
    fn alloc(&mut self, id: usize, size_bytes: u64) {
        let size = size_bytes.saturating_add(UNIT_BYTES - 1) & !(UNIT_BYTES - 1);
        let fit = self
            .by_size
            .range((size, 0)..)
            .next()
            .map(|&(_, offset)| offset);
        let offset = match fit {
            Some(offset) => offset,
            None => {
                let offset = self.last_hole().unwrap_or(self.end);
                self.take_hole(offset);
                self.end = offset.saturating_add(size);
                self.add_hole(offset, size);
                self.grown += 1;
                offset
            }
        };
        let hole = self.take_hole(offset);
        self.add_hole(offset + size, hole - size);
        self.live.insert(id, (offset, size));
    }

    fn free(&mut self, id: usize) {
        let Some((mut offset, mut size)) = self.live.remove(&id) else {
            return;
        };
        let before = self.by_offset.range(..offset).next_back();
        if let Some((&start, _)) = before.filter(|(start, size)| *start + *size == offset) {
            size += self.take_hole(start);
            offset = start;
        }
        size += self.take_hole(offset + size);
        self.add_hole(offset, size);
    }

    fn reserved_bytes(&self) -> u64 {
        self.end
    }

    fn buffers_created(&self) -> u64 {
        self.grown
    }
}
