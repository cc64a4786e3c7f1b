//! The steps of `ci`, the checks of a change beside the suite, and of `nightly`, which run a kernel
//! again after those or take long. The hosted workflow runs each step of `nightly` as a separate
//! job.

use pico_args::Arguments;

use crate::bench::weight;
use crate::checks::{
    adapters, app, chat, dx12, fuzz, hlsl, programs, ranks, reached, serve, shaders, terminal,
};
use crate::process::{Result, Shell};
use crate::steps::Check::{Call, Tests};
use crate::steps::{self, Step};
use crate::{browser, count, source, web};

/// Fast checks come first.
#[rustfmt::skip]
const CI: &[Step] = &[
    ("count", "the lines of code of each crate and of the tests, beside those of main",
        Call(count::check)),
    ("fmt", "the source is formatted",
        Call(source::fmt)),
    ("tidy", "the architecture and the style, without a build",
        Call(source::tidy)),
    ("clippy", "no warnings, with all features",
        Call(source::clippy)),
    ("clippy-examples", "the same for the workspace of examples/ (an MPI is installed)",
        Call(source::clippy_examples)),
    ("doc", "the documentation builds without warnings",
        Call(source::doc)),
    ("traces", "more recorded traces than the suite's, if there are: the same limits",
        Call(programs::traces)),
    ("formats", "PyTorch's own tool reads our snapshots, and finds the same totals",
        Call(programs::formats)),
    ("heap", "the memory's tests with a heap in the host's memory, also on the adapter",
        Tests(HEAP)),
    ("redis", "a Redis server as a tier: slow, full, changed, emptied, restarted (it is installed)",
        Call(programs::redis)),
    ("swiftshader", "the device's and every kernel's tests on SwiftShader",
        Call(adapters::swiftshader)),
    ("spirv", "a sample of the translated shaders is valid SPIR-V",
        Call(|sh| shaders::spirv(sh, 64))),
    ("fxc", "Microsoft's FXC compiles a sample of the kernels, fast enough (its DLL is downloaded)",
        Call(|sh| hlsl::check(sh, &hlsl::FXC, 16))),
    ("targets", "it compiles for Windows, macOS (without features) and the web",
        Call(source::targets)),
    ("examples", "the example programs run, learn, and keep within their memory",
        Call(programs::examples)),
    ("mpi", "ranks on this machine: sums and training to the bit, bad calls, ranks that die",
        Call(ranks::check)),
    ("chat", "a language model talks within its budget, and OpenAI's client talks with it",
        Call(chat::check)),
    ("top", "`lapidary top` in a terminal, beside a program that trains: numbers, keys, the \
        program's end",
        Call(terminal::check)),
];

#[rustfmt::skip]
const NIGHTLY: &[Step] = &[
    ("features", "each feature of the tools alone, the library without features, compressed \
        spilling",
        Call(source::features)),
    ("packages", "each published crate builds from its package alone",
        Call(source::packages)),
    ("size", "the core's first program and its tree of crates are small",
        Call(weight::check)),
    ("random", "long random runs against models",
        Tests(RANDOM)),
    ("pressure", "random programs under small budgets, with a fault at every call",
        Tests(PRESSURE)),
    ("tight", "the suite under small budgets, and with constant moves",
        Tests(TIGHT)),
    ("heap-whole", "the rest of the suite with a heap in the host's memory",
        Tests(&["LAPIDARY_HOST_HEAP=on --test device --test operations"])),
    ("pairs", "every tile in every pair of orders, a state file with every bit flipped",
        Tests(&["LAPIDARY_EVERY_PAIR=1 LAPIDARY_EVERY_BIT=1 --lib \
            -- ops::matmul::tests::chosen:: a_file_with_any_bit_flipped_is_refused"])),
    ("expressions", "hundreds of random programs, fused and not, and of gradients, on this adapter",
        Tests(&["LAPIDARY_PROGRAMS=300 --test operations -- grad::programs:: \
            fusion::graphs::on_an_adapter_ fusion::graphs::expressions_before_and_after_reductions",
            "LAPIDARY_PROGRAMS=600 --test operations \
            -- fusion::graphs::thousands_of_random_expressions"])),
    ("views", "all operations with all kinds of views, in pairs, on this adapter",
        Tests(&["LAPIDARY_VIEWS=all --test operations -- views::"])),
    ("races", "every kernel and variant, interpreted on every kind of device: no races, right \
        values",
        Call(reached::check)),
    ("texts", "100,000 mutated kernels, none of which may end the process",
        Tests(&["LAPIDARY_TEXTS=100000 --test device -- no_changed_text"])),
    ("limits", "1,000 devices with random limits: each computes, or the error names the limit",
        Tests(&["LAPIDARY_LIMITS=1000 --test device -- any_limits_are"])),
    ("fuzz", "ten minutes of libFuzzer for each reader of bytes, and for the allocator",
        Call(fuzz::all)),
    ("miri", "the allocator's tests, interpreted by Miri",
        Call(fuzz::miri)),
    ("validation", "the device's and every kernel's tests under Vulkan's validation layer",
        Call(adapters::validation)),
    ("swiftshader-whole", "the whole suite on SwiftShader",
        Call(adapters::swiftshader_whole)),
    ("mesa-whole", "the suite on the newest lavapipe: cooperative matrices, subgroups of 8, 4 and \
        16",
        Call(adapters::mesa_whole)),
    ("dx12", "every kernel's and the device's tests on DX12, under Wine",
        Call(dx12::check)),
    ("spirv-whole", "every translated shader is valid SPIR-V",
        Call(|sh| shaders::spirv(sh, usize::MAX))),
    ("fxc-whole", "Microsoft's FXC compiles every kernel, fast enough (its DLL is downloaded)",
        Call(|sh| hlsl::check(sh, &hlsl::FXC, usize::MAX))),
    ("dxc", "Microsoft's DXC compiles a sample of the kernels for shader model 6 (its DLL is \
        downloaded)",
        Call(|sh| hlsl::check(sh, &hlsl::DXC, 16))),
    ("objects", "examples/objects: tensors in an object store, in memory and in a folder",
        Call(programs::objects)),
    ("model", "a real encoder: PyTorch's vectors, small budgets, a search (the model is \
        downloaded)",
        Call(programs::model)),
    ("serve", "a server under load: batches, a flood beside a quiet tenant, lost devices",
        Call(serve::check)),
    ("serve-long", "ten minutes of load on a server: a flood, long texts, clients that go; nothing \
        grows",
        Call(serve::long)),
    ("app", "a program with its own device: without a window, and in one, with a pointer",
        Call(app::check)),
    ("mpich", "the tests of ranks with MPICH; `ci` has them with Open MPI",
        Call(ranks::mpich)),
    ("pictures", "the pictures of the documentation show this version",
        Call(browser::check_pictures)),
    ("page", "a snapshot's page in Chromium: a million events, pointer, keys, hostile names",
        Call(browser::check_page)),
    ("web", "the library in Chromium, on WebGPU: results as here, limits, a lost device",
        Call(web::check)),
];

