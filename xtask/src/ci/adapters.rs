//! The core tests again: on a second software adapter with other limits, and under Vulkan's
//! validation layer, which detects misuse that a tolerant driver accepts. Tests on the simulated
//! device or of the host's side are left out: their results would be the same.

use crate::apt;
use crate::driver;
use crate::process::{Result, Shell, bail, ensure, target_dir, watch};
use crate::steps::PASSED;
use crate::suite::tests;

/// Arguments of cargo for the core tests. Skipped modules choose kernels or run each kernel again.
const CORE: &str = "--test device --test operations";
const NOT_CORE: &str = "races:: views::";

/// Tests that a second adapter adds little to: its compiler, limits and subgroups meet the same
/// kernels in the others. Those compile every built-in kernel there, every tile of a product, and
/// 94 % of the texts. `swiftshader-whole` runs all tests. These are the host's work, and that of
/// the simulation, ...
const NOT_AGAIN: &str = "\
    dry_run:: fusion::counts:: fusion::graphs::expressions_before fusion::graphs::interpreted \
    fusion::graphs::little fusion::graphs::long fusion::graphs::operands fusion::graphs::thousands \
    fusion::interpreted:: grad::budgets:: grad::checkpoints:: grad::custom:: grad::every:: \
    grad::kept::a_value_that_is_cheap grad::masks::so_they_are_by_the_reference grad::optimum:: \
    grad::saved:: grad::tape:: holders:: limits:: loader:: optim::launches:: optim::refuses:: \
    optim::resumes:: parts:: pressure:: several:: simulated";

/// ... programs of operations, whose kernels run one by one in other tests, ...
const NOT_IN_PROGRAMS: &str = "\
    differences grad::composed:: gradients_of_gradients have_gradients torch::folds \
    torch::gradients torch::indexing torch::layers torch::losses torch::reductions torch::shapes \
    torch::slopes";

/// ... and sizes and views that choose no other kernel, or change types of operands alone.
const NOT_IN_SIZES: &str = "\
    a_large_tensor_is_folded fusion_changes_neither large::the_rows long_rows long_sums \
    narrow_weights_never quantized::batches repetitions_and_rolls transposed_operands \
    very_many_that_name views_of_a_large what_is_padded what_names_one";

/// The library's own tests that request variants which an adapter would not get. Tests of tiles are
/// left to the suite and to long runs, because a software adapter compiles them for minutes.
const FORCED: &str = "\
    ops::attention:: ops::conv:: ops::matmul::along_k:: \
    ops::matmul::tests::chosen::operands_of_half ops::matmul::tests::every_variant_ends \
    ops::matmul::tests::scaled:: ops::reduce:: ops::scan::";

const LAYER: &str = "VK_LAYER_KHRONOS_validation";

/// Makes the layer print its messages even if the program under test collects them too.
const SETTINGS: &str = "khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.report_flags = error,warn
khronos_validation.log_filename = stdout
";

/// The core tests on SwiftShader only, with the variants that it gets. The whole suite, which
/// forces all variants, runs on it in `nightly`.
pub(crate) fn swiftshader(sh: &Shell) -> Result<String> {
    let left_out = [NOT_CORE, NOT_AGAIN, NOT_IN_PROGRAMS, NOT_IN_SIZES]
        .map(skip)
        .concat();
    // Without the simulation and small bindings, on which the suite has run them.
    let words = format!("LAPIDARY_TEST_DEVICES=adapter {CORE} --{left_out}");
    on_swiftshader(sh, &words)
}

/// Options that leave out tests by these words.
fn skip(words: &str) -> String {
    let words = words.split_whitespace();
    words.map(|word| format!(" --skip {word}")).collect()
}

/// The whole suite on SwiftShader only.
pub(crate) fn swiftshader_whole(sh: &Shell) -> Result<String> {
    on_swiftshader(sh, "")
}

