//! Compilers for other targets: rustup's, or Debian's.

use crate::apt;
use crate::process::{Cmd, Result, Shell, cmd, ensure, has};

/// Whether rustup has a target or could install it.
pub(crate) fn rustup_provides(sh: &Shell, target: &str) -> bool {
    let installed = cmd!(sh, "rustup target list --installed")
        .ignore_stderr()
        .read();
    installed.is_ok_and(|list| list.lines().any(|installed| installed == target))
        || has(sh, "rustup", &["target", "add", target])
}

/// Debian's own cargo, with the source of std, which it builds. It has another folder of outputs.
pub(crate) fn debian_cargo<'a>(sh: &'a Shell, target: &str) -> Result<Cmd<'a>> {
    ensure!(
        apt::is_here(),
        "{target} is not installed: `rustup target add {target}` does that"
    );
    apt::install(sh, &["rustc-web", "cargo-web", "rust-web-src", "lld-19"])?;
    let mut cargo = cmd!(sh, "/usr/bin/cargo");
    for name in ["CARGO", "RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH"] {
        cargo = cargo.env_remove(name);
    }
    let path = format!("/usr/bin:{}", sh.var("PATH").unwrap_or_default());
    let cargo = cargo.env("PATH", path).env("RUSTC", "/usr/bin/rustc");
    // Debian's compiler is stable, and building std is an unstable feature.
    let cargo = cargo.env("RUSTC_BOOTSTRAP", "1");
    let cargo = cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", "wasm-ld-19");
    Ok(cargo.env("CARGO_TARGET_DIR", "target/targets"))
}
