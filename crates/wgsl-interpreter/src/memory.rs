//! The memory of a dispatch, with the history of each word.

use crate::binding::Binding;
use crate::code::{self, Code, Source, Space};
use crate::error::Error;
use crate::report::Reports;
use crate::shadow::{Cell, Now};

/// A buffer.
#[derive(Debug)]
struct Buffer {
    words: Vec<u32>,
    /// Empty if no invocation writes, and none has to.
    cells: Vec<Cell>,
    /// The bytes of a cell, as a power of two.
    shift: u32,
    is_fresh: bool,
    size_bytes: u32,
}

/// All memory except the private memory of invocations.
#[derive(Debug)]
pub(super) struct Memory {
    buffers: Vec<Buffer>,
    shared: Vec<u32>,
    shared_cells: Vec<Cell>,
    /// Whether workgroup memory begins as zeros, which count as written.
    zeroes_shared: bool,
    pub(super) reports: Reports,
}

/// The contents of fresh memory.
const DIRT: u32 = 0xa5a5_a5a5;

impl Memory {
    /// The memory at the beginning of a dispatch. An error names a binding that is missing.
    pub(super) fn new(
        code: &Code,
        bindings: &[Binding],
        immediates: &[u8],
        zeroes_shared: bool,
    ) -> Result<Self, Error> {
        let buffers = code.buffers.iter().map(|declared| match declared.source {
            Source::Immediates => Ok(Buffer::new(declared, immediates, false)),
            Source::Binding { group, index } => {
                let is_meant = |one: &&Binding| (one.group, one.index) == (group, index);
                let binding = bindings.iter().find(is_meant);
                let binding = binding.ok_or(Error::MissingBinding { group, index })?;
                Ok(Buffer::new(declared, &binding.bytes, binding.is_fresh))
            }
        });
        Ok(Memory {
            buffers: buffers.collect::<Result<_, _>>()?,
            shared: vec![0; code.shared_words as usize],
            shared_cells: vec![Cell::default(); code.shared_words as usize],
            zeroes_shared,
            reports: Reports::default(),
        })
    }

    /// Resets the state for the next workgroup.
    pub(super) fn begin_group(&mut self) {
        let mut cell = Cell::default();
        if self.zeroes_shared {
            cell.set_written();
        }
        self.shared_cells.fill(cell);
        self.shared.fill(if self.zeroes_shared { 0 } else { DIRT });
    }

    /// Copies the final contents of the bindings back.
    pub(super) fn write_back(&self, code: &Code, bindings: &mut [Binding]) {
        let buffers = self.buffers.iter().zip(&code.buffers);
        for (buffer, declared) in buffers.filter(|(_, declared)| declared.may_write) {
            let Source::Binding { group, index } = declared.source else {
                continue;
            };
            let is_meant = |one: &&mut Binding| (one.group, one.index) == (group, index);
            if let Some(binding) = bindings.iter_mut().find(is_meant) {
                let words = binding.bytes.chunks_mut(4);
                for (to, from) in words.zip(&buffer.words) {
                    to.copy_from_slice(&from.to_le_bytes()[..to.len()]);
                }
            }
        }
    }

    /// The number of elements of `stride` bytes in a buffer from a byte on.
    pub(super) fn length(&self, buffer: u32, first_bytes: u32, stride: u32) -> u32 {
        let size = self.buffers[buffer as usize].size_bytes;
        size.saturating_sub(first_bytes) / stride.max(1)
    }

    /// Reads a word of workgroup memory, or the word at a byte of a buffer.
    pub(super) fn load(&mut self, space: Space, at: u32, now: &Now) -> u32 {
        match space {
            Space::Buffer(buffer) => self.load_bytes(buffer, at, 4, now),
            _ => {
                let index = at as usize;
                let Some(cell) = self.shared_cells.get_mut(index) else {
                    return self.reports.beyond(false, at, now);
                };
                if !cell.is_written() {
                    self.reports.unwritten(false, at, now);
                }
                if let Some(rival) = cell.read(now) {
                    self.reports.race(false, at, now, rival, false);
                }
                self.shared[index]
            }
        }
    }

    /// Writes a word of workgroup memory, or the word at a byte of a buffer.
    pub(super) fn store(&mut self, space: Space, at: u32, word: u32, now: &Now) {
        match space {
            Space::Buffer(buffer) => self.store_bytes(buffer, at, word, 4, now),
            _ => {
                let index = at as usize;
                let Some(cell) = self.shared_cells.get_mut(index) else {
                    self.reports.beyond(false, at, now);
                    return;
                };
                if let Some(rival) = cell.write(now) {
                    self.reports.race(false, at, now, rival, true);
                }
                self.shared[index] = word;
            }
        }
    }

