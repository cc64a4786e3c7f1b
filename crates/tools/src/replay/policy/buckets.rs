//! A free list for each power of two. Buffers are never released.

use std::collections::HashMap;

use super::interface::Policy;

const LEAST_BYTES: u64 = 256;

#[derive(Default)]
pub(super) struct Buckets {
    /// The bucket of each live storage, as the exponent.
    live: HashMap<usize, u32>,
    /// Idle buffers of each bucket.
    idle: HashMap<u32, u64>,
    reserved_bytes: u64,
    created: u64,
}

impl Policy for Buckets {
    fn alloc(&mut self, id: usize, size_bytes: u64) {
        let bucket = u64::BITS - (size_bytes.max(LEAST_BYTES) - 1).leading_zeros();
        self.live.insert(id, bucket);
        let idle = self.idle.entry(bucket).or_default();
        if *idle > 0 {
            *idle -= 1;
            return;
        }
        self.reserved_bytes = self.reserved_bytes.saturating_add(1 << bucket);
        self.created += 1;
    }

    fn free(&mut self, id: usize) {
        if let Some(bucket) = self.live.remove(&id) {
            *self.idle.entry(bucket).or_default() += 1;
        }
    }

    fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    fn buffers_created(&self) -> u64 {
        self.created
    }
}