/// A heap in the host's memory: the tests of memory and of files, and some on the adapter. These
/// evict to such a heap, under a small budget, although the adapter shares the host's memory. Half
/// of the random programs have it in the suite, and the allocator's model has no heaps.
const HEAP: &[&str] = &[
    "LAPIDARY_HOST_HEAP=on --test memory --test models \
        -- --skip alloc_model:: --skip pressure::programs:: \
        --skip random::random_ --skip random::training::",
    "LAPIDARY_HOST_HEAP=on LAPIDARY_BUDGET=512KiB --test device -- custom_kernels::",
];

/// The random runs, in the test profile, which checks every invariant: operations of the allocator
/// in each case, long random programs, and many trainings.
const RANDOM: &[&str] = &[
    "LAPIDARY_OPS=40000000 LAPIDARY_STEPS=30000 --test memory -- alloc_model:: random::random_",
    "LAPIDARY_PROGRAMS=300 --test memory -- random::training::",
];

/// The random programs, with faults at every call. With eight kinds of them, the steps are ten
/// million in all. Hand-overs pass memory from one share to another, where the search for
/// bytes of other shares goes on. The last has jobs with random peaks and priorities on one device.
///
/// A debug build would take more than an hour for the trainings, in which every call of the driver
/// fails in every way. So an optimized one runs them, with the assertions of a debug build.
const PRESSURE: &[&str] = &[
    "LAPIDARY_PROGRAMS=2500 --test memory -- pressure:: --skip pressure::training::",
    "LAPIDARY_PROGRAMS=2500 CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true --release --test memory \
        -- pressure::training::",
    "LAPIDARY_HAND_OVERS=100000 --test memory -- shares::isolation",
    "LAPIDARY_HAND_OVERS=100000 --test device -- isolation::kernels_with_wrong",
    "LAPIDARY_JOBS=10000 --test memory -- shares::many_jobs",
];

/// Modules under a budget, without the tests that need more memory. Then programs whose simulated
/// devices compact after every command. Model files also have a module `pressure`.
const TIGHT: &[&str] = &[
    "LAPIDARY_BUDGET=4MiB --test memory -- engine:: \
        --skip what_a_callback_holds_may_talk_to_the_device_when_it_goes",
    "LAPIDARY_BUDGET=600KiB --test memory -- random::",
    "LAPIDARY_BUDGET=512KiB --test operations -- ops_elementwise:: \
        --skip more_matrices_than_a_grid_has_places_are_transposed",
    "LAPIDARY_BUDGET=512KiB --test device -- custom_kernels::",
    "LAPIDARY_BUDGET=1MiB --test operations -- ops_matmul:: \
        --skip reductions_of_long_rows_are_whole --skip small_results_of_long_sums_are_right \
        --skip sums_longer_than_an_invocation_may_loop_are_whole \
        --skip a_quantized_layer_ends_as_one_of_floats_however_long_its_sums",
    "LAPIDARY_BUDGET=2MiB --test operations -- ops_reduce:: --skip sums_of_millions_are_accurate \
        --skip long_rows_are_merged_from_many_runs \
        --skip totals_wrap_and_nan_stays_from_where_it_is",
    "LAPIDARY_SIM_COMPACT=1 --test memory --test models \
        -- engine:: random:: pressure:: state:: shares::isolation --skip model::",
];

pub(crate) fn ci(sh: &Shell, args: Arguments) -> Result<()> {
    steps::run(sh, CI, args)
}

pub(crate) fn nightly(sh: &Shell, args: Arguments) -> Result<()> {
    steps::run(sh, NIGHTLY, args)
}

#[test]
fn the_hosted_workflow_has_a_job_for_each_step() {
    let workflow = crate::process::root().join(".github/workflows/nightly.yml");
    let workflow = std::fs::read_to_string(workflow).expect("the workflow is there");
    let lines = workflow.lines().map(str::trim);
    let behind = lines.skip_while(|line| *line != "step:").skip(1);
    let names: Vec<_> = behind.map_while(|line| line.strip_prefix("- ")).collect();
    assert_eq!(names, NIGHTLY.iter().map(|step| step.0).collect::<Vec<_>>());
}
