//! Dry runs against what then happens, on the adapter; and on the simulation what needs a device
//! with its own memory.

mod captured;
mod fit;
mod random;
mod reads;
mod transformer;

#[cfg(feature = "sim")]
mod budget;
#[cfg(feature = "sim")]
mod heap;
#[cfg(feature = "sim")]
mod shares;

use lapidary::adapter::AdapterKind;
use lapidary::stats::DryRun;
use lapidary::{Gpu, Options, Result};

/// The budget and the diagnostics of the environment would change what is compared.
fn gpu() -> Gpu {
    gpu_with(None)
}

fn gpu_with(host_heap: Option<bool>) -> Gpu {
    let options = Options {
        host_heap,
        budget: Some(Default::default()),
        diagnostics: Some(lapidary::diagnostics::Diagnostics::none()),
        ..Options::from_env().unwrap()
    };
    Gpu::open(options).expect("these tests need an adapter")
}

/// Are they equal within this share of the second?
fn is_close(found: u64, happened: u64, share: f64) -> bool {
    found.abs_diff(happened) as f64 <= share * happened as f64
}

/// Whether the peak of a program depends on when its device begins with the recorded work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timing {
    Matters,
    MattersNot,
}

/// Runs a program dry, then in earnest. The peaks that were found are those that happened.
#[track_caller]
fn check<T>(gpu: &Gpu, what: &str, program: impl Fn(&Gpu) -> Result<T>) -> DryRun {
    check_timed(gpu, what, Timing::MattersNot, program)
}

/// The same for a program that drops much of what it has just recorded.
#[track_caller]
fn check_timed<T>(
    gpu: &Gpu,
    what: &str,
    timing: Timing,
    program: impl Fn(&Gpu) -> Result<T>,
) -> DryRun {
    gpu.finish().expect("a device");
    let dry = gpu.dry_run(&program).expect("a dry run");
    gpu.memory().reset_peaks();
    let before = gpu.memory().stats();
    let made = program(gpu).expect("the program runs");
    gpu.finish().expect("a device");
    let stats = gpu.memory().stats();
    drop(made);
    let (live, after) = (stats.live_bytes.peak, stats.live_bytes.now);
    assert_eq!(dry.live_after_bytes, after, "{what}\n{dry}{stats}");
    // Where host and device share memory, an upload gets its place at the call if the slab is idle.
    // Otherwise it gets it with its command.
    let share = if dry.uploaded_bytes > 0 { 0.02 } else { 0.0 };
    // A GPU that is idle gets work early: before the app drops what a busy one never computes.
    let is_timed = timing == Timing::Matters && gpu.caps().kind != AdapterKind::Cpu;
    let share = if is_timed { 0.5 } else { share };
    assert!(
        is_close(dry.peak_live_bytes, live, share),
        "{what}: {live} bytes live\n{dry}{stats}"
    );
    let reserved = stats.reserved_bytes.peak;
    // Nobody waits for moves to the host. So it depends on the device how soon the bytes of a
    // released slab are free, and whether another slab fits before they are.
    let is_late = gpu.caps().host_heap && gpu.caps().backend != "sim";
    let slab_share = share.max(if is_late { 0.1 } else { 0.02 });
    assert!(
        is_close(dry.peak_reserved_bytes, reserved, slab_share),
        "{what}: {reserved} bytes reserved\n{dry}{stats}"
    );
    let slabs = stats.host_slab_bytes.peak;
    assert!(
        is_close(dry.peak_host_slab_bytes, slabs, share.max(0.02)),
        "{what}: {slabs} bytes in slabs of the host\n{dry}{stats}"
    );
    let traffic = [
        (
            dry.evicted_bytes,
            stats.evicted_bytes - before.evicted_bytes,
        ),
        (
            dry.restored_bytes,
            stats.restored_bytes - before.restored_bytes,
        ),
        (
            dry.recomputed_bytes,
            stats.recomputed_bytes - before.recomputed_bytes,
        ),
    ];
    for (found, happened) in traffic {
        assert!(is_close(found, happened, 0.02), "{what}\n{dry}{stats}");
    }
    dry
}
