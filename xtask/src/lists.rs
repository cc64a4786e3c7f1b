//! The steps of `ci`, the checks of a change beside the suite, and of `nightly`, which run a kernel
//! again after those or take long. The hosted workflow runs each step of `nightly` as a separate
//! job.

use pico_args::Arguments;

use crate::bench::weight;
use crate::checks::{
    adapters, app, chat, dx12, fuzz, hlsl, programs, reached, serve, shaders, terminal,
};
use crate::process::{Result, Shell};
use crate::steps::Check::{Call, Run};
use crate::steps::{self, Step};
use crate::{browser, count, web};

/// What `lapidary-mpi` needs to be built.
pub(crate) const MPI: &str = "install openmpi-bin libopenmpi-dev libclang-dev";

/// Fast checks come first.
#[rustfmt::skip]
const CI: &[Step] = &[
    ("count", "the lines of code of each crate and of the tests, beside those of main",
        Call(count::check)),
    ("fmt", "the source is formatted",
        Run(&["cargo fmt --all --check", "cargo fmt --all --check {examples}"])),
    ("tidy", "the architecture and the style, without a build",
        Run(&["CARGO_MANIFEST_DIR={root} rustc --edition 2024 --test tests/tidy.rs --out-dir {target}/tidy",
            "{target}/tidy/tidy"])),
    ("clippy", "no warnings, with all features",
        Run(&["cargo clippy --workspace --all-targets --all-features -- -D warnings"])),
    ("clippy-examples", "the same for the workspace of examples/ (an MPI is installed)",
        Run(&[MPI, "cargo clippy {examples} --workspace --all-targets -- -D warnings"])),
    ("doc", "the documentation builds without warnings",
        Run(&["RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --all-features", MPI,
            "RUSTDOCFLAGS=-Dwarnings cargo doc {examples} --workspace --lib --no-deps"])),
    ("traces", "more recorded traces than the suite's, if there are: the same limits",
        Call(programs::traces)),
    ("formats", "PyTorch's own tool reads our snapshots, and finds the same totals",
        Call(programs::formats)),
    ("heap", "the memory's tests with a heap in the host's memory, also on the adapter",
        Run(HEAP)),
    ("redis", "a Redis server as a tier: slow, full, changed, emptied, restarted (it is installed)",
        Run(&["install redis-server redis-tools", "tests --test memory -- stores::redis:: --ignored"])),
    ("swiftshader", "the device's and every kernel's tests on SwiftShader",
        Call(adapters::swiftshader)),
    ("spirv", "a sample of the translated shaders is valid SPIR-V",
        Call(|sh| shaders::spirv(sh, 64))),
    ("fxc", "Microsoft's FXC compiles a sample of the kernels, fast enough (its DLL is downloaded)",
        Call(|sh| hlsl::check(sh, &hlsl::FXC, 16))),
    ("targets", "it compiles for Windows, macOS (without features) and the web",
        Run(TARGETS)),
    ("examples", "the example programs run, learn, and keep within their memory",
        Call(programs::examples)),
    ("mpi", "ranks on this machine: sums and training to the bit, bad calls, ranks that die",
        Run(RANKS)),
    ("chat", "a language model talks within its budget, and OpenAI's client talks with it",
        Call(chat::check)),
    ("top", "`lapidary top` in a terminal, beside a program that trains: numbers, keys, its end",
        Call(terminal::check)),
];

