//! The budget follows the slider: up at once, down by a few MiB a frame, so that no frame has to
//! evict much.

use lapidary::{Budget, Gpu, Result};

/// How far the budget falls from one frame to the next.
const SLICE_BYTES: u64 = 4 << 20;

#[derive(Debug)]
pub(crate) struct Pace {
    /// The slider's value.
    pub(crate) wanted_bytes: u64,
    /// The current budget.
    pub(crate) bytes: u64,
    /// How far memory that cannot leave exceeds the budget.
    pub(crate) shortfall_bytes: u64,
}

impl Pace {
    pub(crate) fn new(gpu: &Gpu, bytes: u64) -> Result<Pace> {
        let mut pace = Pace {
            wanted_bytes: bytes,
            bytes,
            shortfall_bytes: 0,
        };
        pace.set(gpu, bytes)?;
        Ok(pace)
    }

    /// Call it once a frame. Returns whether the budget changed.
    pub(crate) fn approach(&mut self, gpu: &Gpu) -> Result<bool> {
        if self.bytes == self.wanted_bytes {
            return Ok(false);
        }
        // Memory that is not in use may be cut at once.
        let held_bytes = gpu.memory().stats().device_bytes.now;
        let from_bytes = self.bytes.min(held_bytes.max(self.wanted_bytes));
        let down_bytes = from_bytes.saturating_sub(SLICE_BYTES);
        self.set(gpu, self.wanted_bytes.max(down_bytes))?;
        Ok(true)
    }

    fn set(&mut self, gpu: &Gpu, bytes: u64) -> Result<()> {
        let budget = Budget {
            device_bytes: Some(bytes),
            ..gpu.memory().budget()
        };
        self.shortfall_bytes = gpu.memory().set_budget(budget)?;
        self.bytes = bytes;
        Ok(())
    }
}
