//! The bodies on stable Rust, with the corpus of each target and with some thousand mutations of
//! it. `LAPIDARY_SEED` repeats one mutation; `LAPIDARY_STEPS` sets their number.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use fastrand::Rng;

use crate::{allocator, model_file, rmm_log, snapshot, state_file, wgsl};

/// Mutations for each target by default.
const CHANGES: u64 = 2000;

/// The folder of a target's corpus.
pub(crate) fn corpus(target: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.join("../../fuzz/corpus").join(target)
}

/// The files of the corpus, in order.
fn kept(target: &str) -> Vec<Vec<u8>> {
    let folder = corpus(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let files = paths.iter().map(|path| fs::read(path).unwrap());
    files.collect()
}

/// Mutates a file in one or several ways.
fn changed(random: &mut Rng, files: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut bytes = files[random.usize(..files.len())].clone();
    let changes = if random.bool() { 1 } else { random.usize(2..6) };
    for _ in 0..changes {
        let at = random.usize(..=bytes.len());
        let end = (at + random.usize(..20)).min(bytes.len());
        match random.u32(..8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.u32(..8),
            1 if at < bytes.len() => bytes[at] = random.u8(..),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let again = bytes[at..end].to_vec();
                let to = random.usize(..=bytes.len());
                bytes.splice(to..to, again);
            }
            4 if random.bool() => bytes.truncate(at),
            5 => {
                let other = &files[random.usize(..files.len())];
                let from = random.usize(..=other.len());
                let to = (from + random.usize(..200)).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            _ => {
                let word = random.choice(words).copied().unwrap_or("\0");
                let end = if random.bool() { at } else { end };
                bytes.splice(at..end, word.bytes());
            }
        }
    }
    bytes
}

/// Runs a body with all files and mutations. At least one file and some mutations must be valid;
/// otherwise the code behind the first check would hardly run.
fn check(target: &str, body: fn(&[u8]) -> bool, words: &[&str]) {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let (first, count) = match (number("LAPIDARY_SEED"), number("LAPIDARY_STEPS")) {
        (Some(seed), steps) => (seed, steps.unwrap_or(1)),
        (None, steps) => (0, steps.unwrap_or(CHANGES)),
    };
    let files = kept(target);
    let sound = files.iter().filter(|bytes| body(bytes)).count();
    assert!(sound > 0, "none of the files of {target} is one");
    let mut taken = 0;
    for seed in first..first + count {
        let bytes = changed(&mut Rng::with_seed(seed), &files, words);
        match catch_unwind(AssertUnwindSafe(|| body(&bytes))) {
            Ok(is_sound) => taken += u64::from(is_sound),
            Err(panic) => {
                let shown = bytes.escape_ascii();
                eprintln!("run it again with LAPIDARY_SEED={seed}: {shown}");
                resume_unwind(panic);
            }
        }
    }
    println!(
        "{target}: {sound} of {} files, {taken} of {count} changes",
        files.len()
    );
    assert!(count < CHANGES || taken * 200 > count, "{taken} of {count}");
}

#[test]
fn the_allocator_holds_its_invariants_whatever_is_called() {
    check(
        "allocator",
        allocator::body,
        &["\0\u{8}", "\u{4}\u{10}\0\u{7f}"],
    );
}

#[test]
fn bytes_are_a_model_file_or_an_error() {
    let words = [
        "\"BOOL\"",
        "18446744073709551615",
        "[0,0]",
        "{",
        "\"shape\":[0]",
    ];
    check("model_file", model_file::body, &words);
}

#[test]
fn bytes_are_a_log_of_rmms_or_an_error() {
    let words = [
        "\n1,0,allocate,0x10,256,0\n",
        "\n1,0,free,0x10,256,0\n",
        ",",
        "\n",
        "(nil)",
        "free",
    ];
    check("rmm_log", rmm_log::body, &words);
}

#[test]
fn bytes_are_a_snapshot_or_an_error() {
    let words = [
        "0",
        "18446744073709551615",
        "[",
        "]",
        ",",
        "\"\\u202e<b>",
        "null",
        "-1",
        "1e300",
    ];
    check("snapshot", snapshot::body, &words);
}

#[test]
fn bytes_are_a_state_or_an_error() {
    let words = [
        "\0",
        "\0\0\0\0\0\0\0\0",
        "\u{1}\0\0\0\0\0\0\0",
        "\u{7f}\u{7f}\u{7f}\u{7f}",
    ];
    check("state_file", state_file::body, &words);
}

#[test]
fn bytes_are_a_kernel_or_its_error() {
    wgsl::quiet_parser();
    let words = [
        "//",
        "/*",
        "*/",
        "(",
        ")",
        "{",
        "}",
        "array<",
        "@group(0)",
        "\u{2028}",
        "1u",
        "vec4<f32>",
    ];
    check("wgsl", wgsl::body, &words);
}
