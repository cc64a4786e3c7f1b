//! Checks that run no kernel: formatting, style, lints, documentation.

use std::env::consts::EXE_SUFFIX;
use std::fs;
use std::process::Command;

use crate::model;
use crate::process::{Result, cargo, command, root, run, target_dir};

/// The published crates of this workspace, each after its dependencies.
pub(crate) const PUBLISHED: [&str; 5] = [
    "lapidary-alloc",
    "wgsl-interpreter",
    "lapidary-core",
    "lapidary",
    "lapidary-tools",
];

pub(crate) fn fmt() -> Result<String> {
    run(cargo().args(["fmt", "--all", "--check"]))?;
    passed(of_examples(&["fmt", "--all"]).arg("--check"))
}

/// The tests of the source itself. They only read files and need no crate, so rustc compiles them
/// directly in a second.
pub(crate) fn tidy() -> Result<String> {
    let folder = target_dir().join("tidy");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}.", folder.display()))?;
    let program = folder.join(format!("tidy{EXE_SUFFIX}"));
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let mut build = command(&compiler);
    build.args(["--edition", "2024", "--test", "tests/tidy.rs", "-o"]);
    run(build.arg(&program).env("CARGO_MANIFEST_DIR", root()))?;
    passed(&mut command(&program.to_string_lossy()))
}

pub(crate) fn clippy() -> Result<String> {
    passed(
        cargo()
            .args(["clippy", "--workspace", "--all-targets", "--all-features"])
            .args(["--", "-D", "warnings"]),
    )
}

/// The programs that need windows, tokenizers or a browser, which no other step compiles. The step
/// `mpi` has the crate that needs an MPI.
pub(crate) fn clippy_examples() -> Result<String> {
    let mut clippy = of_examples(&["clippy", "--workspace", "--all-targets"]);
    clippy.args(["--exclude", "lapidary-mpi"]);
    passed(clippy.args(["--", "-D", "warnings"]))
}

/// A command of cargo for the programs, which have their own workspace.
pub(super) fn of_examples(args: &[&str]) -> Command {
    let mut cargo = cargo();
    cargo.args(args).arg("--manifest-path");
    cargo.arg(model::manifest());
    cargo.env("CARGO_TARGET_DIR", target_dir());
    cargo
}

/// Combinations of features that `clippy` and `targets` do not cover.
pub(crate) fn features() -> Result<String> {
    // The library in an app, without the program.
    for features in ["", "monitor", "serve", "replay"] {
        run(cargo()
            .args(["clippy", "--package", "lapidary-tools", "--lib"])
            .args(["--no-default-features", "--features", features])
            .args(["--", "-D", "warnings"]))?;
    }
    // Spilled bytes may be compressed, which the suite leaves out.
    run(cargo()
        .args(["test", "--package", "lapidary-core", "--lib"])
        .args(["--features", "lz4", "spill"]))?;
    // Examples and tests enable features of the core that the library has not.
    passed(
        cargo()
            .args(["clippy", "--package", "lapidary", "--all-targets"])
            .args(["--features", "safetensors", "--", "-D", "warnings"]),
    )
}

/// Each published crate builds from its package alone.
pub(crate) fn packages() -> Result<String> {
    let mut package = cargo();
    package.args(["package", "--allow-dirty"]);
    run(package.args(PUBLISHED.iter().flat_map(|name| ["--package", name])))?;
    super::ranks::install()?;
    let alone = ["--package", "lapidary-egui", "--package", "lapidary-mpi"];
    let mut package = of_examples(&["package", "--allow-dirty"]);
    package.args(alone);
    for (name, folder) in [
        ("lapidary-alloc", "crates/alloc"),
        ("wgsl-interpreter", "crates/wgsl-interpreter"),
        ("lapidary-core", "crates/core"),
        ("lapidary", "."),
    ] {
        // The registry does not have them yet.
        let path = root().join(folder);
        let patch = format!("patch.crates-io.{name}.path={:?}", path.to_string_lossy());
        package.args(["--config", &patch]);
    }
    passed(&mut package)
}

pub(crate) fn doc() -> Result<String> {
    run(cargo()
        .args(["doc", "--workspace", "--no-deps", "--all-features"])
        .env("RUSTDOCFLAGS", "-D warnings"))?;
    passed(
        of_examples(&["doc", "--package", "lapidary-egui", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

fn passed(command: &mut Command) -> Result<String> {
    run(command).map(|()| String::new())
}
