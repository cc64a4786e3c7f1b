//! Tests of the program `lapidary` as a process: its output and exit codes. Also tests of the
//! monitor and of the socket that serves statistics.

mod monitor;
mod replayed;
#[cfg(unix)]
mod served;
mod snapshots;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The result of a run of the program.
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

/// An empty folder for the test.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("cli")
        .join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A file in its own folder, as an argument of the program.
fn file(name: &str, bytes: &[u8]) -> String {
    let path = folder(&name.replace('.', "_")).join(name);
    fs::write(&path, bytes).unwrap();
    path.into_os_string().into_string().unwrap()
}

/// The program exits with 1 and its message contains `says`.
#[track_caller]
fn check_fails(args: &[&str], said: &[&str]) {
    let ran = run(args);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for said in said {
        assert!(ran.err.contains(said), "`{said}` is not in: {}", ran.err);
    }
    // Messages are sentences, not Rust values.
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
