//! Random programs of several kinds.

use crate::steps::step;
use crate::world::{Rules, World};
use crate::{Seed, number};

/// Steps of one program.
const PROGRAM_STEPS: u64 = 500;

/// Steps of a kind, unless the environment says otherwise.
const STEPS: u64 = 3000;

const PLAIN: Rules = Rules {
    leaves: true,
    pins: false,
    alone: true,
};

/// Runs programs of a kind until they have made as many steps as they should.
fn run(program: impl Fn(u64, u64)) {
    if let Some(seed) = number("LAPIDARY_SEED") {
        let _seed = Seed(seed);
        return program(seed, PROGRAM_STEPS);
    }
    let steps = number("LAPIDARY_STEPS").unwrap_or(STEPS);
    for seed in 0..steps.div_ceil(PROGRAM_STEPS) {
        let _seed = Seed(seed);
        program(seed, PROGRAM_STEPS.min(steps - seed * PROGRAM_STEPS));
    }
}

/// Panics in callbacks are wanted, and say nothing.
fn quiet() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<&str>()
            || info
                .location()
                .is_none_or(|at| !at.file().ends_with("orders.rs"))
        {
            loud(info);
        }
    }));
}

fn check(rules: Rules) {
    quiet();
    run(|seed, steps| {
        let mut world = World::new(seed, rules);
        for _ in 0..steps {
            let t = std::time::Instant::now();
            let name = step(&mut world);
            if t.elapsed().as_millis() > 50 {
                eprintln!(
                    "{name} {:?} queued {} refusals {} {:?}",
                    t.elapsed(),
                    world.gpu.memory().queued,
                    world.gpu.memory().refusals,
                    world.gpu.budget()
                );
            }
        }
        world.end();
    });
}

#[test]
fn what_fits_alone_never_fails_when_nothing_is_pinned() {
    check(PLAIN);
}

#[test]
fn pinned_tensors_stay_and_others_make_way() {
    check(Rules {
        pins: true,
        ..PLAIN
    });
}

#[test]
fn where_nothing_can_leave_what_is_short_is_refused_and_nothing_is_lost() {
    check(Rules {
        leaves: false,
        ..PLAIN
    });
}
