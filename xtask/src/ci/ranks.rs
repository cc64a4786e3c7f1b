//! `lapidary-mpi`, which needs an MPI and libclang: lints, documentation, and tests that start
//! ranks by `mpirun` on this machine.

use std::env;

use super::source::of_examples;
use crate::apt;
use crate::driver::cargo_with_gpu;
use crate::model::manifest;
use crate::process::{Result, run, target_dir};

const PACKAGES: &[&str] = &["openmpi-bin", "libopenmpi-dev", "libclang-dev"];
const CRATE: [&str; 2] = ["--package", "lapidary-mpi"];

/// Installs what the crate needs to be built, where this can be done. Elsewhere it may be there.
pub(crate) fn install() -> Result {
    match apt::is_here() {
        true => apt::install(PACKAGES),
        false => Ok(()),
    }
}

pub(crate) fn check() -> Result<String> {
    install()?;
    let mut clippy = of_examples(&["clippy", "--all-targets"]);
    run(clippy.args(CRATE).args(["--", "-D", "warnings"]))?;
    let mut doc = of_examples(&["doc", "--no-deps"]);
    run(doc.args(CRATE).env("RUSTDOCFLAGS", "-D warnings"))?;
    let mut test = cargo_with_gpu()?;
    test.args(["test", "--manifest-path"]).arg(manifest());
    test.args(CRATE).env("CARGO_TARGET_DIR", target_dir());
    if env::var_os("GALLIVM_PERF").is_none() {
        // As in the suite: most of the time is lavapipe's compiler.
        test.env("GALLIVM_PERF", "nopt");
    }
    run(&mut test)?;
    Ok("sums, training, bad calls and dead ranks".into())
}
