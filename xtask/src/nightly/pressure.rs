//! Memory under pressure: the random programs at full length, and the suite again. The suite runs
//! under budgets so small that tensors are evicted, and with compaction after every command.

use super::lengths::long;
use crate::process::{Result, run};
use crate::suite::{selected, selected_except};

/// Steps of each kind of random program. With four and a half kinds this is ten million in all.
const STEPS: &str = "2250000";

/// Trainings in which every call of the driver fails in every way. A debug build would take more
/// than an hour, so an optimized one runs them, with the assertions of a debug build.
const TRAININGS: &[&str] = &["pressure::training::"];
const ASSERTS: (&str, &str) = ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");

/// How often memory passes from one share to another in the searches for bytes of other shares.
const HAND_OVERS: &str = "100000";

/// Jobs with random peaks and priorities on one device.
const JOBS: &str = "10000";

/// Modules of a test program, a budget for them, and the tests that need more memory.
struct Tight {
    program: &'static str,
    modules: &'static [&'static str],
    budget: &'static str,
    exempt: &'static [&'static str],
}

const TIGHT: &[Tight] = &[
    Tight {
        program: "memory",
        modules: &["engine::"],
        budget: "4MiB",
        exempt: &["what_a_callback_holds_may_talk_to_the_device_when_it_goes"],
    },
    Tight {
        program: "memory",
        modules: &["random::"],
        budget: "600KiB",
        exempt: &[],
    },
    Tight {
        program: "operations",
        modules: &["ops_elementwise::"],
        budget: "512KiB",
        exempt: &["more_matrices_than_a_grid_has_places_are_transposed"],
    },
    Tight {
        program: "device",
        modules: &["custom_kernels::"],
        budget: "512KiB",
        exempt: &[],
    },
    Tight {
        program: "operations",
        modules: &["ops_matmul::"],
        budget: "1MiB",
        exempt: &[
            "reductions_of_long_rows_are_whole",
            "small_results_of_long_sums_are_right",
            "sums_longer_than_an_invocation_may_loop_are_whole",
            "a_quantized_layer_ends_as_one_of_floats_however_long_its_sums",
        ],
    },
    Tight {
        program: "operations",
        modules: &["ops_reduce::"],
        budget: "2MiB",
        exempt: &[
            "sums_of_millions_are_accurate",
            "long_rows_are_merged_from_many_runs",
            "totals_wrap_and_nan_stays_from_where_it_is",
        ],
    },
];

/// The programs whose simulated devices compact after every command.
const COMPACTED: &[&str] = &["--test", "memory", "--test", "models"];
const COMPACTED_MODULES: &[&str] = &[
    "engine::",
    "random::",
    "pressure::",
    "state::",
    "shares::isolation",
];

/// Model files also have a module `pressure`, which is left out.
const NOT_COMPACTED: &[&str] = &["model::"];

/// The random programs, with faults at every call.
pub(crate) fn programs() -> Result<String> {
    let tests = selected_except(&["--test", "memory"], &["pressure::"], TRAININGS)?;
    long(tests, &[("LAPIDARY_STEPS", STEPS)])?;
    let tests = selected(&["--release", "--test", "memory"], TRAININGS)?;
    long(tests, &[("LAPIDARY_STEPS", STEPS), ASSERTS])?;
    let tests = selected(&["--test", "memory"], &["shares::isolation"])?;
    long(tests, &[("LAPIDARY_HAND_OVERS", HAND_OVERS)])?;
    let tests = selected(&["--test", "device"], &["isolation::kernels_with_wrong"])?;
    long(tests, &[("LAPIDARY_HAND_OVERS", HAND_OVERS)])?;
    let tests = selected(&["--test", "memory"], &["shares::many_jobs"])?;
    long(tests, &[("LAPIDARY_JOBS", JOBS)])?;
    Ok(format!(
        "{STEPS} steps a kind, {HAND_OVERS} hand-overs, here and on an adapter, {JOBS} jobs"
    ))
}

/// The suite under small budgets, and with constant moves.
pub(crate) fn tight() -> Result<String> {
    for tight in TIGHT {
        let target = ["--test", tight.program];
        let mut tests = selected_except(&target, tight.modules, tight.exempt)?;
        run(tests.env("LAPIDARY_BUDGET", tight.budget))?;
    }
    let mut tests = selected_except(COMPACTED, COMPACTED_MODULES, NOT_COMPACTED)?;
    run(tests.env("LAPIDARY_SIM_COMPACT", "1"))?;
    Ok(String::new())
}
