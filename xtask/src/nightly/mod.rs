//! `nightly`: the steps that run a kernel again after the suite and `ci`, or that take long. The
//! hosted workflow runs each step as a separate job.

mod app;
mod dx12;
mod fuzz;
mod lengths;
mod mesa;
mod model;
mod objects;
mod pressure;
mod reached;
mod serve;

use crate::bench::weight;
use crate::ci::{CI, adapters, hlsl, ranks, shaders, source};
use crate::process::Result;
use crate::steps::{Checks, Step};
use crate::{pictures, web};

pub(crate) const NIGHTLY: Checks = Checks {
    verb: "nightly",
    steps: STEPS,
};

const STEPS: &[Step] = &[
    Step {
        name: "features",
        about: "each feature of the tools alone, the library's tests alone, compressed spilling",
        run: source::features,
    },
    Step {
        name: "packages",
        about: "each published crate builds from its package alone",
        run: source::packages,
    },
    Step {
        name: "size",
        about: "the core's first program and its tree of crates are small",
        run: weight::check,
    },
    Step {
        name: "random",
        about: "long random runs against models",
        run: lengths::random,
    },
    Step {
        name: "pressure",
        about: "random programs under small budgets, with a fault at every call",
        run: pressure::programs,
    },
    Step {
        name: "tight",
        about: "the suite under small budgets, and with constant moves",
        run: pressure::tight,
    },
    Step {
        name: "pairs",
        about: "every tile in every pair of orders, a state file with every bit flipped",
        run: lengths::pairs,
    },
    Step {
        name: "expressions",
        about: "hundreds of random programs, fused and not, and of gradients, on this adapter",
        run: lengths::expressions,
    },
    Step {
        name: "views",
        about: "all operations with all kinds of views, in pairs, on this adapter",
        run: lengths::views,
    },
    Step {
        name: "races",
        about: "every kernel and variant, interpreted on every kind of device: no races, right values",
        run: lengths::races,
    },
    Step {
        name: "texts",
        about: "100,000 mutated kernels, none of which may end the process",
        run: lengths::texts,
    },
    Step {
        name: "limits",
        about: "1,000 devices with random limits: each computes, or the error names the limit",
        run: lengths::limits,
    },
    Step {
        name: "fuzz",
        about: "ten minutes of libFuzzer for each reader of bytes, and for the allocator",
        run: fuzz::all,
    },
    Step {
        name: "miri",
        about: "the allocator's tests, interpreted by Miri",
        run: fuzz::miri,
    },
    Step {
        name: "validation",
        about: "the device's and every kernel's tests under Vulkan's validation layer",
        run: adapters::validation,
    },
    Step {
        name: "swiftshader-whole",
        about: "the whole suite on SwiftShader",
        run: adapters::swiftshader_whole,
    },
    Step {
        name: "mesa-whole",
        about: "the suite on the newest lavapipe: cooperative matrices, subgroups of 8, 4 and 16",
        run: mesa::whole,
    },
    Step {
        name: "dx12",
        about: "every kernel's and the device's tests on DX12, under Wine",
        run: dx12::check,
    },
    Step {
        name: "spirv-whole",
        about: "every translated shader is valid SPIR-V",
        run: shaders::spirv_whole,
    },
    Step {
        name: "fxc-whole",
        about: "Microsoft's FXC compiles every kernel, fast enough (its DLL is downloaded)",
        run: hlsl::whole,
    },
    Step {
        name: "dxc",
        about: "Microsoft's DXC compiles a sample of the kernels for shader model 6 (its DLL is downloaded)",
        run: hlsl::sample_by_dxc,
    },
    Step {
        name: "objects",
        about: "examples/objects: tensors in an object store, in memory and in a folder",
        run: objects::check,
    },
    Step {
        name: "model",
        about: "a real encoder: PyTorch's vectors, small budgets, a search (the model is downloaded)",
        run: model::check,
    },
    Step {
        name: "serve-long",
        about: "ten minutes of load on a server: a flood, long texts, clients that go; nothing grows",
        run: serve::check,
    },
    Step {
        name: "app",
        about: "a program with its own device: without a window, and in one, with a pointer",
        run: app::check,
    },
    Step {
        name: "mpich",
        about: "the tests of ranks with MPICH; `ci` has them with Open MPI",
        run: ranks::mpich,
    },
    Step {
        name: "pictures",
        about: "the pictures of the documentation show this version",
        run: pictures::check,
    },
    Step {
        name: "page",
        about: "a snapshot's page in Chromium: a million events, pointer, keys, hostile names",
        run: pictures::page,
    },
    Step {
        name: "web",
        about: "the library in Chromium, on WebGPU: results as here, limits, a lost device",
        run: web::check,
    },
];

/// Runs the selected steps.
pub(crate) fn nightly(args: &[String]) -> Result {
    NIGHTLY.run(&CI, args)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::STEPS;
    use crate::process::root;

    /// The names of the workflow's matrix: lines `          - name` behind `step:`.
    fn matrix(workflow: &str) -> Vec<&str> {
        let lines = workflow.lines().map(str::trim);
        lines
            .skip_while(|line| *line != "step:")
            .skip(1)
            .map_while(|line| line.strip_prefix("- "))
            .collect()
    }

    #[test]
    fn the_hosted_workflow_has_a_job_for_each_step() {
        let workflow = root().join(".github/workflows/nightly.yml");
        let workflow = fs::read_to_string(workflow).expect("the workflow is there");
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(matrix(&workflow), names);
    }

    #[test]
    fn a_step_that_the_workflow_lacks_is_missed() {
        let workflow =
            "strategy:\n  matrix:\n    step:\n      - a\n      - b\n    steps:\n      - uses: c\n";
        assert_eq!(matrix(workflow), ["a", "b"]);
        assert_eq!(matrix("jobs:"), [""; 0]);
    }
}
