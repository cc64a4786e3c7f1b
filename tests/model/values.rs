//! Elements that the device's type cannot hold: refused with their place, or rounded on request.

use half::{bf16, f16};
use lapidary::{DType, Error, failure::ModelFailure, files::ModelFile};

use crate::model::files::{bytes_of, failure, file_with, open};

/// Both ways of loading refuse the tensor with this message.
#[track_caller]
fn refuses(dtype: &str, bytes: &[u8], len: usize, says: &str) {
    let file = file_with(&[("odd", "U8", &[3], b"abc"), ("it", dtype, &[len], bytes)]);
    let file = ModelFile::from_bytes(file).unwrap();
    let gpu = open();
    let (failed, text) = failure(gpu.files().load_tensor(&file, "it"));
    assert_eq!(failed, ModelFailure::Value);
    assert!(text.contains(says), "{text}");
    let backed = gpu.files().load_tensor_backed(&file, "it").unwrap();
    match backed.copy().unwrap().force() {
        Err(Error::Source { message, .. }) => assert!(message.contains(says), "{message}"),
        other => panic!("{other:?}"),
    }
    // The other tensors of the file are loaded.
    assert_eq!(
        gpu.files()
            .load_tensor(&file, "odd")
            .unwrap()
            .to_vec::<u8>()
            .unwrap(),
        b"abc"
    );
}

fn bytes<const N: usize>(elements: impl IntoIterator<Item = [u8; N]>) -> Vec<u8> {
    elements.into_iter().flatten().collect()
}

#[test]
fn a_value_that_does_not_fit_is_refused_with_its_place() {
    let wide = |last: i64| {
        bytes(
            (0..40_000)
                .map(i64::to_le_bytes)
                .chain([last.to_le_bytes()]),
        )
    };
    let says = "element 40000 of \"it\" is 2147483648, which does not fit into i32";
    refuses("I64", &wide(1 << 31), 40_001, says);
    refuses("I64", &wide(i64::MIN), 40_001, "is -9223372036854775808");
    let says = "element 1 of \"it\" is 4294967296, which does not fit into u32";
    refuses(
        "U64",
        &bytes([7_u64, 1 << 32].map(u64::to_le_bytes)),
        2,
        says,
    );
    refuses(
        "F64",
        &bytes([0.5, 1e300].map(f64::to_le_bytes)),
        2,
        "element 1 of \"it\"",
    );
    refuses(
        "BOOL",
        &[0, 1, 2, 1],
        4,
        "element 2 of \"it\" is 2, which does not fit into bool",
    );
}

#[test]
fn what_is_not_finite_stays_so() {
    let wide = bytes([f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-300].map(f64::to_le_bytes));
    let file = ModelFile::from_bytes(file_with(&[("it", "F64", &[4], &wide)])).unwrap();
    let loaded = open()
        .files()
        .load_tensor(&file, "it")
        .unwrap()
        .to_vec::<f32>()
        .unwrap();
    assert_eq!(&loaded[..2], [f32::INFINITY, f32::NEG_INFINITY]);
    assert!(loaded[2].is_nan());
    assert_eq!(loaded[3], 0.0);
}

#[test]
fn floats_are_loaded_as_the_type_that_is_wished() {
    let elements: Vec<f32> = (0..300_000).map(|i| (i as f32 - 1000.3) / 7.0).collect();
    let count = [7_i32];
    let file = file_with(&[
        ("it", "F32", &[elements.len()], bytes_of(&elements)),
        ("count", "I32", &[1], bytes_of(&count)),
    ]);
    let file = ModelFile::from_bytes(file).unwrap();
    let gpu = open();
    let halves = file.floats_as(DType::F16).unwrap();
    assert_eq!(halves.describe("it").unwrap().dtype, Some(DType::F16));
    assert_eq!(halves.describe("count").unwrap().dtype, Some(DType::I32));
    let expected: Vec<f16> = elements.iter().map(|&e| f16::from_f32(e)).collect();
    for model in [
        gpu.files().load_model(&halves, |_| {}).unwrap(),
        gpu.files().load_model_backed(&halves).unwrap(),
    ] {
        assert!(model.get("it").unwrap().to_vec::<f16>().unwrap() == expected);
        assert_eq!(model.get("count").unwrap().to_vec::<i32>().unwrap(), [7]);
    }
    let expected: Vec<bf16> = elements.iter().map(|&e| bf16::from_f32(e)).collect();
    let file = file.floats_as(DType::Bf16).unwrap();
    let loaded = gpu.files().load_tensor(&file, "it").unwrap();
    assert!(loaded.to_vec::<bf16>().unwrap() == expected);
    assert!(matches!(
        file.floats_as(DType::I8),
        Err(Error::DType { .. })
    ));
}

