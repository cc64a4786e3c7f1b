//! Memory under pressure: the random programs at length, and the suite again where nothing stays in
//! its place: under budgets so tight that tensors must leave, and with everything moved after every
//! command.

use super::lengths::long;
use crate::process::{Result, run};
use crate::suite::{selected, selected_except};

/// Steps of each kind of random program, of which there are four and a half: ten million in all.
const STEPS: &str = "2250000";

/// Modules of a program of tests, the budget that they run under, and tests that need more to show
/// what they are about.
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

/// The programs of tests and their modules whose simulated devices compact after every command.
const COMPACTED: &[&str] = &["--test", "memory", "--test", "models"];
const COMPACTED_MODULES: &[&str] = &["engine::", "random::", "pressure::", "state::"];

/// Model files have a module `pressure` too, which is not meant.
const NOT_COMPACTED: &[&str] = &["model::"];

/// The random programs, with faults at every call.
pub(crate) fn programs() -> Result<String> {
    let tests = selected(&["--test", "memory"], &["pressure::"])?;
    long(tests, &[("LAPIDARY_STEPS", STEPS)])?;
    Ok(format!("{STEPS} steps a kind"))
}

/// The suite where tensors must leave, and where they move all the time.
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
