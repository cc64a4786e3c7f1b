//! Tests of the engine on a simulated device: order without waits, reuse of memory, refusals of the
//! driver, many threads, dropped futures, and reports.

mod advice;
mod ahead;
mod buffers;
mod compacting;
mod decoder;
mod diagnostics;
mod drops;
mod dummy_operators;
mod faults;
mod foreign;
mod heap;
mod heap_compacting;
mod heap_input;
mod heap_trouble;
mod history;
mod in_place;
mod later;
mod limits;
mod long;
mod order;
mod overlap;
mod pauses;
mod picked;
mod picture;
mod recovery;
mod rematerialize;
mod rematerialize_waits;
mod report;
mod reuse;
mod shortage;
mod snapshot;
mod stops;
mod telemetry;
mod threads;
mod upload_with;
mod waits;

use lapidary::sim::{SimHandle, SimOptions};
use lapidary::{Budget, Gpu, Options};

/// A strict device that lags behind and whose memory begins with garbage. Bindings have 64 KiB.
pub(crate) fn options() -> SimOptions {
    SimOptions {
        memory_bytes: 64 << 20,
        max_buffer_bytes: 16 << 20,
        max_binding_bytes: 64 << 10,
        lag_submissions: 3,
        dirty: true,
        ..SimOptions::default()
    }
}

pub(crate) fn open(options: SimOptions) -> (Gpu, SimHandle) {
    Gpu::simulated(options).expect("the options go together")
}

/// As [`open`], for tests that count events or lose the device: ignores the settings of budget,
/// compaction and the host's heap in the environment.
pub(crate) fn open_alone(options: SimOptions) -> (Gpu, SimHandle) {
    open_with(options, None)
}

/// As [`open_alone`], with one dispatch for each operation.
pub(crate) fn open_apart(options: SimOptions) -> (Gpu, SimHandle) {
    open_with(options, Some(false))
}

/// As [`open_alone`], with a budget of 4 MiB and buffers of at most half of it.
pub(crate) fn open_scarce() -> (Gpu, SimHandle) {
    let options = Options {
        budget: Some(Budget::device(4 << 20)),
        ..Options::from_env().unwrap()
    };
    let device = SimOptions {
        max_buffer_bytes: 2 << 20,
        compact_always: Some(false),
        ..SimOptions::default()
    };
    Gpu::simulated_with(device, options).expect("the options go together")
}

fn open_with(options: SimOptions, fuse: Option<bool>) -> (Gpu, SimHandle) {
    let device = SimOptions {
        compact_always: Some(false),
        ..options
    };
    let options = Options {
        budget: Some(Budget::default()),
        host_heap: Some(device.host_heap),
        fuse,
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(device, options).expect("the options go together")
}

/// Allows no evictions, so requests without a hole are refused.
pub(crate) fn nothing_leaves(gpu: &Gpu) {
    let budget = Budget {
        host_bytes: Some(0),
        disk_bytes: Some(0),
        ..Budget::default()
    };
    assert_eq!(gpu.memory().set_budget(budget).unwrap(), 0);
}

/// Checks that nothing is alive any more and that no rule was broken.
pub(crate) fn ended(gpu: Gpu, sim: &SimHandle) {
    if gpu.finish().is_ok() {
        let memory = gpu.memory().stats();
        assert_eq!(
            (memory.live_bytes.now, memory.live_storages.now),
            (0, 0),
            "{memory}"
        );
        assert_eq!(
            (memory.queued, memory.retiring_bytes.now),
            (0, 0),
            "{memory}"
        );
    }
    drop(gpu);
    let left = sim.counters();
    assert_eq!((left.buffers_live, left.submissions_pending), (0, 0));
    assert_eq!((left.pipelines_live, left.bind_groups_live), (0, 0));
    assert_eq!(sim.complaints(), [""; 0]);
}

/// Integers from `start` on.
pub(crate) fn numbers(start: usize, len: usize) -> Vec<f32> {
    (start..start + len).map(|number| number as f32).collect()
}
