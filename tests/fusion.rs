//! Fusion: a fused kernel gives what its parts give, in one dispatch.

mod broad;
mod counts;
mod graphs;
mod interpreted;
mod vec8s;

use lapidary::sim::{SimHandle, SimOptions};
use lapidary::{Budget, Gpu, Options};

/// A simulated device that ignores the settings of budget and compaction in the environment.
pub(crate) fn simulated(fuse: bool, device: SimOptions) -> (Gpu, SimHandle) {
    let device = SimOptions {
        dirty: true,
        lag_submissions: 2,
        compact_always: Some(false),
        ..device
    };
    let options = Options {
        budget: Some(Budget::default()),
        ..options(fuse)
    };
    Gpu::simulated_with(device, options).expect("the options go together")
}

pub(crate) fn options(fuse: bool) -> Options {
    Options {
        fuse: Some(fuse),
        ..Options::from_env().unwrap()
    }
}
