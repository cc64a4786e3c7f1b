//! Compilers for other targets: rustup's, or Debian's.

use std::env;
use std::ffi::OsString;
use std::process::Command;

use crate::process::{capture, command};

/// Debian's own compiler, cargo, and the source of std, which is built here.
pub(crate) const DEBIAN_TOOLCHAIN: &[&str] = &["rustc-web", "cargo-web", "rust-web-src"];

/// Whether rustup has a target or could install it.
pub(crate) fn rustup_provides(target: &str) -> bool {
    rustup_has(target) || capture(command("rustup").args(["target", "add", target])).is_ok()
}

fn rustup_has(target: &str) -> bool {
    capture(command("rustup").args(["target", "list", "--installed"]))
        .is_ok_and(|list| list.lines().any(|installed| installed == target))
}

/// Debian's cargo, without the variables that rustup's has set.
pub(crate) fn debian_cargo() -> Command {
    let mut path = OsString::from("/usr/bin:");
    path.push(env::var_os("PATH").unwrap_or_default());
    let mut cargo = command("/usr/bin/cargo");
    for name in ["CARGO", "RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH"] {
        cargo.env_remove(name);
    }
    cargo.env("PATH", path).env("RUSTC", "/usr/bin/rustc");
    // Debian's compiler is stable. Building std is an unstable feature, which this variable
    // enables.
    cargo.env("RUSTC_BOOTSTRAP", "1");
    cargo
}
