//! A model that a source gives, as a server does: its header and the bytes in use are asked for,
//! and no others.

use std::io;

use lapidary::failure::ModelFailure;
use lapidary::files::{ModelFile, WeightForm};
use lapidary::operations::{BlockFormat, Weight};
use lapidary::{Budget, DType, Error, Gpu, Source};

use crate::model::files::{bytes_of, failure, file_with, open, open_served, open_with, served};

const ROWS: usize = 96;
const WIDTH: usize = 64;

/// Two matrices, of f32.
fn matrices() -> Vec<u8> {
    let all: Vec<f32> = (0..2 * ROWS * WIDTH)
        .map(|at| ((at * 37 % 101) as f32 - 50.0) / 64.0)
        .collect();
    let (a, b) = all.split_at(ROWS * WIDTH);
    let shape = [ROWS, WIDTH];
    file_with(&[
        ("a", "F32", &shape, bytes_of(a)),
        ("b", "F32", &shape, bytes_of(b)),
    ])
}

fn product(gpu: &Gpu, weight: &Weight) -> Vec<f32> {
    let x = gpu.ones(&[2, WIDTH], DType::F32).unwrap();
    weight.linear(&x, None).unwrap().to_vec().unwrap()
}

#[test]
fn weights_of_every_form_are_those_of_the_file() {
    let bytes = matrices();
    let files = [ModelFile::from_bytes(bytes.as_slice()), open_served(&bytes)];
    for form in [
        WeightForm::Stored,
        WeightForm::Float(DType::F16),
        WeightForm::Int8 { group: None },
        WeightForm::Int8 { group: Some(16) },
        WeightForm::Blocks(BlockFormat::Q4_0),
    ] {
        let made = files.each_ref().map(|file| {
            let gpu = open();
            let file = file.as_ref().unwrap().weights_as(form).unwrap();
            let one = gpu.files().load_weight_backed(&file, "b").unwrap();
            let both = gpu.files().load_joined_weight_backed(&file, &["a", "b"]);
            [one, both.unwrap()].map(|weight| product(&gpu, &weight))
        });
        assert!(made[0] == made[1], "{form:?}");
        assert!(made[0][1].ends_with(&made[0][0][ROWS..]), "{form:?}");
    }
}

#[test]
fn only_the_header_and_what_is_used_is_asked_for() {
    // Longer than what is read of a file at first.
    let notes = "x".repeat(100_000);
    let plain = matrices();
    let start = 8 + u64::from_le_bytes(plain[..8].try_into().unwrap()) as usize;
    let header = std::str::from_utf8(&plain[8..start]).unwrap();
    let header = header.trim_end().strip_prefix('{').unwrap();
    let header = format!("{{\"__metadata__\":{{\"notes\":\"{notes}\"}},{header}");
    let length = (header.len() as u64).to_le_bytes();
    let bytes = [&length, header.as_bytes(), &plain[start..]].concat();
    let start = 8 + header.len() as u64;

    let (source, asked) = served(&bytes);
    let file = ModelFile::from_source("a server", source, bytes.len() as u64).unwrap();
    assert_eq!(file.names().collect::<Vec<_>>(), ["a", "b"]);
    let read: u64 = asked
        .lock()
        .unwrap()
        .drain(..)
        .map(|one| one.end - one.start)
        .sum();
    assert!(
        read < start + 64_000,
        "{read} bytes for a header of {start}"
    );

    let gpu = open();
    let row_bytes = WIDTH as u64 * 4;
    let rows = gpu.files().load_rows_backed(&file, "b", 3..5).unwrap();
    assert_eq!(asked.lock().unwrap().len(), 0);
    rows.copy().unwrap().force().unwrap();
    let of_b = start + ROWS as u64 * row_bytes;
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0], of_b + 3 * row_bytes..of_b + 5 * row_bytes);
}

#[test]
fn a_small_budget_changes_no_value_and_keeps_no_copy() {
    let bytes = matrices();
    let (source, asked) = served(&bytes);
    let file = ModelFile::from_source("a server", source, bytes.len() as u64).unwrap();
    let (gpu, _) = open_with(Budget {
        staging_bytes: Some(32 << 10),
        host_bytes: Some(0),
        disk_bytes: Some(0),
        ..Budget::device(72 << 10)
    });
    let weights = ["a", "b"].map(|name| gpu.files().load_weight_backed(&file, name).unwrap());
    let first = weights.each_ref().map(|weight| product(&gpu, weight));
    asked.lock().unwrap().clear();
    for _ in 0..3 {
        let again = weights.each_ref().map(|weight| product(&gpu, weight));
        assert!(first == again);
    }
    assert!(asked.lock().unwrap().len() >= 3);
    assert!(gpu.memory().stats().dropped_to_source_bytes > 0);
}

#[test]
fn a_server_that_fails_or_has_another_length_is_an_error() {
    let gone = Source::reader_async(|_, _| async { Err(io::Error::other("status 404")) });
    let (failed, text) = failure(ModelFile::from_source("https://example.org/m", gone, 100));
    assert_eq!(failed, ModelFailure::Io);
    assert!(
        text.contains("https://example.org/m") && text.contains("status 404"),
        "{text}"
    );

    let bytes = matrices();
    let longer = ModelFile::from_source("a server", served(&bytes).0, bytes.len() as u64 + 1);
    assert_eq!(failure(longer).0, ModelFailure::Io);
    let shorter = ModelFile::from_source("a server", served(&bytes).0, bytes.len() as u64 - 1);
    assert_eq!(failure(shorter).0, ModelFailure::Damaged);
    let none = ModelFile::from_source("a server", served(&[]).0, 0);
    assert_eq!(failure(none).0, ModelFailure::Damaged);

    // The first request has the whole header.
    let len_bytes = bytes.len() as u64;
    let beginning = Source::reader_async(move |from, len| {
        let part = match from {
            0 => Ok(bytes[..len as usize].to_vec()),
            _ => Err(io::Error::other("status 416")),
        };
        async move { part }
    });
    let file = ModelFile::from_source("a server", beginning, len_bytes).unwrap();
    let gpu = open();
    let (failed, text) = failure(gpu.files().load_tensor(&file, "b"));
    assert_eq!(failed, ModelFailure::Io);
    assert!(text.contains("status 416"), "{text}");
    let weight = gpu.files().load_weight_backed(&file, "b").unwrap();
    let x = gpu.ones(&[2, WIDTH], DType::F32).unwrap();
    let error = weight
        .linear(&x, None)
        .unwrap()
        .to_vec::<f32>()
        .unwrap_err();
    assert!(
        matches!(error, Error::Source { .. }) && error.to_string().contains("416"),
        "{error}"
    );
}
