//! `ci`: the checks of a change beside the suite. Each kernel runs once more here, on a second
//! adapter. Steps that run a kernel again or take long are in `nightly`.

pub(crate) mod adapters;
pub(crate) mod examples;
mod formats;
mod heap;
pub(crate) mod hlsl;
mod messages;
pub(crate) mod ranks;
pub(crate) mod redis;
mod serve;
pub(crate) mod shaders;
pub(crate) mod source;
pub(crate) mod targets;
mod terminal;
mod traces;

use crate::nightly::NIGHTLY;
use crate::process::Result;
use crate::steps::{Checks, Step};

pub(crate) const CI: Checks = Checks {
    verb: "ci",
    steps: STEPS,
};

/// Fast checks come first.
const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        about: "the source is formatted",
        run: source::fmt,
    },
    Step {
        name: "tidy",
        about: "the architecture and the style, without a build",
        run: source::tidy,
    },
    Step {
        name: "clippy",
        about: "no warnings, with all features",
        run: source::clippy,
    },
    Step {
        name: "clippy-examples",
        about: "the same for the programs of examples/, a workspace of their own",
        run: source::clippy_examples,
    },
    Step {
        name: "doc",
        about: "the documentation builds without warnings",
        run: source::doc,
    },
    Step {
        name: "traces",
        about: "recorded traces: limits of reserved, moved and evicted bytes and of buffers",
        run: traces::check,
    },
    Step {
        name: "formats",
        about: "PyTorch's own tool reads our snapshots, and finds the same totals",
        run: formats::memory_viz,
    },
    Step {
        name: "heap",
        about: "the memory's tests with a heap in the host's memory, also on the adapter",
        run: heap::check,
    },
    Step {
        name: "redis",
        about: "a Redis server as a tier: slow, full, changed, emptied, restarted (it is installed)",
        run: redis::check,
    },
    Step {
        name: "swiftshader",
        about: "the device's and every kernel's tests on SwiftShader",
        run: adapters::swiftshader,
    },
    Step {
        name: "spirv",
        about: "a sample of the translated shaders is valid SPIR-V",
        run: shaders::spirv,
    },
    Step {
        name: "fxc",
        about: "Microsoft's FXC compiles a sample of the kernels, fast enough (its DLL is downloaded)",
        run: hlsl::sample,
    },
    Step {
        name: "targets",
        about: "it compiles for Windows, macOS (each crate alone) and the web",
        run: targets::check,
    },
    Step {
        name: "examples",
        about: "the example programs run, learn, and keep within their memory",
        run: examples::run_all,
    },
    Step {
        name: "mpi",
        about: "ranks on this machine: sums and training to the bit, bad calls, ranks that die",
        run: ranks::check,
    },
    Step {
        name: "serve",
        about: "a server under load: batches, a flood beside a quiet tenant, lost devices (the model is downloaded)",
        run: serve::check,
    },
    Step {
        name: "top",
        about: "`lapidary top` in a terminal, beside a program that trains: numbers, keys, the program's end",
        run: terminal::top,
    },
];

/// Runs the selected steps.
pub(crate) fn ci(args: &[String]) -> Result {
    CI.run(&NIGHTLY, args)
}
