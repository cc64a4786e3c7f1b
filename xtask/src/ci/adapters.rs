//! The core tests again: on a second software adapter with other limits, and under Vulkan's
//! validation layer, which detects misuse that a tolerant driver accepts. Tests on the simulated
//! device or of the host's side are left out: their results would be the same.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::messages::{AllowList, is_message};
use crate::apt;
use crate::driver;
use crate::process::{Result, Watched, root, run, target_dir, watch};
use crate::suite::{LIBRARIES, WITH_REDIS, has_nextest, selected_except};

/// Arguments of cargo for the core tests. Skipped modules choose kernels or run each kernel again.
const CORE: &[&str] = &["--test", "device", "--test", "operations"];
const NOT_CORE: &[&str] = &["races::", "views::"];

/// Tests that a second adapter adds little to: its compiler, limits and subgroups meet the same
/// kernels in the others. Those compile every built-in kernel there, every tile of a product, and
/// 94 % of the texts. `swiftshader-whole` runs all tests.
#[rustfmt::skip]
const NOT_AGAIN: &[&str] = &[
    // The host's work, and that of the simulation.
    "dry_run::",
    "fusion::counts::",
    "fusion::graphs::expressions_before",
    "fusion::graphs::interpreted",
    "fusion::graphs::little",
    "fusion::graphs::long",
    "fusion::graphs::operands",
    "fusion::graphs::thousands",
    "fusion::interpreted::",
    "grad::budgets::",
    "grad::checkpoints::",
    "grad::custom::",
    "grad::every::",
    "grad::kept::a_value_that_is_cheap",
    "grad::masks::so_they_are_by_the_reference",
    "grad::optimum::",
    "grad::saved::",
    "grad::tape::",
    "holders::",
    "limits::",
    "loader::",
    "optim::launches::",
    "optim::refuses::",
    "optim::resumes::",
    "parts::",
    "pressure::",
    "several::",
    "simulated",
    // Programs of operations, whose kernels run one by one in other tests.
    "differences",
    "grad::composed::",
    "gradients_of_gradients",
    "have_gradients",
    "torch::",
    // Sizes and views that choose no other kernel, or change types of operands alone.
    "a_large_tensor_is_folded",
    "fusion_changes_neither",
    "large::the_rows",
    "long_rows",
    "long_sums",
    "narrow_weights_never",
    "quantized::batches",
    "repetitions_and_rolls",
    "transposed_operands",
    "very_many_that_name",
    "views_of_a_large",
    "what_is_padded",
    "what_names_one",
];

/// The library's own tests that request variants which an adapter would not get. Tests of tiles are
/// left to the suite and to long runs, because a software adapter compiles them for minutes.
#[rustfmt::skip]
const FORCED: &[&str] = &[
    "ops::attention::",
    "ops::conv::",
    "ops::matmul::along_k::",
    "ops::matmul::tests::chosen::operands_of_half",
    "ops::matmul::tests::every_variant_ends",
    "ops::matmul::tests::scaled::",
    "ops::reduce::",
    "ops::scan::",
];

const LAYER: &str = "VK_LAYER_KHRONOS_validation";

/// The core tests on SwiftShader only, with the variants that it gets. The whole suite, which
/// forces all variants, runs on it in `nightly`.
pub(crate) fn swiftshader() -> Result<String> {
    let mut tests = selected_except(CORE, &[], &[NOT_CORE, NOT_AGAIN].concat())?;
    // Without the simulation and small bindings, on which the suite has run them.
    tests.env("LAPIDARY_TEST_DEVICES", "adapter");
    on_swiftshader(tests)?;
    Ok(String::new())
}

/// The whole suite on SwiftShader only.
pub(crate) fn swiftshader_whole() -> Result<String> {
    // A step of `ci` installs the server that the others need.
    on_swiftshader(selected_except(&[], &[], &[WITH_REDIS])?)?;
    Ok(String::new())
}

fn core_tests() -> Result<[Command; 2]> {
    let core = selected_except(CORE, &[], NOT_CORE)?;
    // Texts of kernels are the same on every adapter.
    Ok([core, selected_except(LIBRARIES, FORCED, &["valid_shader"])?])
}

