//! The verbs that start one program: `demo`, `replay`, `deny`.

use crate::driver::cargo_with_gpu;
use crate::model::manifest;
use crate::process::{Result, cargo, has_cargo_command, root, run};
use crate::suite::PROGRAM;

/// Runs the demo on the available adapter.
pub(crate) fn demo(args: &[String]) -> Result {
    let mut demo = cargo_with_gpu()?;
    demo.args(["run", "--release", "--example", "demo", "--"])
        .args(without_dashes(args));
    run(&mut demo)
}

/// Replays a trace, only by our engine unless the arguments name others. The simulated driver needs
/// no GPU.
pub(crate) fn replay(args: &[String]) -> Result {
    let args = without_dashes(args);
    let mut replay = cargo();
    replay
        .args(["run", "--release"])
        .args(PROGRAM)
        .args(["--", "replay"]);
    if !args.iter().any(|arg| arg.starts_with("--against")) {
        replay.args(["--against", "none"]);
    }
    run(replay.args(args))
}

/// Checks the dependency tree against `deny.toml`.
pub(crate) fn deny(args: &[String]) -> Result {
    if !has_cargo_command("deny") {
        return Err(
            "cargo-deny is not installed; `cargo install --locked cargo-deny` does that.".into(),
        );
    }
    // The programs of `examples` and the panel for egui are a separate workspace.
    for manifest in [root().join("Cargo.toml"), manifest()] {
        let mut deny = cargo();
        deny.args(["deny", "--workspace", "--manifest-path"]);
        deny.arg(manifest);
        deny.arg("--config").arg(root().join("deny.toml"));
        run(deny.arg("check").args(without_dashes(args)))?;
    }
    Ok(())
}

/// The arguments for the program, without a leading `--`.
fn without_dashes(args: &[String]) -> &[String] {
    match args {
        [first, rest @ ..] if first == "--" => rest,
        _ => args,
    }
}
