//! A slab that the host sees.

use super::handle::Engine;
use crate::driver::BufferId;

/// A slab that is mapped, or about to be, until this is dropped: also if the execution pass is
/// dropped while it waits.
pub(super) struct Mapped<'a>(pub(super) &'a Engine, pub(super) BufferId);

impl Drop for Mapped<'_> {
    fn drop(&mut self) {
        self.0.driver.unmap(self.1);
    }
}
