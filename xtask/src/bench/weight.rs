//! What it costs to have lapidary in a program: crates, the time of a build, the program's size.

use std::collections::BTreeSet;
use std::env::consts::EXE_SUFFIX;
use std::fs;
use std::time::Instant;

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

/// The crates of the default tree on this system, without lapidary itself.
pub(super) fn crates(sh: &Shell) -> Result<Row> {
    let count = crates_of(sh, "lapidary")? as f64;
    Ok(Row::counted("crates in the default tree", count, "crates"))
}

fn crates_of(sh: &Shell, package: &str) -> Result<usize> {
    let tree = cmd!(sh, "cargo tree --package {package} --edges=normal");
    Ok(count(&tree.arg("--prefix=none").read()?))
}

/// A listing names a crate once for each that wants it.
fn count(listing: &str) -> usize {
    let lines = listing
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("lapidary"));
    let name = |line: &str| line.split_whitespace().take(2).collect::<String>();
    lines.map(name).collect::<BTreeSet<_>>().len()
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

/// Builds programs from scratch, each with its own dependencies: wgpu alone, the memory manager
/// without and with LTO, and the library with all operations. Each computes something on the GPU.
pub(super) fn build(sh: &Shell) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for name in ["wgpu", "lapidary-core", "lapidary-core-lto", "lapidary"] {
        let (seconds, bytes) = build_one(sh, name)?;
        let (build, size) = (format!("clean release build, {name}"), bytes as f64 / 1e6);
        rows.push(Row::counted(&build, seconds, "s"));
        rows.push(Row::counted(
            &format!("program, stripped, {name}"),
            size,
            "MB",
        ));
    }
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
            let main = first_program(&page).context("the core's README has no program")?;
            (own("lapidary-core", "crates/core"), main.to_owned())
        }
    };
    // The profile of users who care for the size.
    let profile = if name.ends_with("-lto") {
        "lto = true"
    } else {
        ""
    };
    let folder = emptied(sh, &format!("bench/weight/{name}"))?;
    let manifest = format!(
        "[package]\nname = \"hello\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\n{dependencies}\n\n[profile.release]\nstrip = true\n{profile}\n"
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

/// The first block of Rust on a page.
fn first_program(page: &str) -> Option<&str> {
    let (_, rest) = page.split_once("```rust")?;
    let (_, rest) = rest.split_once('\n')?;
    rest.split("```").next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_counts_once_whoever_wants_it() {
        let listing = "lapidary v0.1.0 (/x)\nhalf v2.7.1\ncfg-if v1.0.4\nbytemuck v1.24.0\n\
                       bytemuck_derive v1.10.2 (proc-macro)\ncfg-if v1.0.4 (*)\n\n";
        assert_eq!(count(listing), 4);
    }

    #[test]
    fn the_first_program_of_a_page_is_found() {
        let page = "# A\n\n```text\nb\n```\n\n```rust,no_run\nfn main() {}\n```\n";
        assert_eq!(first_program(page), Some("fn main() {}\n"));
        assert_eq!(first_program("# A\n"), None);
    }
}
