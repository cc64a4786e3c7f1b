//! What the ranks of a job run.

mod bad;
mod collectives;
mod late;
mod mixed;
mod trains;
mod world;

use std::process::ExitCode;
use std::time::Duration;

use lapidary::Gpu;
use lapidary::sim::SimOptions;
use lapidary_mpi::{Ranks, RanksOptions, Result};

type Program = fn(&Ranks) -> Result<()>;

/// Each name, with the time-out of its calls in seconds.
const PROGRAMS: &[(&str, u64, Program)] = &[
    ("sums", 60, collectives::sums),
    ("moves", 60, collectives::moves),
    ("trains", 60, trains::simulated),
    ("trains_on_adapter", 120, trains::on_adapter),
    ("differs", 60, bad::differs),
    ("backward_fails", 60, bad::backward_fails),
    ("no_room", 60, bad::no_room),
    ("lost_device", 60, bad::lost_device),
    ("returns_error", 60, bad::returns_error),
    ("panics", 60, bad::panics),
    ("ends_early", 60, bad::ends_early),
    // If only the time-out told of the death, the test would have ended the job before.
    ("is_killed", 600, bad::is_killed),
    ("is_killed_alone", 2, bad::is_killed),
    ("is_killed_in_a_sum", 2, bad::is_killed_in_a_sum),
    ("is_stopped", 1, bad::is_stopped),
    ("is_stopped_in_a_sum", 1, bad::is_stopped_in_a_sum),
    ("hangs_in_backward", 4, late::hangs_in_backward),
    ("hangs_between_buckets", 2, late::hangs_between_buckets),
    ("all_reduces", 60, bad::all_reduces),
    ("broadcasts", 60, bad::broadcasts),
    ("is_slow", 60, bad::is_slow),
    ("mixed_replicas", 60, mixed::replicas),
    ("constant", 60, mixed::constant),
    ("starts_twice", 60, bad::starts_twice),
    ("world_fails", 60, world::fails),
];

pub(crate) fn run(name: &str) -> ExitCode {
    let found = PROGRAMS.iter().find(|(known, ..)| *known == name);
    let (_, timeout_s, program) = found.expect("the test starts programs that are there");
    let options = RanksOptions {
        timeout: Duration::from_secs(*timeout_s),
    };
    match lapidary_mpi::run(options, program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// A simulated device. Those of odd numbers let the host see their memory.
fn simulated(number: usize) -> Gpu {
    let options = SimOptions {
        dirty: true,
        maps_slabs: number % 2 == 1,
        jitter: true,
        seed: number as u64,
        ..Default::default()
    };
    Gpu::simulated(options).expect("these options can be").0
}
