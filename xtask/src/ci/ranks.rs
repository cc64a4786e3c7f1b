//! `lapidary-mpi`, which needs an MPI and libclang: lints, documentation, and tests that start
//! ranks by `mpirun` on this machine.

use std::env;

use super::source::of_examples;
use crate::apt;
use crate::driver::cargo_with_gpu;
use crate::model::manifest;
use crate::process::{Result, run, target_dir};

const PACKAGES: &[&str] = &["openmpi-bin", "libopenmpi-dev", "libclang-dev"];
const MPICH_PACKAGES: &[&str] = &["mpich", "libmpich-dev", "libclang-dev"];
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
    test(&[])?;
    run(of_examples(&["test", "--doc"]).args(CRATE))?;
    Ok("sums, training, bad calls and dead ranks".into())
}

/// The tests with the other MPI.
pub(crate) fn mpich() -> Result<String> {
    if apt::is_here() {
        apt::install(MPICH_PACKAGES)?;
    }
    // The bindings are built for one MPI, and cargo does not see that the other is wanted.
    forget_bindings()?;
    let tested = test(&[
        ("MPICC", "mpicc.mpich"),
        ("LAPIDARY_MPIRUN", "mpirun.mpich"),
    ]);
    forget_bindings()?;
    tested?;
    Ok("the same with MPICH".into())
}

/// Runs the tests, of which one starts the example.
fn test(variables: &[(&str, &str)]) -> Result {
    for args in [
        &["build", "--example", "train"][..],
        &["test", "--lib", "--tests"],
    ] {
        let mut cargo = cargo_with_gpu()?;
        cargo.args(args).arg("--manifest-path").arg(manifest());
        cargo.args(CRATE).env("CARGO_TARGET_DIR", target_dir());
        if env::var_os("GALLIVM_PERF").is_none() {
            // As in the suite: most of the time is lavapipe's compiler.
            cargo.env("GALLIVM_PERF", "nopt");
        }
        run(cargo.envs(variables.iter().copied()))?;
    }
    Ok(())
}

fn forget_bindings() -> Result {
    let mut clean = of_examples(&["clean", "--package", "mpi-sys"]);
    run(clean.args(["--package", "mpi"]))
}
