//! Checks the library for other systems. The standard library is the one that rustup installs.
//! Without rustup, Debian's compiler builds it from Debian's package of std's source.

use super::source::PUBLISHED;
use crate::process::{Result, Shell, cmd, ensure};
use crate::suite::PROGRAM;
use crate::toolchain::{debian_cargo, rustup_provides};

const WINDOWS: &str = "x86_64-pc-windows-msvc";
const APPLE: &str = "aarch64-apple-darwin";
const WEB: &str = "wasm32-unknown-unknown";

const FEATURES: &str = "lapidary/sim,lapidary/snapshot,lapidary/tracing,lapidary/metrics,\
     lapidary/safetensors,lapidary/ndarray";

/// Checks the library for every target; a failure does not stop the others.
pub(crate) fn check(sh: &Shell) -> Result<String> {
    let library = ["--package", "lapidary", "--lib", "--features", FEATURES];
    // A browser has no terminals and sockets, so the program is left out.
    let mut checks = vec![(WEB, library.to_vec())];
    checks.push((
        WINDOWS,
        [&library[..], &PROGRAM, &["--features", "lapidary/redis"]].concat(),
    ));
    // Each crate alone, as users build it: together the crates enable each other's features. Any
    // one target would do for this.
    checks.extend(PUBLISHED.map(|(name, _)| (APPLE, vec!["--package", name])));
    let mut failed = Vec::new();
    for (target, options) in checks {
        if let Err(error) = check_one(sh, target, &options) {
            eprintln!("{error:#}");
            failed.push(target);
        }
    }
    ensure!(
        failed.is_empty(),
        "it does not compile for {}",
        failed.join(", ")
    );
    Ok([WINDOWS, APPLE, WEB].join(", "))
}

/// Checks for one target. With rustup's compiler, warnings count, except on the web: there Clippy
/// complains of each `Arc`, because wgpu's types are not `Send`.
fn check_one(sh: &Shell, target: &str, options: &[&str]) -> Result<()> {
    let check = match rustup_provides(sh, target) {
        false => debian_cargo(sh, target)?.args(["check", "-Z", "build-std=std,panic_abort"]),
        // Macros and build scripts are for this machine and compiled already.
        true if target == WEB => cmd!(sh, "cargo check"),
        true => cmd!(sh, "cargo clippy"),
    };
    let denied: &[&str] = match check.to_string().contains("clippy") {
        true => &["--", "-D", "warnings"],
        false => &[],
    };
    Ok(check
        .args(["--target", target])
        .args(options)
        .args(denied)
        .run()?)
}