#[rustfmt::skip]
const NIGHTLY: &[Step] = &[
    ("features", "each feature of the tools alone, the library without any, compressed spilling",
        Run(FEATURES)),
    ("packages", "each published crate builds from its package alone",
        Run(PACKAGES)),
    ("size", "the core's first program and its tree of crates are small",
        Call(weight::check)),
    ("random", "long random runs against models",
        Run(RANDOM)),
    ("pressure", "random programs under small budgets, with a fault at every call",
        Run(PRESSURE)),
    ("tight", "the suite under small budgets, and with constant moves",
        Run(TIGHT)),
    ("heap-whole", "the rest of the suite with a heap in the host's memory",
        Run(&["LAPIDARY_HOST_HEAP=on long --test device --test operations"])),
    ("pairs", "every tile in every pair of orders, a state file with every bit flipped",
        Run(&["LAPIDARY_EVERY_PAIR=1 LAPIDARY_EVERY_BIT=1 long --lib \
            -- ops::matmul::tests::chosen:: a_file_with_any_bit_flipped_is_refused"])),
    ("expressions", "hundreds of random programs, fused and not, and of gradients, on this adapter",
        Run(&["LAPIDARY_PROGRAMS=300 long --test operations -- grad::programs:: \
            fusion::graphs::on_an_adapter_ fusion::graphs::expressions_before_and_after_reductions",
            "LAPIDARY_PROGRAMS=600 long --test operations \
            -- fusion::graphs::thousands_of_random_expressions"])),
    ("views", "all operations with all kinds of views, in pairs, on this adapter",
        Run(&["LAPIDARY_VIEWS=all long --test operations -- views::"])),
    ("races", "every kernel, interpreted on every kind of device: no races, right values",
        Call(reached::check)),
    ("texts", "100,000 mutated kernels, none of which may end the process",
        Run(&["LAPIDARY_TEXTS=100000 long --test device -- no_changed_text"])),
    ("limits", "1,000 devices with random limits: each computes, or the error names the limit",
        Run(&["LAPIDARY_LIMITS=1000 long --test device -- any_limits_are"])),
    ("fuzz", "ten minutes of libFuzzer for each reader of bytes, and for the allocator",
        Call(fuzz::all)),
    ("miri", "the allocator's tests, interpreted by Miri",
        Call(fuzz::miri)),
    ("validation", "the device's and every kernel's tests under Vulkan's validation layer",
        Call(adapters::validation)),
    ("swiftshader-whole", "the whole suite on SwiftShader",
        Call(adapters::swiftshader_whole)),
    ("mesa-whole", "the suite on the newest lavapipe: cooperative matrices, subgroups of 4 to 16",
        Call(adapters::mesa_whole)),
    ("dx12", "every kernel's and the device's tests on DX12, under Wine",
        Call(dx12::check)),
    ("spirv-whole", "every translated shader is valid SPIR-V",
        Call(|sh| shaders::spirv(sh, usize::MAX))),
    ("fxc-whole", "Microsoft's FXC compiles every kernel, fast enough (its DLL is downloaded)",
        Call(|sh| hlsl::check(sh, &hlsl::FXC, usize::MAX))),
    ("dxc", "Microsoft's DXC compiles a sample of the kernels (its DLL is downloaded)",
        Call(|sh| hlsl::check(sh, &hlsl::DXC, 16))),
    ("objects", "examples/objects: tensors in an object store, in memory and in a folder",
        Call(programs::objects)),
    ("model", "a real encoder: PyTorch's vectors, small budgets, a search (it is downloaded)",
        Call(programs::model)),
    ("serve", "a server under load: batches, a flood beside a quiet tenant, lost devices",
        Call(serve::check)),
    ("serve-long", "ten minutes of load on a server: a flood, clients that go; nothing grows",
        Call(serve::long)),
    ("app", "a program with its own device: without a window, and in one, with a pointer",
        Call(app::check)),
    ("mpich", "the tests of ranks with MPICH; `ci` has them with Open MPI",
        Run(MPICH)),
    ("pictures", "the pictures of the documentation show this version",
        Call(browser::check_pictures)),
    ("page", "a snapshot's page in Chromium: a million events, pointer, keys, hostile names",
        Call(browser::check_page)),
    ("web", "the library in Chromium, on WebGPU: results as here, limits, a lost device",
        Call(web::check)),
];

/// The library for Windows, macOS and the web, where no program of ours has a terminal. Clippy
/// would complain there of each `Arc`, because wgpu's types are not `Send`. The two for macOS are
/// alone and without features, as most users build them; any one target would do for this, and
/// `packages` builds every crate so.
const TARGETS: &[&str] = &[
    "target wasm32-unknown-unknown",
    "cargo check --target wasm32-unknown-unknown --package lapidary --lib --features \
        lapidary/sim,lapidary/snapshot,lapidary/tracing,lapidary/metrics,lapidary/model-files,lapidary/ndarray",
    "target x86_64-pc-windows-msvc",
    "cargo clippy --target x86_64-pc-windows-msvc --package lapidary --lib --features \
        lapidary/sim,lapidary/snapshot,lapidary/tracing,lapidary/metrics,lapidary/model-files,lapidary/ndarray \
        --package lapidary-tools --bin lapidary --features lapidary/redis -- -D warnings",
    "target aarch64-apple-darwin",
    "cargo clippy --target aarch64-apple-darwin --package lapidary-core -- -D warnings",
    "cargo clippy --target aarch64-apple-darwin --package lapidary -- -D warnings",
];

/// Combinations of features that `clippy` and `targets` do not cover: the tools in an app, the
/// library without what examples and tests enable, and spilled bytes that are compressed.
const FEATURES: &[&str] = &[
    "cargo clippy --lib --package lapidary-tools --no-default-features -- -D warnings",
    "cargo clippy --lib --package lapidary-tools --no-default-features --features monitor -- -D warnings",
    "cargo clippy --lib --package lapidary-tools --no-default-features --features serve -- -D warnings",
    "cargo clippy --lib --package lapidary-tools --no-default-features --features replay -- -D warnings",
    "cargo clippy --lib --package lapidary -- -D warnings",
    "cargo clippy --lib --package lapidary --features model-files -- -D warnings",
    "cargo test --lib --package lapidary-core --features lz4 spill",
];

