//! Memory under pressure, on a simulated device: random programs under random budgets, with what is
//! evicted, moved, dropped, computed again and lost on the way, every byte against plain vectors;
//! every call of the driver and of the file system failed; and what bad input gets.
//!
//! `LAPIDARY_SEED` runs one random program of each kind; `LAPIDARY_STEPS` sets how many steps each
//! kind makes in all, from that seed on if both are set, and lets the faults strike at every call
//! rather than at some.

mod data;
mod faults;
mod input;
mod orders;
mod programs;
mod steps;
mod world;

/// What an environment variable says, if it is a number.
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Says how to run a program again, if it fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("run it again with LAPIDARY_SEED={}", self.0);
        }
    }
}
