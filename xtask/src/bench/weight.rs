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

/// A package with one program, built in release and from scratch.
struct Program {
    name: &'static str,
    /// Its line in the list of dependencies.
    dependency: String,
    main: String,
}

/// Builds three programs from scratch, each with its own dependencies: wgpu alone, the memory
/// manager, and the library with all operations.
pub(crate) fn build() -> Result<Vec<Row>> {
    let read = |path: &str| {
        fs::read_to_string(root().join(path)).map_err(|error| format!("{path}: {error}."))
    };
    let path = |folder: &str| format!("{{ path = {:?} }}", root().join(folder));
    let programs = [
        Program {
            name: "wgpu",
            // As `lapidary-core` has it.
            dependency: "wgpu = { version = \"30\", default-features = false, features = \
                         [\"std\", \"wgsl\", \"vulkan\", \"dx12\", \"metal\"] }"
                .into(),
            main: "fn main() {\n    let descriptor = \
                   wgpu::InstanceDescriptor::new_without_display_handle();\n    \
                   println!(\"{:?}\", wgpu::Instance::new(descriptor));\n}\n"
                .into(),
        },
        Program {
            name: "lapidary-core",
            dependency: format!("lapidary-core = {}", path("crates/core")),
            main: first_program(&read("crates/core/README.md")?)
                .ok_or("the README of lapidary-core has no program.")?
                .into(),
        },
        Program {
            name: "lapidary",
            dependency: format!("lapidary = {}", path("")),
            main: read("examples/hello.rs")?,
        },
    ];
    let mut rows = Vec::new();
    for program in programs {
        let (seconds, bytes) = program.build()?;
        let name = |what: &str| format!("{what}, {}", program.name);
        rows.push(Row::counted(&name("clean release build"), seconds, "s"));
        rows.push(Row::counted(
            &name("program, stripped"),
            bytes as f64 / 1e6,
            "MB",
        ));
    }
    Ok(rows)
}

impl Program {
    /// The seconds of the build, and the program's bytes.
    fn build(&self) -> Result<(f64, u64)> {
        let folder = target_dir().join("bench/weight").join(self.name);
        let explain = |error: std::io::Error| format!("{}: {error}.", folder.display());
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(explain)?;
        }
        fs::create_dir_all(folder.join("src")).map_err(explain)?;
        let manifest = format!(
            "[package]\nname = \"hello\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
             [dependencies]\n{}\n\n[profile.release]\nstrip = true\n",
            self.dependency
        );
        fs::write(folder.join("Cargo.toml"), manifest).map_err(explain)?;
        fs::write(folder.join("src/main.rs"), &self.main).map_err(explain)?;
        fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).map_err(explain)?;
        // Downloads do not count as build time.
        run_quietly(cargo().current_dir(&folder).arg("fetch"))?;
        let start = Instant::now();
        run_quietly(
            cargo()
                .current_dir(&folder)
                .args(["build", "--release"])
                .env("CARGO_TARGET_DIR", "target"),
        )?;
        let seconds = start.elapsed().as_secs_f64();
        let program = folder.join("target/release");
        let program = program.join(format!("hello{}", std::env::consts::EXE_SUFFIX));
        Ok((seconds, fs::metadata(&program).map_err(explain)?.len()))
    }
}

/// The first block of Rust on a page.
fn first_program(page: &str) -> Option<&str> {
    let (_, rest) = page.split_once("```rust")?;
    let (_, rest) = rest.split_once('\n')?;
    rest.split("```").next()
}

#[cfg(test)]
mod tests {
    use super::{count, first_program};

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
