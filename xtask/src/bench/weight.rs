//! What it costs to have lapidary in a program: crates, the time of a build, the program's size.

use std::collections::BTreeSet;
use std::fs;
use std::time::Instant;

use super::row::Row;
use crate::process::{Result, capture, cargo, root, run_quietly, target_dir};

/// The crates of the default tree on this system, without lapidary itself.
pub(crate) fn crates() -> Result<Row> {
    let listing = capture(cargo().args([
        "tree",
        "--package=lapidary",
        "--edges=normal",
        "--prefix=none",
    ]))?;
    let count = count(&listing);
    Ok(Row::counted(
        "crates in the default tree",
        count as f64,
        "crates",
    ))
}

/// A listing names a crate once for each that wants it.
fn count(listing: &str) -> usize {
    let name = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    let names: BTreeSet<_> = listing.lines().filter_map(name).collect();
    names
        .iter()
        .filter(|(name, _)| !name.starts_with("lapidary"))
        .count()
}

/// Builds the example `hello` as a package of its own, in release and from nothing.
pub(crate) fn build() -> Result<Vec<Row>> {
    let folder = target_dir().join("bench/hello");
    let explain = |error: std::io::Error| format!("{}: {error}.", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(explain)?;
    }
    fs::create_dir_all(folder.join("src")).map_err(explain)?;
    let manifest = format!(
        "[package]\nname = \"hello\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\nlapidary = {{ path = {:?} }}\n\n[profile.release]\nstrip = true\n",
        root()
    );
    fs::write(folder.join("Cargo.toml"), manifest).map_err(explain)?;
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).map_err(explain)?;
    fs::copy(root().join("examples/hello.rs"), folder.join("src/main.rs")).map_err(explain)?;
    // What has to be downloaded is not a matter of the build.
    run_quietly(cargo().current_dir(&folder).arg("fetch"))?;
    let start = Instant::now();
    run_quietly(
        cargo()
            .current_dir(&folder)
            .args(["build", "--release"])
            .env("CARGO_TARGET_DIR", "target"),
    )?;
    let seconds = start.elapsed().as_secs_f64();
    let program = folder
        .join("target/release")
        .join(format!("hello{}", std::env::consts::EXE_SUFFIX));
    let bytes = fs::metadata(&program).map_err(explain)?.len();
    Ok(vec![
        Row::counted("clean release build", seconds, "s"),
        Row::counted("hello, stripped", bytes as f64 / 1e6, "MB"),
    ])
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn a_crate_counts_once_whoever_wants_it() {
        let listing = "lapidary v0.1.0 (/x)\nhalf v2.7.1\ncfg-if v1.0.4\nbytemuck v1.24.0\n\
                       bytemuck_derive v1.10.2 (proc-macro)\ncfg-if v1.0.4 (*)\n\n";
        assert_eq!(count(listing), 4);
    }
}
