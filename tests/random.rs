//! Random programs against plain vectors. For any calls in any order every element is right,
//! nothing panics, the device's rules are kept, and nothing stays alive.
//!
//! `ops` has the operations, `world` what a program holds, `model` the values that it should have.
//! Programs about memory, in `pressure` and `stores`, make the same steps with other weights.

mod calls;
mod indexed;
mod mistakes;
mod model;
mod more;
mod moved;
mod nn;
mod ops;
pub(crate) mod orders;
mod training;
mod whole;
pub(crate) mod world;

use lapidary::sim::SimOptions;
use lapidary::{Gpu, Options, diagnostics::Diagnostics};

use crate::programs::{self, Program};
use world::{Rules, World};

const RULES: Rules = Rules {
    column: 0,
    values_of_24: 16,
    held: 24,
    // With 4 bytes each they take three windows.
    elements: 40_000,
    is_short: true,
    has_stores: false,
    leaves: true,
    pins: false,
    alone: true,
    trouble: None,
};

fn run(program: &Program, diagnostics: Option<Diagnostics>) {
    let mut rng = program.dice(0);
    let buffer_bytes = (192 << 10) << rng.u32(0..4);
    // The first pass creates what diagnostics need, when uploads may have all that slabs leave.
    let for_diagnostics = u64::from(diagnostics.is_some());
    let device = SimOptions {
        memory_bytes: buffer_bytes * (rng.u64(2..6) + for_diagnostics),
        max_buffer_bytes: buffer_bytes,
        max_binding_bytes: 64 << 10,
        offset_alignment_bytes: *rng.choice(&[32, 256]).expect("two"),
        max_immediate_bytes: *rng.choice(&[0, 128]).expect("two"),
        maps_slabs: rng.bool(),
        host_heap: program.seed % 2 == 1,
        lag_submissions: rng.u32(0..5),
        jitter: rng.bool(),
        pauses: rng.u32(0..3),
        dirty: true,
        seed: program.seed,
        ..SimOptions::default()
    };
    let options = Options {
        diagnostics,
        ..Options::from_env().unwrap()
    };
    let (gpu, sim) = Gpu::simulated_with(device, options).expect("a device");
    let mut world = World::on(program, gpu, sim, RULES);
    program.steps.iter().for_each(|&step| world.step(step));
    world.end();
}

#[test]
fn random_programs_give_what_vectors_give() {
    programs::check(12, 250, |program| run(program, None));
}

#[test]
fn random_programs_in_which_bugs_are_looked_for_give_the_same_and_have_none() {
    programs::check(4, 250, run_and_look_for_bugs);
}

/// Staging is full of uploads that find no room. What each attempt to make way for more frees, the
/// queue takes back.
#[test]
fn a_search_for_staging_ends_though_the_queue_takes_back_what_it_frees() {
    programs::check_from(929_012, 1, 41, run_and_look_for_bugs);
}

fn run_and_look_for_bugs(program: &Program) {
    // Programs that make infinities on purpose would fill the list of findings.
    let non_finite = program.seed.is_multiple_of(2);
    let diagnostics = Diagnostics {
        non_finite,
        ..Diagnostics::all()
    };
    run(program, Some(diagnostics));
}
