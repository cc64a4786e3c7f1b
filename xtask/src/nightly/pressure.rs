//! Memory under pressure: the random programs at length, and the suite again where nothing stays in
//! its place: under budgets so tight that tensors must leave, and with everything moved after every
//! command.

use super::lengths::long;
use crate::process::{Result, run};
use crate::suite::selected;

/// Steps of each kind of random program, of which there are four and a half: ten million in all.
const STEPS: &str = "2250000";

/// Test files, the budget that they run under, and tests that need more to show what they are
/// about.
struct Tight {
    files: &'static [&'static str],
    budget: &'static str,
    exempt: &'static [&'static str],
}

const TIGHT: &[Tight] = &[
    Tight {
        files: &["engine"],
        budget: "4MiB",
        exempt: &["what_a_callback_holds_may_talk_to_the_device_when_it_goes"],
    },
    Tight {
        files: &["random"],
        budget: "600KiB",
        exempt: &[],
    },
    Tight {
        files: &["ops_elementwise", "custom_kernels"],
        budget: "512KiB",
        exempt: &["more_matrices_than_a_grid_has_places_are_transposed"],
    },
    Tight {
        files: &["ops_matmul"],
        budget: "1MiB",
        exempt: &[
            "reductions_of_long_rows_are_whole",
            "small_results_of_long_sums_are_right",
            "sums_longer_than_an_invocation_may_loop_are_whole",
            "a_quantized_layer_ends_as_one_of_floats_however_long_its_sums",
        ],
    },
    Tight {
        files: &["ops_reduce"],
        budget: "2MiB",
        exempt: &[
            "sums_of_millions_are_accurate",
            "long_rows_are_merged_from_many_runs",
            "totals_wrap_and_nan_stays_from_where_it_is",
        ],
    },
];

/// The test files whose simulated devices compact after every command.
const COMPACTED: &[&str] = &["engine", "random", "pressure", "state"];

/// The random programs, with faults at every call.
pub(crate) fn programs() -> Result<String> {
    let tests = selected(&["--test", "pressure"], &[])?;
    long(tests, &[("LAPIDARY_STEPS", STEPS)])?;
    Ok(format!("{STEPS} steps a kind"))
}

/// The suite where tensors must leave, and where they move all the time.
pub(crate) fn tight() -> Result<String> {
    for tight in TIGHT {
        let mut tests = selected(&as_targets(tight.files), &[])?;
        if !tight.exempt.is_empty() {
            tests.arg("--");
            for name in tight.exempt {
                tests.args(["--skip", name]);
            }
        }
        run(tests.env("LAPIDARY_BUDGET", tight.budget))?;
    }
    let mut tests = selected(&as_targets(COMPACTED), &[])?;
    run(tests.env("LAPIDARY_SIM_COMPACT", "1"))?;
    Ok(String::new())
}

fn as_targets(files: &[&'static str]) -> Vec<&'static str> {
    files.iter().flat_map(|file| ["--test", *file]).collect()
}
