//! Checks that run no kernel: formatting, style, lints, documentation.

use std::env::consts::EXE_SUFFIX;

use super::ranks;
use crate::process::{Result, Shell, cmd, root, target_dir};
use crate::steps::PASSED;

/// The published crates of this workspace and their folders, each after its dependencies.
pub(crate) const PUBLISHED: [(&str, &str); 5] = [
    ("lapidary-alloc", "crates/alloc"),
    ("wgsl-interpreter", "crates/wgsl-interpreter"),
    ("lapidary-core", "crates/core"),
    ("lapidary", "."),
    ("lapidary-tools", "crates/tools"),
];

/// The workspace of the programs with more dependencies than lapidary.
pub(crate) const EXAMPLES: [&str; 2] = ["--manifest-path", "examples/Cargo.toml"];

pub(crate) const DENIED: [&str; 3] = ["--", "-D", "warnings"];

pub(crate) fn fmt(sh: &Shell) -> Result<String> {
    cmd!(sh, "cargo fmt --all --check").run()?;
    cmd!(sh, "cargo fmt --all --check").args(EXAMPLES).run()?;
    Ok(PASSED)
}

/// The tests of the source itself. They only read files and need no crate, so rustc compiles them
/// directly in a second.
pub(crate) fn tidy(sh: &Shell) -> Result<String> {
    let program = target_dir().join(format!("tidy/tidy{EXE_SUFFIX}"));
    sh.create_dir(target_dir().join("tidy"))?;
    let build = cmd!(sh, "rustc --edition 2024 --test tests/tidy.rs -o {program}");
    build.env("CARGO_MANIFEST_DIR", root()).run()?;
    cmd!(sh, "{program}").run()?;
    Ok(PASSED)
}

pub(crate) fn clippy(sh: &Shell) -> Result<String> {
    cmd!(sh, "cargo clippy --workspace --all-targets --all-features")
        .args(DENIED)
        .run()?;
    Ok(PASSED)
}

/// The programs that need windows, tokenizers or a browser, which no other step compiles. The step
/// `mpi` has the crate that needs an MPI.
pub(crate) fn clippy_examples(sh: &Shell) -> Result<String> {
    let clippy = cmd!(
        sh,
        "cargo clippy --workspace --all-targets --exclude lapidary-mpi"
    );
    clippy.args(EXAMPLES).args(DENIED).run()?;
    Ok(PASSED)
}

/// Combinations of features that `clippy` and `targets` do not cover.
pub(crate) fn features(sh: &Shell) -> Result<String> {
    // The library in an app, without the program.
    for features in ["", "monitor", "serve", "replay"] {
        let clippy = cmd!(
            sh,
            "cargo clippy --package lapidary-tools --lib --no-default-features"
        );
        clippy.arg("--features").arg(features).args(DENIED).run()?;
    }
    // Spilled bytes may be compressed, which the suite leaves out.
    cmd!(
        sh,
        "cargo test --package lapidary-core --lib --features lz4 spill"
    )
    .run()?;
    // Examples and tests enable features of the library that its users may lack.
    for features in ["", "safetensors"] {
        let clippy = cmd!(sh, "cargo clippy --package lapidary --lib");
        clippy.arg("--features").arg(features).args(DENIED).run()?;
    }
    Ok(PASSED)
}

/// Each published crate builds from its package alone.
pub(crate) fn packages(sh: &Shell) -> Result<String> {
    let names = PUBLISHED.iter().flat_map(|(name, _)| ["--package", name]);
    cmd!(sh, "cargo package --allow-dirty {names...}").run()?;
    ranks::install(sh)?;
    let names = ["--package", "lapidary-egui", "--package", "lapidary-mpi"];
    let mut package = cmd!(sh, "cargo package --allow-dirty {names...}").args(EXAMPLES);
    for (name, folder) in PUBLISHED {
        // The registry does not have them yet.
        let path = root().join(folder);
        package = package
            .arg("--config")
            .arg(format!("patch.crates-io.{name}.path={path:?}"));
    }
    package.run()?;
    Ok(PASSED)
}

pub(crate) fn doc(sh: &Shell) -> Result<String> {
    let _denied = sh.push_env("RUSTDOCFLAGS", "-D warnings");
    cmd!(sh, "cargo doc --workspace --no-deps --all-features").run()?;
    cmd!(sh, "cargo doc --package lapidary-egui --no-deps")
        .args(EXAMPLES)
        .run()?;
    Ok(PASSED)
}
