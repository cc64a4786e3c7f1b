//! A slab that is mapped for the host.

use super::handle::Engine;
use crate::driver::{At, BufferId, DriverResult, MapMode};

/// Unmaps a slab on drop.
pub(super) struct Mapped<'a>(&'a Engine, BufferId);

impl<'a> Mapped<'a> {
    /// Maps a range of a slab, and waits for it. If the wait fails or ends early, it is unmapped.
    pub(super) async fn begin(
        engine: &'a Engine,
        mode: MapMode,
        at: At,
        size_bytes: u64,
    ) -> DriverResult<Self> {
        let signal = engine.driver.map(at, mode, size_bytes)?;
        let mapped = Mapped(engine, at.0);
        engine.driver.wait(&signal).await?;
        Ok(mapped)
    }
}

impl Drop for Mapped<'_> {
    fn drop(&mut self) {
        self.0.driver.unmap(self.1);
    }
}
