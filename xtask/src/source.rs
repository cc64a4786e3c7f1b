//! Checks that run no kernel: formatting, style, lints, documentation, other targets.

use std::env::consts::EXE_SUFFIX;

use crate::packages;
use crate::process::{Cmd, PASSED, Result, Shell, cmd, ensure, has, root, target_dir};

/// The published crates of this workspace and their folders, each after its dependencies.
const PUBLISHED: [(&str, &str); 6] = [
    ("lapidary-alloc", "crates/alloc"),
    ("wgsl-interpreter", "crates/wgsl-interpreter"),
    ("lapidary-core", "crates/core"),
    ("lapidary", "."),
    ("lapidary-lm", "crates/lm"),
    ("lapidary-tools", "crates/tools"),
];

/// The workspace of the programs with more dependencies than lapidary.
pub(crate) const EXAMPLES: [&str; 2] = ["--manifest-path", "examples/Cargo.toml"];

/// What `lapidary-mpi` needs to be built.
pub(crate) const MPI: &str = "openmpi-bin libopenmpi-dev libclang-dev";

/// Runs a check; warnings are errors.
pub(crate) fn strictly(clippy: Cmd<'_>) -> Result<String> {
    clippy.args(["--", "-D", "warnings"]).run()?;
    Ok(PASSED)
}

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
    let options = ["--workspace", "--all-targets", "--all-features"];
    strictly(cmd!(sh, "cargo clippy {options...}"))
}

/// The programs that need windows, tokenizers, a browser or an MPI. All of them at once, here and
/// in [`doc`]: for a few, cargo would choose other features and compile everything again.
pub(crate) fn clippy_examples(sh: &Shell) -> Result<String> {
    packages::install(sh, MPI)?;
    strictly(cmd!(sh, "cargo clippy --workspace --all-targets").args(EXAMPLES))
}

/// Combinations of features that `clippy` and `targets` do not cover.
pub(crate) fn features(sh: &Shell) -> Result<String> {
    // The library in an app, without the program.
    let alone = "cargo clippy --lib --package lapidary-tools --no-default-features --features";
    // Examples and tests enable features of the library that its users may lack.
    let plain = "cargo clippy --lib --package lapidary --features";
    let tools = ["", "monitor", "serve", "replay"].map(|features| (alone, features));
    for (command, features) in tools
        .into_iter()
        .chain(["", "safetensors"].map(|f| (plain, f)))
    {
        let words = command.split(' ').skip(1);
        strictly(cmd!(sh, "cargo {words...} {features}"))?;
    }
    // Spilled bytes may be compressed, which the suite leaves out.
    let options = ["--package", "lapidary-core", "--features", "lz4"];
    cmd!(sh, "cargo test --lib {options...} spill").run()?;
    Ok(PASSED)
}

/// Each published crate builds from its package alone.
pub(crate) fn packages(sh: &Shell) -> Result<String> {
    let names = PUBLISHED.iter().flat_map(|(name, _)| ["--package", name]);
    cmd!(sh, "cargo package --allow-dirty {names...}").run()?;
    packages::install(sh, MPI)?;
    let names = ["--package", "lapidary-egui", "--package", "lapidary-mpi"];
    // The registry does not have the others yet.
    let patches = PUBLISHED.iter().flat_map(|(name, folder)| {
        let path = root().join(folder);
        [
            "--config".into(),
            format!("patch.crates-io.{name}.path={path:?}"),
        ]
    });
    cmd!(sh, "cargo package --allow-dirty {names...} {patches...}")
        .args(EXAMPLES)
        .run()?;
    Ok(PASSED)
}

pub(crate) fn doc(sh: &Shell) -> Result<String> {
    let _denied = sh.push_env("RUSTDOCFLAGS", "-D warnings");
    cmd!(sh, "cargo doc --workspace --no-deps --all-features").run()?;
    packages::install(sh, MPI)?;
    cmd!(sh, "cargo doc --workspace --lib --no-deps")
        .args(EXAMPLES)
        .run()?;
    Ok(PASSED)
}

const WINDOWS: &str = "x86_64-pc-windows-msvc";
const APPLE: &str = "aarch64-apple-darwin";
pub(crate) const WEB: &str = "wasm32-unknown-unknown";

/// Checks the library for other systems.
pub(crate) fn targets(sh: &Shell) -> Result<String> {
    let features = "lapidary/sim,lapidary/snapshot,lapidary/tracing,lapidary/metrics,\
        lapidary/safetensors,lapidary/ndarray";
    let library = format!("--package lapidary --lib --features {features}");
    let program = "--package lapidary-tools --bin lapidary --features lapidary/redis";
    // A browser has no terminals and sockets, so the program is left out.
    let mut checks = vec![
        (WEB, library.clone()),
        (WINDOWS, format!("{library} {program}")),
    ];
    // Alone and without features, as most users build them. Any one target would do for this. At
    // night `packages` builds every crate so.
    checks.extend(["lapidary-core", "lapidary"].map(|name| (APPLE, format!("--package {name}"))));
    for (target, options) in checks {
        provide_target(sh, target)?;
        let options = options.split(' ');
        match target {
            // Clippy complains of each `Arc`, because wgpu's types are not `Send` there.
            WEB => cmd!(sh, "cargo check --target {target} {options...}").run()?,
            _ => drop(strictly(cmd!(
                sh,
                "cargo clippy --target {target} {options...}"
            ))?),
        }
    }
    Ok([WINDOWS, APPLE, WEB].join(", "))
}

/// Installs a target's standard library, unless it is there.
pub(crate) fn provide_target(sh: &Shell, target: &str) -> Result<()> {
    let installed = cmd!(sh, "rustup target list --installed")
        .ignore_stderr()
        .read();
    ensure!(
        installed.is_ok_and(|list| list.lines().any(|installed| installed == target))
            || has(sh, &format!("rustup target add {target}")),
        "rustup has no {target}, and cannot install it here"
    );
    Ok(())
}
