//! PyTorch's caching allocator for CUDA with its defaults. Sizes are rounded up to 512 B. Requests
//! up to 1 MiB come from segments of 2 MiB, requests below 10 MiB from segments of 20 MiB. Larger
//! ones get their own segments, in steps of 2 MiB. The search is best fit. Free neighbours in a
//! segment are joined. Segments are released only if the driver refuses a request, which it never
//! does here.

use std::collections::{BTreeSet, HashMap};

use super::interface::Policy;

const MIB: u64 = 1 << 20;

const ROUND_BYTES: u64 = 512;
const SMALL_REQUEST_BYTES: u64 = MIB;
const SMALL_SEGMENT_BYTES: u64 = 2 * MIB;
const MIDDLE_REQUEST_BYTES: u64 = 10 * MIB;
const MIDDLE_SEGMENT_BYTES: u64 = 20 * MIB;
const LARGE_STEP_BYTES: u64 = 2 * MIB;

/// The rest of a block is split off if it has at least this many bytes.
const SMALL_REST_BYTES: u64 = 512;
const LARGE_REST_BYTES: u64 = MIB + 1;

#[derive(Clone, Copy)]
struct Block {
    size: u64,
    /// Position of the segment in creation order, in place of an address.
    at: u64,
    before: Option<usize>,
    after: Option<usize>,
    is_small: bool,
    is_free: bool,
}

/// Free blocks by size and address.
type Pool = BTreeSet<Key>;
type Key = (u64, u64, usize);

#[derive(Default)]
pub(super) struct Torch {
    blocks: Vec<Block>,
    /// Entries of `blocks` that can be used again.
    spare: Vec<usize>,
    /// For large requests and for small ones.
    free: [Pool; 2],
    live: HashMap<usize, usize>,
    reserved_bytes: u64,
    created: u64,
}

impl Torch {
    fn enter(&mut self, block: Block) -> usize {
        match self.spare.pop() {
            Some(index) => {
                self.blocks[index] = block;
                index
            }
            None => {
                self.blocks.push(block);
                self.blocks.len() - 1
            }
        }
    }

    fn pool(&mut self, index: usize) -> (&mut Pool, Key) {
        let block = self.blocks[index];
        let key = (block.size, block.at, index);
        (&mut self.free[usize::from(block.is_small)], key)
    }

    fn set_free(&mut self, index: usize) {
        self.blocks[index].is_free = true;
        let (pool, key) = self.pool(index);
        pool.insert(key);
    }

    fn take(&mut self, index: usize) {
        self.blocks[index].is_free = false;
        let (pool, key) = self.pool(index);
        pool.remove(&key);
    }

    fn new_segment(&mut self, size: u64, is_small: bool) -> usize {
        let segment = match size {
            _ if is_small => SMALL_SEGMENT_BYTES,
            size if size < MIDDLE_REQUEST_BYTES => MIDDLE_SEGMENT_BYTES,
            size => size
                .div_ceil(LARGE_STEP_BYTES)
                .saturating_mul(LARGE_STEP_BYTES),
        };
        self.created += 1;
        let at = self.reserved_bytes;
        self.reserved_bytes = at.saturating_add(segment);
        self.enter(Block {
            size: segment,
            at,
            before: None,
            after: None,
            is_small,
            is_free: false,
        })
    }

    /// Splits off the rest that a request does not need, if it is large enough.
    fn split(&mut self, index: usize, size: u64) {
        let block = self.blocks[index];
        let rest = block.size - size;
        let least = match block.is_small {
            true => SMALL_REST_BYTES,
            false => LARGE_REST_BYTES,
        };
        if rest < least {
            return;
        }
        let rest = self.enter(Block {
            size: rest,
            at: block.at.saturating_add(size),
            before: Some(index),
            ..block
        });
        if let Some(after) = block.after {
            self.blocks[after].before = Some(rest);
        }
        self.blocks[index].size = size;
        self.blocks[index].after = Some(rest);
        self.set_free(rest);
    }

    /// Joins a block with the next one. Neither is in a pool.
    fn join(&mut self, index: usize, after: usize) {
        let joined = self.blocks[after];
        self.blocks[index].size += joined.size;
        self.blocks[index].after = joined.after;
        if let Some(next) = joined.after {
            self.blocks[next].before = Some(index);
        }
        self.spare.push(after);
    }
}

impl Policy for Torch {
    fn alloc(&mut self, id: usize, size_bytes: u64) {
        let size = size_bytes.div_ceil(ROUND_BYTES).saturating_mul(ROUND_BYTES);
        let is_small = size <= SMALL_REQUEST_BYTES;
        let mut fits = self.free[usize::from(is_small)].range((size, 0, 0)..);
        let index = match fits.next().map(|&(_, _, index)| index) {
            Some(index) => {
                self.take(index);
                index
            }
            None => self.new_segment(size, is_small),
        };
        self.split(index, size);
        self.live.insert(id, index);
    }

    fn free(&mut self, id: usize) {
        let Some(mut index) = self.live.remove(&id) else {
            return;
        };
        let block = self.blocks[index];
        let free = |blocks: &[Block], index: Option<usize>| index.filter(|&it| blocks[it].is_free);
        if let Some(after) = free(&self.blocks, block.after) {
            self.take(after);
            self.join(index, after);
        }
        if let Some(before) = free(&self.blocks, block.before) {
            self.take(before);
            self.join(before, index);
            index = before;
        }
        self.set_free(index);
    }

    fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    fn buffers_created(&self) -> u64 {
        self.created
    }
}
