//! A graphics card behind PCIe, simulated. It has no values, and its work takes the time that its
//! bytes, copies and submissions take. Several benches use it.

use lapidary::sim::{SimHandle, SimMode, SimOptions, Speed};
use lapidary::{Gpu, Options, Result};

/// Opens a card of this speed. `LAPIDARY_HOST_HEAP=off` takes its heap in the host's memory away.
pub(crate) fn open(speed: Speed, options: Options) -> Result<(Gpu, SimHandle)> {
    let device = SimOptions {
        mode: SimMode::SizesOnly,
        speed: Some(speed),
        keeps_time: true,
        host_heap: true,
        lag_submissions: u32::MAX,
        ..SimOptions::default()
    };
    Gpu::simulated_with(device, options)
}
