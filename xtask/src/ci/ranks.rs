//! `lapidary-mpi`, which needs an MPI and libclang: lints, documentation, and tests that start
//! ranks by `mpirun` on this machine.

use super::source::{DENIED, EXAMPLES};
use crate::apt;
use crate::driver::ensure_gpu;
use crate::process::{Result, Shell, cmd};
use crate::suite::without_optimizer;

const CRATE: [&str; 2] = ["--package", "lapidary-mpi"];

/// Installs what the crate needs to be built, where this can be done.
pub(crate) fn install(sh: &Shell) -> Result<()> {
    apt::install(sh, &["openmpi-bin", "libopenmpi-dev", "libclang-dev"])
}

pub(crate) fn check(sh: &Shell) -> Result<String> {
    install(sh)?;
    let options = &[CRATE, EXAMPLES].concat();
    cmd!(sh, "cargo clippy --all-targets {options...}")
        .args(DENIED)
        .run()?;
    let doc = cmd!(sh, "cargo doc --no-deps {options...}");
    doc.env("RUSTDOCFLAGS", "-D warnings").run()?;
    test(sh)?;
    cmd!(sh, "cargo test --doc {options...}").run()?;
    Ok("sums, training, bad calls and dead ranks".into())
}

/// The tests with the other MPI.
pub(crate) fn mpich(sh: &Shell) -> Result<String> {
    apt::install(sh, &["mpich", "libmpich-dev", "libclang-dev"])?;
    // The bindings are built for one MPI, and cargo does not see that the other is wanted.
    let forget = cmd!(sh, "cargo clean --package mpi-sys --package mpi").args(EXAMPLES);
    forget.run()?;
    let _mpicc = sh.push_env("MPICC", "mpicc.mpich");
    let _mpirun = sh.push_env("LAPIDARY_MPIRUN", "mpirun.mpich");
    let tested = test(sh);
    forget.run()?;
    tested.map(|()| "the same with MPICH".into())
}

/// Runs the tests, of which one starts the example.
fn test(sh: &Shell) -> Result<()> {
    ensure_gpu(sh)?;
    let options = &[CRATE, EXAMPLES].concat();
    cmd!(sh, "cargo build --example train {options...}").run()?;
    let tests = cmd!(sh, "cargo test --lib --tests {options...}");
    Ok(without_optimizer(sh, tests).run()?)
}
