//! `ci`: the checks of a change beside the suite. Each kernel runs once more here, on a second
//! adapter. Steps that run a kernel again or take long are in `nightly`.

pub(crate) mod adapters;
mod examples;
mod formats;
pub(crate) mod hlsl;
pub(crate) mod ranks;
mod serve;
pub(crate) mod shaders;
pub(crate) mod source;
mod targets;
mod terminal;
mod traces;

use pico_args::Arguments;

use crate::apt;
use crate::count;
use crate::process::{Result, Shell};
use crate::steps::{self, PASSED, Step};
use crate::suite::tests;

/// Fast checks come first.
#[rustfmt::skip]
const STEPS: &[Step] = &[
    ("count", "the lines of code of each crate and of the tests, beside those of main",
        count::check),
    ("fmt", "the source is formatted",
        source::fmt),
    ("tidy", "the architecture and the style, without a build",
        source::tidy),
    ("clippy", "no warnings, with all features",
        source::clippy),
    ("clippy-examples", "the same for the programs of examples/, a workspace of their own",
        source::clippy_examples),
    ("doc", "the documentation builds without warnings",
        source::doc),
    ("traces", "recorded traces: limits of reserved, moved and evicted bytes and of buffers",
        traces::check),
    ("formats", "PyTorch's own tool reads our snapshots, and finds the same totals",
        formats::check),
    ("heap", "the memory's tests with a heap in the host's memory, also on the adapter",
        heap),
    ("redis", "a Redis server as a tier: slow, full, changed, emptied, restarted (it is installed)",
        redis),
    ("swiftshader", "the device's and every kernel's tests on SwiftShader",
        adapters::swiftshader),
    ("spirv", "a sample of the translated shaders is valid SPIR-V",
        shaders::spirv),
    ("fxc", "Microsoft's FXC compiles a sample of the kernels, fast enough (its DLL is downloaded)",
        hlsl::sample),
    ("targets", "it compiles for Windows, macOS (each crate alone) and the web",
        targets::check),
    ("examples", "the example programs run, learn, and keep within their memory",
        examples::check),
    ("mpi", "ranks on this machine: sums and training to the bit, bad calls, ranks that die",
        ranks::check),
    ("serve", "a server under load: batches, a flood beside a quiet tenant, lost devices (the \
        model is downloaded)",
        serve::check),
    ("top", "`lapidary top` in a terminal, beside a program that trains: numbers, keys, the \
        program's end",
        terminal::check),
];

/// Runs the selected steps.
pub(crate) fn ci(sh: &Shell, args: Arguments) -> Result<()> {
    steps::run(sh, STEPS, args)
}

/// A heap in the host's memory: the tests of memory, and some on the adapter. These evict to such a
/// heap, under a small budget, although the adapter shares the host's memory.
fn heap(sh: &Shell) -> Result<String> {
    let heap = "LAPIDARY_HOST_HEAP=on";
    tests(sh, &format!("{heap} --test memory"))?.run()?;
    let tight = format!("{heap} LAPIDARY_BUDGET=512KiB --test device -- custom_kernels::");
    tests(sh, &tight)?.run()?;
    Ok(PASSED)
}

/// A Redis server as a tier of evicted tensors. The tests start servers of their own, and the
/// client changes values behind the engine's back. The suite leaves them out.
fn redis(sh: &Shell) -> Result<String> {
    apt::install(sh, &["redis-server", "redis-tools"])?;
    tests(sh, "--test memory -- stores::redis:: --ignored")?.run()?;
    Ok(PASSED)
}
