//! Checks the library for other systems. The standard library is the one that rustup installs.
//! Without rustup, Debian's compiler builds it from Debian's package of std's source.

use std::process::Command;

use super::source::PUBLISHED;
use crate::apt;
use crate::process::{Result, cargo, run, target_dir};
use crate::suite::{FEATURES, PROGRAM, SIMULATION};
use crate::toolchain::{DEBIAN_TOOLCHAIN, debian_cargo, rustup_provides};

const TARGETS: &[&str] = &["x86_64-pc-windows-msvc", APPLE, WEB];
const APPLE: &str = "aarch64-apple-darwin";
const WEB: &str = "wasm32-unknown-unknown";

/// A browser has no terminals and sockets, so the program is left out.
const OF_WEB: &[&str] = &[
    "--features",
    "lapidary/tracing,lapidary/metrics,lapidary/safetensors,lapidary/ndarray",
];

/// Checks the library for every target; a failure does not stop the others.
pub(crate) fn check() -> Result<String> {
    let mut failed = Vec::new();
    for target in TARGETS {
        if let Err(sentence) = check_one(target) {
            eprintln!("{sentence}");
            failed.push(*target);
        }
    }
    if failed.is_empty() {
        Ok(TARGETS.join(", "))
    } else {
        Err(format!("it does not compile for {}.", failed.join(", ")))
    }
}

/// Checks for one target. With rustup's compiler, warnings count, except on the web: there Clippy
/// complains of each `Arc`, because wgpu's types are not `Send`.
fn check_one(target: &str) -> Result {
    let has_rustup = rustup_provides(target);
    if !has_rustup && !apt::is_here() {
        return Err(format!(
            "{target} is not installed: `rustup target add {target}` does that."
        ));
    }
    if !has_rustup {
        apt::install(DEBIAN_TOOLCHAIN)?;
    }
    for crates in checked(target) {
        let (mut check, denied): (_, &[&str]) = match (has_rustup, target) {
            (false, _) => (checking_with_std(), &[]),
            // Macros and build scripts are for this machine and compiled already.
            (true, WEB) => (cargo_with("check"), &[]),
            (true, _) => (cargo_with("clippy"), &["--", "-D", "warnings"]),
        };
        check.args(["--target", target]).args(crates);
        run(check.args(denied))?;
    }
    Ok(())
}

/// Options of cargo for each check of this target: what it selects.
fn checked(target: &str) -> Vec<Vec<&'static str>> {
    const LIBRARY: &[&str] = &["--package", "lapidary", "--lib"];
    match target {
        WEB => vec![[LIBRARY, SIMULATION, OF_WEB].concat()],
        // Each crate alone, as users build it: together the crates enable each other's features.
        // Any one target would do for this.
        APPLE => (PUBLISHED.iter())
            .map(|package| vec!["--package", *package])
            .collect(),
        _ => vec![[LIBRARY, FEATURES, PROGRAM].concat()],
    }
}

fn cargo_with(verb: &str) -> Command {
    let mut cargo = cargo();
    cargo.arg(verb);
    cargo
}

/// A check by Debian's compiler, which builds std for the target.
fn checking_with_std() -> Command {
    let mut check = debian_cargo();
    check.args(["check", "-Z", "build-std=std,panic_abort"]);
    check.env("CARGO_TARGET_DIR", target_dir().join("targets"));
    check
}
