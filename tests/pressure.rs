//! Memory under pressure on a simulated device. Random programs run under random budgets, with
//! evictions, moves, drops, rematerialization and device losses. Every byte is compared with plain
//! vectors. Also every call of the driver and of the file system fails once, and bad input is
//! tried.
//!
//! `LAPIDARY_SEED` runs one random program of each kind, and chooses which calls fail.
//! `LAPIDARY_STEPS` sets the number of steps of each kind, from that seed on if both are set. It
//! also makes more calls fail, up to all of them.

mod data;
mod faults;
mod input;
mod orders;
mod programs;
mod steps;
mod training;
mod world;

/// The number in an environment variable, if it has one.
pub(crate) fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Prints how to run a program again if it fails.
pub(crate) struct Seed(pub(crate) u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("run it again with LAPIDARY_SEED={}", self.0);
        }
    }
}
