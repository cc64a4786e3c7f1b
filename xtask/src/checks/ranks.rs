//! The tests of `lapidary-mpi`, which start ranks by `mpirun` on this machine.

use crate::driver::ensure_gpu;
use crate::packages;
use crate::process::{Result, Shell, cmd};
use crate::source::{EXAMPLES, MPI};
use crate::suite::without_optimizer;

/// The crate, in its workspace.
const CRATE: [&str; 4] = ["--package", "lapidary-mpi", EXAMPLES[0], EXAMPLES[1]];

pub(crate) fn check(sh: &Shell) -> Result<String> {
    packages::install(sh, MPI)?;
    test(sh)?;
    cmd!(sh, "cargo test --doc").args(CRATE).run()?;
    Ok("sums, training, bad calls and dead ranks".into())
}

/// The tests with the other MPI.
pub(crate) fn mpich(sh: &Shell) -> Result<String> {
    packages::install(sh, "mpich libmpich-dev libclang-dev")?;
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
    cmd!(sh, "cargo build --example train").args(CRATE).run()?;
    let tests = cmd!(sh, "cargo test --lib --tests").args(CRATE);
    Ok(without_optimizer(sh, tests).run()?)
}
