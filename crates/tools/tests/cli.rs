//! The program `lapidary` as a user meets it: run as a process, read by what it prints and how it
//! ends. And what it is made of beside the library: the monitor, and the socket that serves it.

mod monitor;
mod replayed;
#[cfg(unix)]
mod served;
mod snapshots;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What a run of the program came to.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_lapidary"));
    program.stdin(Stdio::null()).env_remove("NO_COLOR");
    program
}

fn run(args: &[&str]) -> Ran {
    let output = program().args(args).output().unwrap();
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A folder of the test's own, empty.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("cli")
        .join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A file in a folder of its own, as the program takes it.
fn file(name: &str, bytes: &[u8]) -> String {
    let path = folder(&name.replace('.', "_")).join(name);
    fs::write(&path, bytes).unwrap();
    path.into_os_string().into_string().unwrap()
}

/// It ends with 1 and says this, whatever else it says.
#[track_caller]
fn check_fails(args: &[&str], said: &[&str]) {
    let ran = run(args);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for said in said {
        assert!(ran.err.contains(said), "`{said}` is not in: {}", ran.err);
    }
    // Sentences, not values as programmers see them.
    for internal in ["Error", "Some(", "Err(", "panicked"] {
        assert!(!ran.err.contains(internal), "{}", ran.err);
    }
}

#[test]
fn info_says_what_the_adapter_can_do_and_what_that_means() {
    let ran = run(&["info"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for row in [
        "largest buffer",
        "largest binding",
        "budget",
        "what `Gpu::open` takes here",
    ] {
        assert!(ran.out.contains(row), "{}", ran.out);
    }
    assert!(!ran.out.contains('\x1b'), "{}", ran.out);
    assert!(run(&["info", "--color", "always"]).out.contains('\x1b'));

    let ran = run(&["info", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let first = &told["adapters"][0];
    assert_eq!(first["chosen"], true);
    assert!(first["max_buffer_bytes"].as_u64().unwrap() > 0, "{told}");
    check_fails(&["info", "--adapter", "no such thing"], &["no such thing"]);
}

#[test]
fn shells_can_complete_what_is_typed() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = run(&["completions", shell]);
        assert_eq!(ran.code, Some(0));
        assert!(ran.out.contains("replay"), "{shell}: {}", ran.out);
    }
    assert_eq!(run(&["completions", "abacus"]).code, Some(2));
}

#[test]
fn what_is_not_understood_is_told_apart_from_what_cannot_be_done() {
    for args in [
        &["dance"][..],
        &["replay"],
        &["view"],
        &["top", "--every", "0"],
    ] {
        let ran = run(args);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(
            ran.err.contains("Usage:") || ran.err.contains("--help"),
            "{}",
            ran.err
        );
    }
    assert_eq!(run(&["--help"]).code, Some(0));
    assert_eq!(run(&["--version"]).code, Some(0));
}
