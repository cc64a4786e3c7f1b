//! Thousands of valid files with mutations. `LAPIDARY_SEED` repeats one of them; `LAPIDARY_STEPS`
//! sets their number.

use std::fs;

use fastrand::Rng;
use lapidary_testing::model_file::{file_of, file_with};

use super::look;
use crate::device;
use crate::mutated::corpus;

const FILES: u64 = 3000;

/// Text that is likely to matter wherever it is inserted.
const WORDS: &[&str] = &[
    "0",
    "1",
    "-1",
    "8",
    "18446744073709551615",
    "18446744073709551616",
    "1e9",
    "4294967296",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "\"__metadata__\":",
    "\"F8_E4M3\"",
    "\"BOOL\"",
    "\"I64\"",
    "\"F4\"",
    "\"U16\"",
    "\"F64\"",
    "null",
    "true",
    "\u{feff}",
    " ",
    "\0",
    "\"shape\":[0]",
    "\"data_offsets\":[0,0]",
    "[0,0]",
    "[]",
];

/// Valid files, of every type.
fn sound() -> Vec<Vec<u8>> {
    let floats: Vec<u8> = [0.5_f64, -1e300, f64::NAN]
        .iter()
        .flat_map(|f| f.to_le_bytes())
        .collect();
    let wide: Vec<u8> = [5_i64, -7, 1 << 40]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    let golden = corpus("model_file").join("golden.safetensors");
    let small = corpus("model_file").join("small.gguf");
    vec![
        fs::read(golden).expect("the golden file is there"),
        fs::read(small).expect("the file of GGUF is there"),
        file_of("{}", b""),
        file_of(
            r#"{"__metadata__":{"a":"b","c":""},"x":{"dtype":"U8","shape":[3,1],"data_offsets":[0,3]}}"#,
            b"abc",
        ),
        file_with(&[
            ("a", "F32", &[2], &[0; 8]),
            ("b", "F16", &[1, 3], b"abcdef"),
            ("c", "BF16", &[], b"ab"),
            ("d", "U32", &[1], b"abcd"),
            ("e", "I8", &[2, 2], b"abcd"),
            ("f", "BOOL", &[4], &[0, 1, 1, 0]),
        ]),
        file_with(&[
            ("f64", "F64", &[3], &floats),
            ("f64s", "F64", &[1], &floats[..8]),
            ("i64", "I64", &[3], &wide),
            ("u64", "U64", &[2], &wide[..16]),
            ("i16", "I16", &[3], b"abcdef"),
            ("u16", "U16", &[1], b"ab"),
            ("f8", "F8_E4M3", &[1], b"a"),
            ("f4", "F4", &[2], b"a"),
            ("rank 9", "U8", &[1; 9], b"a"),
        ]),
    ]
}

/// Mutates a file in one or several ways. Half of the time the header's length is corrected
/// afterwards.
fn mutate(random: &mut Rng, files: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = files[random.usize(..files.len())].clone();
    let data_bytes = bytes.len().saturating_sub(8 + header_len(&bytes));
    let changes = if random.bool() { 1 } else { random.usize(2..6) };
    for _ in 0..changes {
        let at = random.usize(..=bytes.len());
        let end = (at + random.usize(..20)).min(bytes.len());
        match random.u32(..10) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.u32(..8),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let again = bytes[at..end].to_vec();
                let to = random.usize(..=bytes.len());
                bytes.splice(to..to, again);
            }
            3 => bytes.truncate(at),
            4 => {
                let other = &files[random.usize(..files.len())];
                let from = random.usize(..other.len());
                bytes.splice(at..end, other[from..].iter().copied());
            }
            5 => replace_number(random, &mut bytes),
            6 => replace_type(random, &mut bytes),
            7 if data_bytes > 0 && bytes.len() >= data_bytes => {
                let at = bytes.len() - 1 - random.usize(..data_bytes);
                bytes[at] ^= 1 << random.u32(..8);
            }
            8 if at + 8 <= bytes.len() => {
                let number = match random.u32(..4) {
                    0 => random.u64(..),
                    1 => 1 << random.u32(..64),
                    _ => random.u64(..70),
                };
                let len = if random.bool() { 4 } else { 8 };
                bytes[at..at + len].copy_from_slice(&number.to_le_bytes()[..len]);
            }
            _ => {
                let word = WORDS[random.usize(..WORDS.len())];
                let end = if random.bool() { at } else { end };
                bytes.splice(at..end, word.bytes());
            }
        }
    }
    let is_gguf = bytes.starts_with(b"GGUF");
    if random.bool() && !is_gguf && bytes.len() >= 8 + data_bytes {
        let header_bytes = (bytes.len() - 8 - data_bytes) as u64;
        bytes[..8].copy_from_slice(&header_bytes.to_le_bytes());
    }
    bytes
}

