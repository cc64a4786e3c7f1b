//! What it costs to have lapidary in a program: crates, the time of a build, the program's size.

use std::collections::BTreeSet;
use std::env::consts::EXE_SUFFIX;
use std::fs;
use std::time::Instant;

use super::Options;
use super::row::Row;
use crate::process::{Context, Result, Shell, cmd, emptied, ensure, root};

/// The most crates in the tree of the core.
const MOST_CRATES: usize = 62;

/// The most bytes of the core's first program, stripped, with LTO.
const MOST_BYTES: u64 = 6_500_000;

/// Doubles a thousand numbers on the GPU with wgpu alone, as the other programs do with lapidary.
const BY_WGPU: &str = include_str!("by_wgpu.txt");

/// As `lapidary-core` has it.
const WGPU: &str = "wgpu = { version = \"30\", default-features = false, features = \
    [\"std\", \"wgsl\", \"vulkan\", \"dx12\", \"metal\"] }\npollster = \"0.4\"";

/// The crates of a package's tree on this system, without those of this repository.
fn crates_of(sh: &Shell, package: &str) -> Result<usize> {
    let options = "--edges=normal --no-dedupe --prefix=none".split(' ');
    let listed = cmd!(sh, "cargo tree --package {package} {options...}").read()?;
    let names = listed.lines().filter(|line| !line.starts_with("lapidary"));
    Ok(names.collect::<BTreeSet<_>>().len())
}

/// Builds the core's first program from scratch. Fails if it, or its tree of crates, is too large.
pub(crate) fn check(sh: &Shell) -> Result<String> {
    let crates = crates_of(sh, "lapidary-core")?;
    let (_, bytes) = build_one(sh, "lapidary-core-lto")?;
    let found = format!("{crates} crates, and a program of {bytes} bytes");
    ensure!(
        crates <= MOST_CRATES && bytes <= MOST_BYTES,
        "{found}: at most {MOST_CRATES} and {MOST_BYTES} may be. `nm --size-sort` on a program \
         that is not stripped says what is large"
    );
    Ok(found)
}

/// The rows whose names have one of the words: the crates of the default tree. Programs that are
/// built from scratch, each with its own dependencies: wgpu alone, the memory manager without and
/// with LTO, and the library with all operations. Each computes something on the GPU.
pub(super) fn rows(sh: &Shell, options: &Options) -> Result<Vec<Row>> {
    let crates = crates_of(sh, "lapidary")? as f64;
    let mut rows = vec![Row::counted("crates in the default tree", crates, "crates")];
    let names = ["wgpu", "lapidary-core", "lapidary-core-lto", "lapidary"];
    for name in names.iter().filter(|_| options.with_build) {
        let (seconds, bytes) = build_one(sh, name)?;
        let [build, size] = ["clean release build", "program, stripped"];
        rows.push(Row::counted(&format!("{build}, {name}"), seconds, "s"));
        let megabytes = bytes as f64 / 1e6;
        rows.push(Row::counted(&format!("{size}, {name}"), megabytes, "MB"));
    }
    let words = &options.words;
    let is_named = |row: &Row| words.iter().any(|word| row.text("case").contains(word));
    rows.retain(|row| words.is_empty() || is_named(row));
    Ok(rows)
}

/// Builds a package with one program, in release and from scratch: the seconds, and the program's
/// bytes.
fn build_one(sh: &Shell, name: &str) -> Result<(f64, u64)> {
    let read = |path: &str| sh.read_file(root().join(path));
    let own = |name: &str, path: &str| format!("{name} = {{ path = {:?} }}", root().join(path));
    let (dependencies, main) = match name {
        "wgpu" => (WGPU.to_owned(), BY_WGPU.to_owned()),
        "lapidary" => (own(name, "."), read("examples/hello.rs")?),
        _ => {
            let page = read("crates/core/README.md")?;
            let block = page
                .split("```rust")
                .nth(1)
                .and_then(|rest| rest.split("```").next());
            let main = block.and_then(|block| Some(block.split_once('\n')?.1));
            let main = main.context("the core's README has no program")?;
            (own("lapidary-core", "crates/core"), main.to_owned())
        }
    };
    // The profile of users who care for the size.
    let lto = name.ends_with("-lto");
    let folder = emptied(sh, &format!("bench/weight/{name}"))?;
    let manifest = format!(
        "[package]\nname = \"hello\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\n{dependencies}\n\n[profile.release]\nstrip = true\nlto = {lto}\n"
    );
    let _there = sh.push_dir(&folder);
    sh.write_file("Cargo.toml", manifest)?;
    sh.write_file("src/main.rs", main)?;
    sh.copy_file(root().join("Cargo.lock"), "Cargo.lock")?;
    // Downloads do not count as build time.
    cmd!(sh, "cargo fetch").ignore_stderr().run()?;
    let start = Instant::now();
    cmd!(sh, "cargo build --release --quiet --target-dir target").run()?;
    let program = folder.join(format!("target/release/hello{EXE_SUFFIX}"));
    Ok((start.elapsed().as_secs_f64(), fs::metadata(program)?.len()))
}