fn on_swiftshader(sh: &Shell, words: &str) -> Result<String> {
    let description = driver::swiftshader(sh)?;
    let _newer = sh.push_env("VK_DRIVER_FILES", &description);
    let _older = sh.push_env("VK_ICD_FILENAMES", &description);
    // Most of the time is its compiler's. With each kernel glibc would return memory to the system
    // and ask for it again, which is a tenth or more of the CPU time.
    let variables = "LAPIDARY_ADAPTER=swiftshader MALLOC_TOP_PAD_=67108864 \
         MALLOC_TRIM_THRESHOLD_=2147483648";
    tests(sh, &format!("{variables} {words}"))?.run()?;
    Ok(PASSED)
}

/// The core tests under the validation layer. Fails on any message, and if the layer was not
/// loaded.
pub(crate) fn validation(sh: &Shell) -> Result<String> {
    apt::install(sh, &["vulkan-validationlayers"])?;
    let settings = target_dir().join("vk_layer_settings.txt");
    sh.write_file(&settings, SETTINGS)?;
    let _settings = sh.push_env("VK_LAYER_SETTINGS_PATH", &settings);
    // Nextest hides the output of passed tests, which contains the messages. There is no debug info
    // in the shaders: it names WGSL as the source language, which older layers do not know, and
    // they would stop reading.
    let layer = format!(
        "NEXTEST_SUCCESS_OUTPUT=immediate VK_INSTANCE_LAYERS={LAYER} VK_LOADER_DEBUG=layer \
         CARGO_TERM_COLOR=never WGPU_DEBUG=0"
    );
    let core = format!("{layer} {CORE} --{}", skip(NOT_CORE));
    // Texts of kernels are the same on every adapter.
    let forced = format!("{layer} --lib -- {FORCED} --skip valid_shader");
    let (mut lines, mut succeeded) = (Vec::new(), true);
    for words in [core, forced] {
        let output = watch(tests(sh, &words)?, |line| {
            is_message(line) || is_progress(line)
        })?;
        lines.extend(output.lines);
        succeeded &= output.succeeded;
    }
    if !succeeded {
        let told = lines.iter().filter(|line| !is_loader_chatter(line));
        told.for_each(|line| println!("{line}"));
        bail!("the core tests failed under the validation layer");
    }
    let is_loaded = |line: &&String| line.contains("Insert instance layer") && line.contains(LAYER);
    let instances = lines.iter().filter(is_loaded).count();
    ensure!(instances > 0, "no test loaded {LAYER}: is it installed?");
    let mut messages = lines.iter().filter(|line| is_message(line));
    match messages.next() {
        Some(first) => bail!("{} messages, first: {first}", 1 + messages.count()),
        None => Ok(format!("no messages, layer loaded {instances} times")),
    }
}

/// Whether a line of output is a message of the layer. The colon and the bracket distinguish it
/// from wgpu's own error of the same name, which tests provoke.
fn is_message(line: &str) -> bool {
    let marks = [
        "VUID-",
        "Validation Error: [",
        "Validation Warning: [",
        "Validation Performance Warning: [",
    ];
    marks.iter().any(|mark| line.contains(mark))
}

/// Whether a line is the progress or the summary of a test runner.
fn is_progress(line: &str) -> bool {
    let words = [
        "PASS", "FAIL", "SLOW", "LEAK", "SIG", "ABORT", "TIMEOUT", "Summary", "test ",
    ];
    words.iter().any(|word| line.trim_start().starts_with(word))
}

/// The loader's own log, which is long. The prefix differs between loaders.
fn is_loader_chatter(line: &str) -> bool {
    line.contains("LAYER:") || line.trim_start().starts_with("DEBUG:")
}

#[cfg(test)]
mod tests_of_messages {
    use super::is_message;

    #[test]
    fn a_message_is_told_from_other_output() {
        assert!(is_message(
            "VUID-VkBuffer-size-00912(ERROR): Validation Error: [ … ]"
        ));
        assert!(is_message(
            "UNASSIGNED-x(WARN): Validation Warning: [ UNASSIGNED-x ]"
        ));
        assert!(!is_message("Validation Error"));
        assert!(!is_message("test a_message ... ok"));
    }
}
