//! A slab that is mapped for the host.

use super::handle::Engine;
use crate::driver::BufferId;

/// Unmaps a slab on drop, also if the wait for the mapping fails.
pub(super) struct Mapped<'a>(pub(super) &'a Engine, pub(super) BufferId);

impl Drop for Mapped<'_> {
    fn drop(&mut self) {
        self.0.driver.unmap(self.1);
    }
}
