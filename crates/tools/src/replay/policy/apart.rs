//! One buffer for each tensor, as in a program that leaves memory to the driver.

use std::collections::HashMap;

use super::interface::Policy;

#[derive(Default)]
pub(super) struct Apart {
    live: HashMap<usize, u64>,
    reserved_bytes: u64,
    created: u64,
}

impl Policy for Apart {
    fn alloc(&mut self, id: usize, size_bytes: u64) {
        self.live.insert(id, size_bytes);
        self.reserved_bytes += size_bytes;
        self.created += 1;
    }

    fn free(&mut self, id: usize) {
        self.reserved_bytes -= self.live.remove(&id).unwrap_or(0);
    }

    fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    fn buffers_created(&self) -> u64 {
        self.created
    }
}
