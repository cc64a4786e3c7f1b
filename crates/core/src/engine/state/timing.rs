//! The time since the device was opened, and the times of kernels if timing is on.

#[cfg(not(target_arch = "wasm32"))]
use std::time::Instant;

use super::times::{Entry, Times};
use crate::driver::Device;
use crate::memory::Memory;

/// The clock of one device, and the times of its kernels.
#[derive(Debug)]
pub(crate) struct Timing {
    /// The time at which the engine was created.
    #[cfg(not(target_arch = "wasm32"))]
    opened: Instant,
    /// The times of kernels, if timing is on. The app turns it on again after a loss.
    pub(crate) times: Option<Box<Times>>,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            #[cfg(not(target_arch = "wasm32"))]
            opened: Instant::now(),
            times: None,
        }
    }
}

impl Timing {
    /// Nanoseconds since the device was opened; 0 in a browser.
    pub(crate) fn now_ns(&self) -> u64 {
        #[cfg(not(target_arch = "wasm32"))]
        return u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        #[cfg(target_arch = "wasm32")]
        return 0;
    }

    /// Turns timing on or off. Returns the entry for dispatches about which nothing is known.
    pub(super) fn set(&mut self, on: bool) -> Option<Entry> {
        self.times = on.then(|| Box::new(Times::new()));
        self.times.as_ref().map(|times| times.others())
    }

    /// Counts the times of the kernels of the last submission, which the caller has awaited.
    #[cold]
    pub(super) fn kernels_ran(
        &mut self,
        dispatches: &[Entry],
        driver: &Device,
        memory: &mut Memory,
    ) {
        let now_ns = self.now_ns();
        if let Some(times) = &mut self.times {
            times.kernels_ran(dispatches, &driver.take_kernel_runs(), now_ns, memory);
        }
    }
}
