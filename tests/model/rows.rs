//! Some of a tensor's rows are a tensor of their own, with the same elements.

use lapidary::{ModelFailure, ModelFile, Residency};

use crate::files::{bytes_of, failure, file_with, open};

#[test]
fn rows_are_those_of_the_whole_and_are_backed_by_the_file() {
    let all: Vec<f32> = (0..15).map(|at| at as f32).collect();
    let bytes = file_with(&[("table", "F32", &[5, 3], bytes_of(&all))]);
    let (gpu, file) = (open(), ModelFile::from_bytes(bytes).unwrap());
    for (start, end) in [(0, 5), (0, 2), (2, 5), (4, 5), (3, 3)] {
        let rows = gpu.load_rows_backed(&file, "table", start..end).unwrap();
        assert_eq!(rows.shape(), [end - start, 3]);
        if start < end {
            assert_eq!(rows.residency(), Residency::Backed);
        }
        assert_eq!(rows.to_vec::<f32>().unwrap(), all[start * 3..end * 3]);
    }
}

#[test]
fn rows_that_are_not_there_are_refused() {
    let bytes = file_with(&[
        ("table", "F32", &[2, 1], &[0; 8]),
        ("number", "F32", &[], &[0; 4]),
    ]);
    let (gpu, file) = (open(), ModelFile::from_bytes(bytes).unwrap());
    let (kind, _) = failure(gpu.load_rows_backed(&file, "tabel", 0..1));
    assert_eq!(kind, ModelFailure::Name);
    for (name, start, end) in [("table", 1, 3), ("table", 2, 1), ("number", 0, 1)] {
        let (kind, _) = failure(gpu.load_rows_backed(&file, name, start..end));
        assert_eq!(kind, ModelFailure::Shape);
    }
}
