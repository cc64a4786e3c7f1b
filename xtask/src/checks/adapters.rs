//! The core tests again: on a second software adapter with other limits, on the newest lavapipe,
//! and under Vulkan's validation layer, which detects misuse that a tolerant driver accepts. Tests
//! on the simulated device or of the host's side are left out: their results would be the same.

use std::env::consts::ARCH;

use crate::command::{self, command};
use crate::driver;
use crate::packages;
use crate::process::{PASSED, Result, Shell, ensure, target_dir};
use crate::trixie;

/// The core tests. Skipped modules choose kernels or run each kernel again.
const CORE: &str = "tests --test device --test operations -- !races:: !views::";

/// Tests that a second adapter adds little to: its compiler, limits and subgroups meet the same
/// kernels in the others. Those compile every built-in kernel there, every tile of a product, and
/// 94 % of the texts. `swiftshader-whole` runs all tests. These are the host's work, and that of
/// the simulation, ...
const NOT_AGAIN: &str = "\
    !dry_run:: !fusion::counts:: !fusion::graphs::expressions_before !fusion::graphs::interpreted \
    !fusion::graphs::little !fusion::graphs::long !fusion::graphs::operands \
    !fusion::graphs::thousands !fusion::interpreted:: !grad::budgets:: !grad::checkpoints:: \
    !grad::custom:: !grad::every:: !grad::kept::a_value_that_is_cheap \
    !grad::masks::so_they_are_by_the_reference !grad::optimum:: !grad::saved:: !grad::tape:: \
    !holders:: !limits:: !loader:: !optim::launches:: !optim::refuses:: !optim::resumes:: !parts:: \
    !pressure:: !several:: !simulated";

/// ... programs of operations, whose kernels run one by one in other tests, ...
const NOT_IN_PROGRAMS: &str = "\
    !differences !grad::composed:: !gradients_of_gradients !have_gradients !torch::folds \
    !torch::gradients !torch::indexing !torch::layers !torch::losses !torch::reductions \
    !torch::shapes !torch::slopes";

/// ... and sizes and views that choose no other kernel, or change types of operands alone.
const NOT_IN_SIZES: &str = "\
    !a_large_tensor_is_folded !fusion_changes_neither !large::the_rows !long_rows !long_sums \
    !narrow_weights_never !quantized::batches !repetitions_and_rolls !transposed_operands \
    !very_many_that_name !views_of_a_large !what_is_padded !what_names_one";

/// The library's own tests that request variants which an adapter would not get. Tests of tiles are
/// left to the suite and to long runs, because a software adapter compiles them for minutes. Texts
/// of kernels are the same on every adapter.
const FORCED: &str = "tests --lib -- ops::attention:: ops::conv:: ops::matmul::along_k:: \
    ops::matmul::tests::chosen::operands_of_half ops::matmul::tests::every_variant_ends \
    ops::matmul::tests::scaled:: ops::reduce:: ops::scan:: !valid_shader";

const LAYER: &str = "VK_LAYER_KHRONOS_validation";

/// The layer ends a test at its first message, which is then in the test's output.
const SETTINGS: &str = "khronos_validation.report_flags = error,warn
khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG,VK_DBG_LAYER_ACTION_BREAK
khronos_validation.log_filename = stdout
";

/// The core tests on SwiftShader only, with the variants that it gets. The whole suite, which
/// forces all variants, runs on it in `nightly`. The suite has run them on the simulation and with
/// small bindings.
pub(crate) fn swiftshader(sh: &Shell) -> Result<String> {
    let _adapter = sh.push_env("LAPIDARY_TEST_DEVICES", "adapter");
    let tests = [CORE, NOT_AGAIN, NOT_IN_PROGRAMS, NOT_IN_SIZES].join(" ");
    on_swiftshader(sh, &tests)
}

/// The whole suite on SwiftShader only.
pub(crate) fn swiftshader_whole(sh: &Shell) -> Result<String> {
    on_swiftshader(sh, "tests")
}

fn on_swiftshader(sh: &Shell, tests: &str) -> Result<String> {
    let description = driver::swiftshader(sh)?;
    let _newer = sh.push_env("VK_DRIVER_FILES", &description);
    let _older = sh.push_env("VK_ICD_FILENAMES", &description);
    // Most of the time is its compiler's. With each kernel glibc would return memory to the system
    // and ask for it again, which is a tenth or more of the CPU time.
    let variables = "LAPIDARY_ADAPTER=swiftshader MALLOC_TOP_PAD_=67108864 \
         MALLOC_TRIM_THRESHOLD_=2147483648";
    command::run(sh, &format!("{variables} {tests}"))?;
    Ok(PASSED)
}

/// The core tests under the validation layer. Any message fails its test.
pub(crate) fn validation(sh: &Shell) -> Result<String> {
    packages::install(sh, "vulkan-validationlayers")?;
    let settings = target_dir().join("vk_layer_settings.txt");
    sh.write_file(&settings, SETTINGS)?;
    let _settings = sh.push_env("VK_LAYER_SETTINGS_PATH", &settings);
    let _layer = sh.push_env("VK_INSTANCE_LAYERS", LAYER);
    // There is no debug info in the shaders: it names WGSL as the source language, which older
    // layers do not know, and they would stop reading.
    let _debug = sh.push_env("WGPU_DEBUG", "0");
    let info = command(sh, "cargo run --quiet {lapidary} info")?;
    let info = info.env("VK_LOADER_DEBUG", "layer");
    let told = String::from_utf8(info.output()?.stderr)?;
    let is_loaded = |line: &str| line.contains("Insert instance layer") && line.contains(LAYER);
    let is_loaded = told.lines().any(is_loaded);
    ensure!(is_loaded, "{LAYER} is not loaded: is it installed?");
    command::run(sh, CORE)?;
    command::run(sh, FORCED)?;
    Ok("no messages".into())
}

/// The whole suite on the newest lavapipe, which has cooperative matrices and a memory budget, with
/// each size of a subgroup, whose lanes have 32 bits each. The tests of `xtask` are left out,
/// because they start programs, which the folder lacks.
pub(crate) fn mesa_whole(sh: &Shell) -> Result<String> {
    let arch = ARCH.to_uppercase();
    let variable = format!("CARGO_TARGET_{arch}_UNKNOWN_LINUX_GNU_RUNNER");
    let runner = trixie::runner(sh, "on-mesa.sh", "")?;
    for bits in ["256", "128", "512"] {
        let tests = command(sh, "tests --exclude xtask")?.env(&variable, &runner);
        // Drivers that these variables name are not in the folder.
        let tests = tests.env_remove("VK_DRIVER_FILES");
        let tests = tests.env_remove("VK_ICD_FILENAMES");
        tests.env("LP_NATIVE_VECTOR_WIDTH", bits).run()?;
    }
    Ok("the suite with subgroups of 8, 4 and 16".into())
}
