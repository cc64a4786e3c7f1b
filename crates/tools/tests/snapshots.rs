//! Snapshots of simulated programs as a page and in the formats of other tools.

mod adding_up;
mod formats;
mod heap;
mod page;

use lapidary::sim::{SimHandle, SimOptions};
use lapidary::{Budget, Gpu, Options};

/// For tests that count events: ignores the settings of budget, compaction and heap in the
/// environment.
fn open_alone(options: SimOptions) -> (Gpu, SimHandle) {
    open(options, Budget::default())
}

/// As [`open_alone`], with a budget of 4 MiB and buffers of at most half of it.
fn open_scarce() -> (Gpu, SimHandle) {
    let options = SimOptions {
        max_buffer_bytes: 2 << 20,
        ..SimOptions::default()
    };
    open(options, Budget::device(4 << 20))
}

fn open(options: SimOptions, budget: Budget) -> (Gpu, SimHandle) {
    open_as(false, options, budget)
}

fn open_as(host_heap: bool, options: SimOptions, budget: Budget) -> (Gpu, SimHandle) {
    let device = SimOptions {
        compact_always: options.compact_always.or(Some(false)),
        ..options
    };
    let options = Options {
        budget: Some(budget),
        host_heap: Some(host_heap),
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(device, options).expect("the options go together")
}