#[test]
fn a_float_that_would_become_infinite_is_refused() {
    let file = file_with(&[("it", "F32", &[2], bytes_of(&[65504.0_f32, 65520.0]))]);
    let file = ModelFile::from_bytes(file)
        .unwrap()
        .floats_as(DType::F16)
        .unwrap();
    let (failed, text) = failure(open().files().load_tensor(&file, "it"));
    assert_eq!(failed, ModelFailure::Value);
    assert!(
        text.contains("element 1 of \"it\" is 65520, which does not fit into f16"),
        "{text}"
    );
}

#[test]
fn types_that_devices_do_not_have_are_listed_and_refused() {
    for dtype in ["F8_E4M3", "F8_E5M2", "F8_E8M0", "C64"] {
        let size = if dtype == "C64" { 8 } else { 1 };
        let file = file_with(&[("it", dtype, &[2], &vec![0; 2 * size])]);
        let file = ModelFile::from_bytes(file).unwrap();
        let described = file.describe("it").unwrap();
        assert_eq!((described.stored.as_str(), described.dtype), (dtype, None));
        let gpu = open();
        for failed in [
            failure(gpu.files().load_model(&file, |_| {})),
            failure(gpu.files().load_model_backed(&file)),
            failure(gpu.files().load_tensor(&file, "it")),
        ] {
            assert_eq!(failed.0, ModelFailure::Unsupported);
            assert!(
                failed.1.contains(&format!("it has elements of {dtype}")),
                "{}",
                failed.1
            );
        }
    }
}

#[test]
fn rows_of_a_table_are_loaded_alone() {
    let table: Vec<u8> = (0..7 * 5).collect();
    let wide: Vec<u8> = (0..7 * 5_i64).flat_map(i64::to_le_bytes).collect();
    let file = file_with(&[
        ("odd", "U8", &[1], b"a"),
        ("it", "U8", &[7, 5], &table),
        ("wide", "I64", &[7, 5], &wide),
        ("one", "U8", &[], b"a"),
    ]);
    let file = ModelFile::from_bytes(file).unwrap();
    let gpu = open();
    for rows in [0..7, 0..1, 3..5, 6..7, 7..7, 0..0] {
        let it = gpu
            .files()
            .load_rows_backed(&file, "it", rows.clone())
            .unwrap();
        assert_eq!(it.shape(), [rows.len(), 5]);
        assert_eq!(
            it.to_vec::<u8>().unwrap(),
            table[rows.start * 5..rows.end * 5]
        );
        let wide = gpu
            .files()
            .load_rows_backed(&file, "wide", rows.clone())
            .unwrap();
        let expected: Vec<i32> = (rows.start as i32 * 5..rows.end as i32 * 5).collect();
        assert_eq!(wide.copy().unwrap().to_vec::<i32>().unwrap(), expected);
    }
    #[allow(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    for (name, rows) in [
        ("it", 0..8),
        ("it", 5..3),
        ("it", 8..8),
        ("one", 0..0),
        ("one", 0..1),
    ] {
        let (failed, text) = failure(gpu.files().load_rows_backed(&file, name, rows));
        assert_eq!(failed, ModelFailure::Shape, "{text}");
    }
}