/// The published crates, of which the registry has none yet.
const PACKAGES: &[&str] = &[
    "cargo package --allow-dirty --package lapidary-alloc --package wgsl-interpreter \
        --package lapidary-core --package lapidary --package lapidary-lm --package lapidary-tools",
    MPI,
    "cargo package {examples} --allow-dirty --package lapidary-egui --package lapidary-mpi \
        --config patch.crates-io.lapidary-alloc.path='{root}/crates/alloc' \
        --config patch.crates-io.wgsl-interpreter.path='{root}/crates/wgsl-interpreter' \
        --config patch.crates-io.lapidary-core.path='{root}/crates/core' \
        --config patch.crates-io.lapidary.path='{root}' \
        --config patch.crates-io.lapidary-lm.path='{root}/crates/lm' \
        --config patch.crates-io.lapidary-tools.path='{root}/crates/tools'",
];

/// One of the tests starts the example.
const RANKS: &[&str] = &[
    MPI,
    "gpu",
    "cargo build {examples} --package lapidary-mpi --example train",
    "GALLIVM_PERF=nopt cargo test {examples} --package lapidary-mpi --lib --tests",
    "cargo test {examples} --package lapidary-mpi --doc",
];

/// The same with the other MPI, in a folder of its own: cargo would not see that the bindings
/// are of the first one.
const MPICH: &[&str] = &[
    "install mpich libmpich-dev libclang-dev",
    "gpu",
    "CARGO_TARGET_DIR={target}/mpich MPICC=mpicc.mpich \
        cargo build {examples} --package lapidary-mpi --example train",
    "CARGO_TARGET_DIR={target}/mpich MPICC=mpicc.mpich LAPIDARY_MPIRUN=mpirun.mpich \
        GALLIVM_PERF=nopt cargo test {examples} --package lapidary-mpi --lib --tests",
];

/// A heap in the host's memory: the tests of memory and of files, and some on the adapter. These
/// evict to such a heap, under a small budget, although the adapter shares the host's memory. Half
/// of the random programs have it in the suite, and the allocator's model has no heaps.
const HEAP: &[&str] = &[
    "LAPIDARY_HOST_HEAP=on long --test memory --test models \
        -- !alloc_model:: !pressure::programs:: \
        !random::random_ !random::training::",
    "LAPIDARY_HOST_HEAP=on LAPIDARY_BUDGET=512KiB long --test device -- custom_kernels::",
];

/// The random runs, in the test profile, which checks every invariant: operations of the allocator
/// in each case, long random programs, and many trainings.
const RANDOM: &[&str] = &[
    "LAPIDARY_OPS=40000000 LAPIDARY_STEPS=30000 long --test memory -- alloc_model:: random::random_",
    "LAPIDARY_PROGRAMS=300 long --test memory -- random::training::",
];

/// The random programs, with faults at every call. With eight kinds of them, the steps are ten
/// million in all. Hand-overs pass memory from one share to another, where the search for
/// bytes of other shares goes on. The last has jobs with random peaks and priorities on one device.
///
/// A debug build would take more than an hour for the trainings, in which every call of the driver
/// fails in every way. So an optimized one runs them, with the assertions of a debug build.
const PRESSURE: &[&str] = &[
    "LAPIDARY_PROGRAMS=2500 long --test memory -- pressure:: !pressure::training::",
    "LAPIDARY_PROGRAMS=2500 CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true long --release --test memory \
        -- pressure::training::",
    "LAPIDARY_HAND_OVERS=100000 long --test memory -- shares::isolation",
    "LAPIDARY_HAND_OVERS=100000 long --test device -- isolation::kernels_with_wrong",
    "LAPIDARY_JOBS=10000 long --test memory -- shares::many_jobs",
];

/// Modules under a budget, without the tests that need more memory. Then programs whose simulated
/// devices compact after every command. Model files also have a module `pressure`.
const TIGHT: &[&str] = &[
    "LAPIDARY_BUDGET=4MiB long --test memory -- engine:: \
        !what_a_callback_holds_may_talk_to_the_device_when_it_goes",
    "LAPIDARY_BUDGET=600KiB long --test memory -- random::",
    "LAPIDARY_BUDGET=512KiB long --test operations -- ops_elementwise:: \
        !more_matrices_than_a_grid_has_places_are_transposed",
    "LAPIDARY_BUDGET=512KiB long --test device -- custom_kernels::",
    "LAPIDARY_BUDGET=1MiB long --test operations -- ops_matmul:: \
        !reductions_of_long_rows_are_whole !small_results_of_long_sums_are_right \
        !sums_longer_than_an_invocation_may_loop_are_whole \
        !a_quantized_layer_ends_as_one_of_floats_however_long_its_sums",
    "LAPIDARY_BUDGET=2MiB long --test operations -- ops_reduce:: !sums_of_millions_are_accurate \
        !long_rows_are_merged_from_many_runs \
        !totals_wrap_and_nan_stays_from_where_it_is",
    "LAPIDARY_SIM_COMPACT=1 long --test memory --test models \
        -- engine:: random:: pressure:: state:: shares::isolation !model::",
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
