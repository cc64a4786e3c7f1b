//! The budget follows the slider: up at once, down by a few MiB a frame, so that no frame has to
//! evict much.

use lapidary::{Budget, Gpu, Result};

/// How much less memory there may be from one frame to the next.
const SLICE_BYTES: u64 = 4 << 20;

#[derive(Debug)]
pub(crate) struct Pace {
    /// What the slider says.
    pub(crate) wanted_bytes: u64,
    /// What the budget is.
    pub(crate) bytes: u64,
    /// By how much what cannot leave passes it.
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

    /// Once a frame. Whether the budget was moved.
    pub(crate) fn approach(&mut self, gpu: &Gpu) -> Result<bool> {
        if self.bytes == self.wanted_bytes {
            return Ok(false);
        }
        // What nobody holds may go at once.
        let held_bytes = gpu.memory().device_bytes.now;
        let from_bytes = self.bytes.min(held_bytes.max(self.wanted_bytes));
        let down_bytes = from_bytes.saturating_sub(SLICE_BYTES);
        self.set(gpu, self.wanted_bytes.max(down_bytes))?;
        Ok(true)
    }

    fn set(&mut self, gpu: &Gpu, bytes: u64) -> Result<()> {
        let budget = Budget {
            device_bytes: Some(bytes),
            ..gpu.budget()
        };
        self.shortfall_bytes = gpu.set_budget(budget)?;
        self.bytes = bytes;
        Ok(())
    }
}
