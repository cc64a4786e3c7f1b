//! Random programs against plain vectors. For any calls in any order every element is right,
//! nothing panics, the device's rules are kept, and nothing stays alive.
//!
//! `LAPIDARY_SEED` runs one program; `LAPIDARY_CALLS` sets the number of calls of all programs, and
//! with it the number of random trainings.

mod calls;
mod indexed;
mod mistakes;
mod model;
mod more;
mod moved;
mod nn;
mod ops;
mod training;
mod whole;
mod world;

use lapidary::{Error, diagnostics::Diagnostics};
use world::{Outcome, World, calm};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Prints how to run the program again if it fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("run it again with LAPIDARY_SEED={}", self.0);
        }
    }
}

fn run(seed: u64, calls: u64, diagnostics: Option<Diagnostics>) {
    let _seed = Seed(seed);
    let mut world = World::new(seed, diagnostics);
    for _ in 0..calls {
        let (name, call) = ops::ALL[world.rng.usize(..ops::ALL.len())];
        match calm(name, || call(&mut world)) {
            Outcome::Done | Outcome::Skipped => {}
            // The program chose the shapes, so only the device's limits may refuse them.
            Outcome::Refused(Error::NeverFits { .. } | Error::OutOfMemory(_)) => {}
            Outcome::Refused(Error::Driver { message, .. }) if message == "out of memory" => {}
            Outcome::Refused(error) => panic!("{name}: {error}"),
        }
    }
    world.end();
}

#[test]
fn random_programs_give_what_vectors_give() {
    check(12, |_| None);
}

#[test]
fn random_programs_in_which_bugs_are_looked_for_give_the_same_and_have_none() {
    // Programs that make infinities on purpose would fill the list of findings.
    check(4, |seed| {
        let non_finite = seed % 2 == 0;
        Some(Diagnostics {
            non_finite,
            ..Diagnostics::all()
        })
    });
}

fn check(programs: u64, diagnostics: fn(u64) -> Option<Diagnostics>) {
    let calls = number("LAPIDARY_CALLS").unwrap_or(250);
    match number("LAPIDARY_SEED") {
        Some(seed) => run(seed, calls, diagnostics(seed)),
        None => (0..programs).for_each(|seed| run(seed, calls, diagnostics(seed))),
    }
}