fn on_swiftshader(mut tests: Command) -> Result {
    let description = driver::swiftshader()?;
    tests
        .env("VK_DRIVER_FILES", &description)
        .env("VK_ICD_FILENAMES", &description);
    // Most of the time is its compiler's. With each kernel glibc would return memory to the system
    // and ask for it again, which is a tenth or more of the CPU time.
    tests
        .env("MALLOC_TOP_PAD_", (64 << 20).to_string())
        .env("MALLOC_TRIM_THRESHOLD_", (1_u64 << 31).to_string());
    run(tests.env("LAPIDARY_ADAPTER", "swiftshader"))
}

/// The core tests under the validation layer. Fails on any message that is not on the checked-in
/// list, and if the layer was not loaded.
pub(crate) fn validation() -> Result<String> {
    if apt::is_here() {
        apt::install(&["vulkan-validationlayers"])?;
    }
    let allowed = AllowList::read(&root().join("xtask/validation-allow.txt"))?;
    let settings = target_dir().join("vk_layer_settings.txt");
    write_settings(&settings)?;

    let (mut lines, mut succeeded) = (Vec::new(), true);
    for tests in core_tests()? {
        let output = under_the_layer(tests, &settings)?;
        lines.extend(output.lines);
        succeeded &= output.succeeded;
    }

    let messages: Vec<&String> = lines.iter().filter(|line| is_message(line)).collect();
    let unknown: Vec<_> = messages
        .iter()
        .filter(|message| !allowed.covers(message))
        .collect();
    let instances = lines.iter().filter(|line| is_layer_loaded(line)).count();
    if !succeeded {
        let said = lines.iter().filter(|line| !is_loader_chatter(line));
        said.for_each(|line| println!("{line}"));
        return Err("the core tests failed under the validation layer.".into());
    }
    if instances == 0 {
        return Err(format!("no test loaded {LAYER}: is it installed?"));
    }
    if let Some(first) = unknown.first() {
        return Err(format!(
            "{} messages of the validation layer, first: {first}",
            unknown.len()
        ));
    }
    Ok(format!(
        "{} allowed messages, layer loaded {instances} times",
        messages.len()
    ))
}

fn under_the_layer(mut tests: Command, settings: &Path) -> Result<Watched> {
    if has_nextest() {
        // Nextest hides the output of passed tests, which contains the messages.
        tests.env("NEXTEST_SUCCESS_OUTPUT", "immediate");
    }
    tests
        .env("VK_INSTANCE_LAYERS", LAYER)
        .env("VK_LAYER_SETTINGS_PATH", settings)
        .env("VK_LOADER_DEBUG", "layer")
        // Without debug info in the shaders: it names WGSL as the source language, which older
        // layers do not know, and they would stop reading.
        .env("WGPU_DEBUG", "0")
        .env("CARGO_TERM_COLOR", "never");
    watch(&mut tests, |line| is_message(line) || is_progress(line))
}

/// Makes the layer print its messages even if the program under test collects them too.
fn write_settings(file: &Path) -> Result {
    const SETTINGS: &str = "\
        khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\n\
        khronos_validation.report_flags = error,warn\n\
        khronos_validation.log_filename = stdout\n";
    let explain = |error: std::io::Error| format!("{}: {error}.", file.display());
    fs::create_dir_all(file.parent().expect("it lies in the target folder")).map_err(explain)?;
    fs::write(file, SETTINGS).map_err(explain)
}

/// Whether a line is the progress or the summary of a test runner.
fn is_progress(line: &str) -> bool {
    const WORDS: &[&str] = &[
        "PASS", "FAIL", "SLOW", "LEAK", "SIG", "ABORT", "TIMEOUT", "Summary", "test ",
    ];
    let line = line.trim_start();
    WORDS.iter().any(|word| line.starts_with(word))
}

/// The loader's own log, which is long. The prefix differs between loaders.
fn is_loader_chatter(line: &str) -> bool {
    line.contains("LAYER:") || line.trim_start().starts_with("DEBUG:")
}

fn is_layer_loaded(line: &str) -> bool {
    line.contains("Insert instance layer") && line.contains(LAYER)
}
