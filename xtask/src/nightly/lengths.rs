//! Tests of the suite at full length, of which the suite runs a part, and under small budgets. A
//! variable sets the length; the profile `long` of nextest has a longer time limit.

use crate::process::{Result, Shell};
use crate::suite::tests;

/// The random runs, in the test profile, which checks every invariant: operations of the allocator
/// in each case, and calls of a random program.
pub(super) const RANDOM: &[&str] =
    &["LAPIDARY_OPS=40000000 LAPIDARY_CALLS=30000 --test memory -- alloc_model:: random::"];

/// The random programs, with faults at every call. With four and a half kinds of them, the steps
/// are ten million in all. Hand-overs pass memory from one share to another, where the search for
/// bytes of other shares goes on. The last has jobs with random peaks and priorities on one device.
///
/// A debug build would take more than an hour for the trainings, in which every call of the driver
/// fails in every way. So an optimized one runs them, with the assertions of a debug build.
#[rustfmt::skip]
pub(super) const PRESSURE: &[&str] = &[
    "LAPIDARY_STEPS=2250000 --test memory -- pressure:: --skip pressure::training::",
    "LAPIDARY_STEPS=2250000 CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true --release --test memory \
        -- pressure::training::",
    "LAPIDARY_HAND_OVERS=100000 --test memory -- shares::isolation",
    "LAPIDARY_HAND_OVERS=100000 --test device -- isolation::kernels_with_wrong",
    "LAPIDARY_JOBS=10000 --test memory -- shares::many_jobs",
];

/// Modules under a budget, without the tests that need more memory. Then programs whose simulated
/// devices compact after every command. Model files also have a module `pressure`.
#[rustfmt::skip]
pub(super) const TIGHT: &[&str] = &[
    "LAPIDARY_BUDGET=4MiB --test memory -- engine:: \
        --skip what_a_callback_holds_may_talk_to_the_device_when_it_goes",
    "LAPIDARY_BUDGET=600KiB --test memory -- random::",
    "LAPIDARY_BUDGET=512KiB --test operations -- ops_elementwise:: \
        --skip more_matrices_than_a_grid_has_places_are_transposed",
    "LAPIDARY_BUDGET=512KiB --test device -- custom_kernels::",
    "LAPIDARY_BUDGET=1MiB --test operations -- ops_matmul:: \
        --skip reductions_of_long_rows_are_whole \
        --skip small_results_of_long_sums_are_right \
        --skip sums_longer_than_an_invocation_may_loop_are_whole \
        --skip a_quantized_layer_ends_as_one_of_floats_however_long_its_sums",
    "LAPIDARY_BUDGET=2MiB --test operations -- ops_reduce:: \
        --skip sums_of_millions_are_accurate \
        --skip long_rows_are_merged_from_many_runs \
        --skip totals_wrap_and_nan_stays_from_where_it_is",
    "LAPIDARY_SIM_COMPACT=1 --test memory --test models \
        -- engine:: random:: pressure:: state:: shares::isolation --skip model::",
];

/// Every tile with its operands in every pair of orders, and a state file with every bit flipped.
pub(super) const PAIRS: &[&str] = &["LAPIDARY_EVERY_PAIR=1 LAPIDARY_EVERY_BIT=1 --lib \
    -- ops::matmul::tests::chosen:: a_file_with_any_bit_flipped_is_refused"];

/// Hundreds of random programs of each kind, with and without fusion and with gradients.
pub(super) const EXPRESSIONS: &[&str] = &["LAPIDARY_PROGRAMS=300 --test operations -- \
    fusion::graphs::on_an_adapter_ \
    fusion::graphs::expressions_before_and_after_reductions \
    fusion::graphs::thousands_of_random_expressions \
    grad::programs::"];

pub(super) const TEXTS: &[&str] = &["LAPIDARY_TEXTS=100000 --test device -- no_changed_text"];

pub(super) const LIMITS: &[&str] = &["LAPIDARY_LIMITS=1000 --test device -- any_limits_are"];

pub(super) const VIEWS: &[&str] = &["LAPIDARY_VIEWS=all --test operations -- views::"];

/// A debug build takes minutes for it.
pub(super) const RACES: &[&str] = &["LAPIDARY_RACES=all --release --test operations -- races::"];

/// Runs them, and tells of the variables.
pub(super) fn run(sh: &Shell, runs: &[&str]) -> Result<String> {
    let mut variables = Vec::new();
    for run in runs {
        println!("{run}");
        tests(sh, run)?.env("NEXTEST_PROFILE", "long").run()?;
        variables.extend(run.split(' ').take_while(|word| word.contains('=')));
    }
    variables.dedup();
    Ok(variables.join(", "))
}
