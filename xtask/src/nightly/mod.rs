//! `nightly`: the steps that run a kernel again after the suite and `ci`, or that take long. The
//! hosted workflow runs each step as a separate job.

mod app;
mod dx12;
mod fuzz;
mod lengths;
mod mesa;
mod model;
mod reached;
mod serve;

use pico_args::Arguments;

use crate::bench::weight;
use crate::browser::{check_page, check_pictures};
use crate::ci::{adapters, hlsl, ranks, shaders, source};
use crate::process::{Result, Shell};
use crate::steps::{self, Step};
use crate::web;

#[rustfmt::skip]
const STEPS: &[Step] = &[
    ("features", "each feature of the tools alone, the library without features, compressed \
        spilling",
        source::features),
    ("packages", "each published crate builds from its package alone",
        source::packages),
    ("size", "the core's first program and its tree of crates are small",
        weight::check),
    ("random", "long random runs against models",
        |sh| lengths::run(sh, lengths::RANDOM)),
    ("pressure", "random programs under small budgets, with a fault at every call",
        |sh| lengths::run(sh, lengths::PRESSURE)),
    ("tight", "the suite under small budgets, and with constant moves",
        |sh| lengths::run(sh, lengths::TIGHT)),
    ("pairs", "every tile in every pair of orders, a state file with every bit flipped",
        |sh| lengths::run(sh, lengths::PAIRS)),
    ("expressions", "hundreds of random programs, fused and not, and of gradients, on this adapter",
        |sh| lengths::run(sh, lengths::EXPRESSIONS)),
    ("views", "all operations with all kinds of views, in pairs, on this adapter",
        |sh| lengths::run(sh, lengths::VIEWS)),
    ("races", "every kernel and variant, interpreted on every kind of device: no races, right \
        values",
        reached::check),
    ("texts", "100,000 mutated kernels, none of which may end the process",
        |sh| lengths::run(sh, lengths::TEXTS)),
    ("limits", "1,000 devices with random limits: each computes, or the error names the limit",
        |sh| lengths::run(sh, lengths::LIMITS)),
    ("fuzz", "ten minutes of libFuzzer for each reader of bytes, and for the allocator",
        fuzz::all),
    ("miri", "the allocator's tests, interpreted by Miri",
        fuzz::miri),
    ("validation", "the device's and every kernel's tests under Vulkan's validation layer",
        adapters::validation),
    ("swiftshader-whole", "the whole suite on SwiftShader",
        adapters::swiftshader_whole),
    ("mesa-whole", "the suite on the newest lavapipe: cooperative matrices, subgroups of 8, 4 and \
        16",
        mesa::whole),
    ("dx12", "every kernel's and the device's tests on DX12, under Wine",
        dx12::check),
    ("spirv-whole", "every translated shader is valid SPIR-V",
        shaders::spirv_whole),
    ("fxc-whole", "Microsoft's FXC compiles every kernel, fast enough (its DLL is downloaded)",
        hlsl::whole),
    ("dxc", "Microsoft's DXC compiles a sample of the kernels for shader model 6 (its DLL is \
        downloaded)",
        hlsl::sample_by_dxc),
    ("objects", "examples/objects: tensors in an object store, in memory and in a folder",
        app::objects),
    ("model", "a real encoder: PyTorch's vectors, small budgets, a search (the model is \
        downloaded)",
        model::check),
    ("serve-long", "ten minutes of load on a server: a flood, long texts, clients that go; nothing \
        grows",
        serve::check),
    ("app", "a program with its own device: without a window, and in one, with a pointer",
        app::check),
    ("mpich", "the tests of ranks with MPICH; `ci` has them with Open MPI",
        ranks::mpich),
    ("pictures", "the pictures of the documentation show this version",
        check_pictures),
    ("page", "a snapshot's page in Chromium: a million events, pointer, keys, hostile names",
        check_page),
    ("web", "the library in Chromium, on WebGPU: results as here, limits, a lost device",
        web::check),
];

/// Runs the selected steps.
pub(crate) fn nightly(sh: &Shell, args: Arguments) -> Result<()> {
    steps::run(sh, STEPS, args)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::STEPS;
    use crate::process::root;

    #[test]
    fn the_hosted_workflow_has_a_job_for_each_step() {
        let workflow = root().join(".github/workflows/nightly.yml");
        let workflow = fs::read_to_string(workflow).expect("the workflow is there");
        let lines = workflow.lines().map(str::trim);
        let behind = lines.skip_while(|line| *line != "step:").skip(1);
        let names: Vec<_> = behind.map_while(|line| line.strip_prefix("- ")).collect();
        assert_eq!(names, STEPS.iter().map(|step| step.0).collect::<Vec<_>>());
    }
}