    /// Reads two or four bytes of a buffer.
    pub(super) fn load_bytes(&mut self, buffer: u32, at: u32, bytes: u32, now: &Now) -> u32 {
        let Buffer {
            words,
            cells,
            shift,
            is_fresh,
            ..
        } = &mut self.buffers[buffer as usize];
        let Some(word) = words.get(at as usize / 4) else {
            return self.reports.beyond(true, at, now);
        };
        if !cells.is_empty() {
            let mut cell = at >> *shift;
            while cell << *shift < at + bytes {
                let known = &mut cells[cell as usize];
                if *is_fresh && !known.is_written() {
                    self.reports.unwritten(true, at, now);
                }
                if let Some(rival) = known.read(now) {
                    self.reports.race(true, at, now, rival, false);
                }
                cell += 1;
            }
        }
        match bytes {
            2 => *word >> (8 * (at & 2)) & 0xffff,
            _ => *word,
        }
    }

    /// Writes two or four bytes of a buffer.
    pub(super) fn store_bytes(&mut self, buffer: u32, at: u32, value: u32, bytes: u32, now: &Now) {
        let Buffer {
            words,
            cells,
            shift,
            ..
        } = &mut self.buffers[buffer as usize];
        let Some(word) = words.get_mut(at as usize / 4).filter(|_| !cells.is_empty()) else {
            self.reports.beyond(true, at, now);
            return;
        };
        let mut cell = at >> *shift;
        while cell << *shift < at + bytes {
            if let Some(rival) = cells[cell as usize].write(now) {
                self.reports.race(true, at, now, rival, true);
            }
            cell += 1;
        }
        *word = match bytes {
            2 => *word & !(0xffff << (8 * (at & 2))) | (value & 0xffff) << (8 * (at & 2)),
            _ => value,
        };
    }

    /// Reads and writes words in one step, which races with no other atomic.
    pub(super) fn exchange(
        &mut self,
        space: Space,
        at: u32,
        now: &Now,
        change: impl FnOnce(u32) -> u32,
    ) -> u32 {
        let (word, cell, is_fresh, is_buffer) = match space {
            Space::Buffer(index) => {
                let buffer = &mut self.buffers[index as usize];
                let (word, cell) = (at as usize / 4, (at >> buffer.shift) as usize);
                let known = (buffer.words.get_mut(word), buffer.cells.get_mut(cell));
                (known.0, known.1, buffer.is_fresh, true)
            }
            _ => {
                let known = self.shared.get_mut(at as usize);
                (known, self.shared_cells.get_mut(at as usize), true, false)
            }
        };
        let (Some(word), Some(cell)) = (word, cell) else {
            return self.reports.beyond(is_buffer, at, now);
        };
        let old = *word;
        *word = change(old);
        if is_fresh && !cell.is_written() {
            self.reports.unwritten(is_buffer, at, now);
        }
        cell.set_written();
        old
    }

    /// An atomic store, which does not read the earlier value.
    pub(super) fn replace(&mut self, space: Space, at: u32, word: u32, now: &Now) {
        let cell = match space {
            Space::Buffer(index) => {
                let buffer = &mut self.buffers[index as usize];
                buffer.cells.get_mut((at >> buffer.shift) as usize)
            }
            _ => self.shared_cells.get_mut(at as usize),
        };
        if let Some(cell) = cell {
            cell.set_written();
        }
        self.exchange(space, at, now, |_| word);
    }
}

impl Buffer {
    fn new(declared: &code::Buffer, bytes: &[u8], is_fresh: bool) -> Self {
        let words = bytes.chunks(4).map(|word| {
            let mut whole = [0; 4];
            whole[..word.len()].copy_from_slice(word);
            u32::from_le_bytes(whole)
        });
        let words: Vec<u32> = match is_fresh {
            true => vec![DIRT; bytes.len().div_ceil(4)],
            false => words.collect(),
        };
        let shift = if declared.has_halves { 1 } else { 2 };
        let cells = match declared.may_write || is_fresh {
            true => words.len() << (2 - shift),
            false => 0,
        };
        Buffer {
            words,
            cells: vec![Cell::default(); cells],
            shift: shift as u32,
            is_fresh,
            size_bytes: bytes.len() as u32,
        }
    }
}