fn header_len(bytes: &[u8]) -> usize {
    let length = bytes
        .first_chunk()
        .map(|length| u64::from_le_bytes(*length));
    length.map_or(0, |length| usize::try_from(length).unwrap_or(0))
}

/// Replaces a number by another one.
fn replace_number(random: &mut Rng, bytes: &mut Vec<u8>) {
    let digits: Vec<usize> = (8..bytes.len())
        .filter(|&at| bytes[at].is_ascii_digit())
        .collect();
    if digits.is_empty() {
        return;
    }
    let at = digits[random.usize(..digits.len())];
    let number = match random.u32(..4) {
        0 => random.u64(..),
        1 => 1 << random.u32(..64),
        _ => random.u64(..24),
    };
    bytes.splice(at..=at, number.to_string().bytes());
}

/// Replaces a type by one of the same size and often of the same length.
fn replace_type(random: &mut Rng, bytes: &mut [u8]) {
    const SAME: &[&[&str]] = &[
        &["\"F32\"", "\"I32\"", "\"U32\""],
        &["\"F16\"", "\"I16\"", "\"U16\""],
        &["\"F64\"", "\"I64\"", "\"U64\"", "\"C64\""],
        &["\"U8\"", "\"I8\""],
    ];
    let same = SAME[random.usize(..SAME.len())];
    let (from, to) = (random.choice(same), random.choice(same));
    let (Some(from), Some(to)) = (from, to) else {
        return;
    };
    let mut windows = bytes.windows(from.len());
    if let Some(at) = windows.position(|window| window == from.as_bytes()) {
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
}

#[test]
fn a_file_that_was_changed_is_refused_or_sound_and_never_more_than_it_is() {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let (first, count) = match (number("LAPIDARY_SEED"), number("LAPIDARY_STEPS")) {
        (Some(seed), steps) => (seed, steps.unwrap_or(1)),
        (None, steps) => (0, steps.unwrap_or(FILES)),
    };
    let (gpu, sim) = device();
    let files = sound();
    let mut taken = 0;
    for seed in first..first + count {
        let bytes = mutate(&mut Rng::with_seed(seed), &files);
        let looked = std::panic::AssertUnwindSafe(|| look(&gpu, &sim, &bytes));
        match std::panic::catch_unwind(looked) {
            Ok(is_sound) => taken += u64::from(is_sound),
            Err(panic) => {
                eprintln!(
                    "run it again with LAPIDARY_SEED={seed}: {}",
                    bytes.escape_ascii()
                );
                std::panic::resume_unwind(panic);
            }
        }
    }
    // If all mutations broke the first check, little would be tested.
    assert!(
        count < FILES || (taken * 20 > count && taken * 2 < count),
        "{taken} of {count}"
    );
}

#[test]
fn the_files_that_fuzzing_begins_with_are_looked_at() {
    let folder = corpus("model_file");
    let (gpu, sim) = device();
    let mut sound = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if look(&gpu, &sim, &fs::read(&path).unwrap()) {
            sound.push(path.file_stem().unwrap().to_string_lossy().into_owned());
        }
    }
    sound.sort();
    assert_eq!(
        sound,
        [
            "all_types",
            "golden",
            "notes",
            "nothing",
            "small",
            "wide_types"
        ]
    );
}
