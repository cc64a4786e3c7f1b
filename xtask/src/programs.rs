//! The verbs that start one program after the other: `demo`, `check`, `replay`, `deny`.

use pico_args::Arguments;

use crate::ci::source;
use crate::driver::ensure_gpu;
use crate::process::{Result, Shell, cmd, ensure, has};
use crate::steps::nothing_else;
use crate::suite::{PROGRAM, arguments, tests};

/// Runs the demo on the available adapter.
pub(crate) fn demo(sh: &Shell, args: Arguments) -> Result<()> {
    ensure_gpu(sh)?;
    let args = arguments(args);
    Ok(cmd!(sh, "cargo run --release --example demo -- {args...}").run()?)
}

/// Runs the checks to make before a commit: no adapter, and no long random runs.
pub(crate) fn check(sh: &Shell, args: Arguments) -> Result<()> {
    nothing_else(args)?;
    source::fmt(sh)?;
    source::tidy(sh)?;
    source::clippy(sh)?;
    cmd!(sh, "cargo test --package lapidary-alloc --lib").run()?;
    let names = "alloc_model:: engine:: state::";
    tests(sh, &format!("--test memory --test models -- {names}"))?.run()?;
    // The bodies of the fuzz targets, on stable Rust.
    Ok(tests(sh, "--lib -- mutated::")?.run()?)
}

/// Replays a trace, only by our engine unless the arguments name others. The simulated driver needs
/// no GPU.
pub(crate) fn replay(sh: &Shell, args: Arguments) -> Result<()> {
    let mut args = arguments(args);
    if !args.iter().any(|arg| arg.starts_with("--against")) {
        args.splice(0..0, ["--against", "none"].map(String::from));
    }
    let program = PROGRAM;
    Ok(cmd!(sh, "cargo run --release {program...} -- replay {args...}").run()?)
}

/// Checks the dependency tree against `deny.toml`.
pub(crate) fn deny(sh: &Shell, args: Arguments) -> Result<()> {
    let is_here = has(sh, "cargo", &["deny", "--version"]);
    ensure!(
        is_here,
        "`cargo install --locked cargo-deny` installs what is missing"
    );
    let args = arguments(args);
    // The programs of `examples` and the panel for egui are a separate workspace.
    for manifest in ["Cargo.toml", "examples/Cargo.toml"] {
        let deny = cmd!(sh, "cargo deny --workspace --manifest-path {manifest}");
        deny.args(["--config", "deny.toml", "check"])
            .args(&args)
            .run()?;
    }
    Ok(())
}
