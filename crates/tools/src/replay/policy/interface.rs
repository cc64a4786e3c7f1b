//! What the rules of an allocator do with a trace.

/// Places storages. Each is allocated once, and freed at most once after that.
pub(super) trait Policy {
    fn alloc(&mut self, id: usize, size_bytes: u64);
    fn free(&mut self, id: usize);
    /// Bytes that the driver holds for it.
    fn reserved_bytes(&self) -> u64;
    /// Buffers that it requested from the driver.
    fn buffers_created(&self) -> u64;
}
