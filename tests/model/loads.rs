//! Tensors of a file are loaded, uploaded or backed, from a path or from bytes.

use half::{bf16, f16};
use lapidary::{
    DType, Element, Residency,
    failure::ModelFailure,
    files::{MetaValue, Model, ModelFile},
};

use crate::model::files::{Folder, bytes_of, failure, file_of, file_with, open, open_served};

/// The output of Python's `safetensors.serialize` 0.8.0, byte for byte. It has an f32, an i32, an
/// f16 without elements, a single bool, and metadata.
pub(crate) const GOLDEN: &[u8] = b"\x08\x01\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"},\
    \"a\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[0,12]},\
    \"b\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[12,20]},\
    \"empty\":{\"dtype\":\"F16\",\"shape\":[0,4],\"data_offsets\":[20,20]},\
    \"mask\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[20,21]}}  \
    \0\0\0\x3f\0\0\xc0\x3f\0\0\x20\x40\x01\0\0\0\x01\0\0\0\x01";

/// A file, opened in each way and loaded in both ways.
fn loaded(bytes: &[u8]) -> Vec<Model> {
    let folder = Folder::new();
    let path = folder.with("model.safetensors", bytes);
    let mut models = Vec::new();
    for file in [
        ModelFile::open(path).unwrap(),
        ModelFile::from_bytes(bytes).unwrap(),
        open_served(bytes).unwrap(),
    ] {
        models.push(open().files().load_model(&file, |_| {}).unwrap());
        models.push(open().files().load_model_backed(&file).unwrap());
    }
    models
}

/// One array of a file is loaded with these elements.
#[track_caller]
fn check<T: Element>(dtype: &str, bytes: &[u8], expected: &[T]) {
    // The array before it has one byte, so nothing is aligned.
    let file = file_with(&[
        ("odd", "U8", &[1], &[7]),
        ("it", dtype, &[expected.len()], bytes),
    ]);
    for model in loaded(&file) {
        let it = model.expect("it", &[expected.len()]).unwrap();
        assert_eq!(it.dtype(), T::DTYPE);
        assert!(it.to_vec::<T>().unwrap() == expected, "{dtype}");
        // It can be used in computations too.
        assert!(
            it.copy().unwrap().to_vec::<T>().unwrap() == expected,
            "{dtype}"
        );
    }
}

#[test]
fn the_golden_file_is_read_as_it_was_written() {
    let file = ModelFile::from_bytes(GOLDEN).unwrap();
    assert_eq!(
        file.names().collect::<Vec<_>>(),
        ["a", "b", "empty", "mask"]
    );
    assert_eq!(
        file.metadata().get("format").and_then(MetaValue::as_str),
        Some("pt")
    );
    let a = file.describe("a").unwrap();
    assert_eq!((a.stored.as_str(), a.dtype), ("F32", Some(DType::F32)));
    assert_eq!((a.shape, a.stored_bytes), (&[1, 3][..], 12));
    for model in loaded(GOLDEN) {
        assert_eq!(model.len(), 4);
        assert!(model.get("mask").unwrap().item::<bool>().unwrap());
        assert_eq!(model.get("empty").unwrap().shape(), [0, 4]);
        let a = model.get("a").unwrap();
        assert_eq!(a.shape(), [1, 3]);
        assert_eq!(a.to_vec::<f32>().unwrap(), [0.5, 1.5, 2.5]);
        assert_eq!(model.get("b").unwrap().to_vec::<i32>().unwrap(), [1, 1]);
        assert_eq!(a.tag().name(), Some("a"));
    }
}

#[test]
fn elements_of_every_type_and_length_are_loaded_as_they_were_saved() {
    fn check_type<T: Element>(dtype: &str, element: impl Fn(usize) -> T) {
        for len in [0, 1, 3, 5, 4097] {
            let elements: Vec<T> = (0..len).map(&element).collect();
            check(dtype, bytes_of(&elements), &elements);
        }
    }
    check_type("F32", |i| i as f32 - 0.5);
    check_type("F16", |i| f16::from_f32((i % 1000) as f32));
    check_type("BF16", |i| bf16::from_f32((i % 1000) as f32));
    check_type("I32", |i| i as i32 - 8);
    check_type("U32", |i| u32::MAX - i as u32);
    check_type("I8", |i| i as i8);
    check_type("U8", |i| i as u8);
    check_type("BOOL", |i| i % 3 == 0);
}

#[test]
fn what_is_more_than_is_read_at_once_is_loaded_whole() {
    let elements: Vec<f32> = (0..(1 << 18) + 3).map(|i| i as f32).collect();
    check("F32", bytes_of(&elements), &elements);
}

#[test]
fn elements_that_devices_do_not_have_are_narrowed_where_they_fit() {
    let count = (1 << 17) + 5;
    let numbers: Vec<i32> = (0..count).map(|i| i * 1999 - 7).collect();
    let wide: Vec<u8> = numbers
        .iter()
        .flat_map(|&n| i64::from(n).to_le_bytes())
        .collect();
    check("I64", &wide, &numbers);
    let wide: Vec<u8> = numbers
        .iter()
        .flat_map(|&n| (f64::from(n) / 4.0).to_le_bytes())
        .collect();
    let floats: Vec<f32> = numbers
        .iter()
        .map(|&n| (f64::from(n) / 4.0) as f32)
        .collect();
    check("F64", &wide, &floats);
    let wide: Vec<u8> = [0, 7, u64::from(u32::MAX)]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    check("U64", &wide, &[0, 7, u32::MAX]);
    let narrow: Vec<u8> = [0, -7, i16::MIN]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    check("I16", &narrow, &[0, -7, i32::from(i16::MIN)]);
    let narrow: Vec<u8> = [0, 7, u16::MAX]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    check("U16", &narrow, &[0, 7, u32::from(u16::MAX)]);
}

#[test]
fn a_tensor_that_is_backed_is_nowhere_until_it_is_used() {
    let file = ModelFile::from_bytes(GOLDEN).unwrap();
    let gpu = open();
    let model = gpu.files().load_model_backed(&file).unwrap();
    let a = model.get("a").unwrap();
    assert_eq!(a.residency(), Residency::Backed);
    assert_eq!((&a + &a).unwrap().to_vec::<f32>().unwrap(), [1.0, 3.0, 5.0]);
    assert_eq!(a.residency(), Residency::Device);
    a.evict().unwrap();
    assert_eq!(a.residency(), Residency::Backed);
}

#[test]
fn a_name_that_is_missing_and_a_shape_that_is_wrong_are_told_with_what_there_is() {
    let file = file_with(&[("pooler.weight", "U8", &[2, 3], &[0; 6])]);
    let file = ModelFile::from_bytes(file).unwrap();
    let (failed, text) = failure(file.describe("bert.pooler.weight"));
    assert_eq!(failed, ModelFailure::Name);
    assert!(text.contains("there is pooler.weight"), "{text}");
    let (failed, text) = failure(file.expect("pooler.weight", &[3, 2]));
    assert_eq!(failed, ModelFailure::Shape);
    assert!(
        text.contains("pooler.weight has shape [2, 3], where [3, 2], its transpose, is expected"),
        "{text}"
    );
    assert!(file.expect("pooler.weight", &[2, 3]).is_ok());
    let model = open().files().load_model_backed(&file).unwrap();
    assert_eq!(
        failure(model.expect("pooler.weight", &[6])).0,
        ModelFailure::Shape
    );
    assert_eq!(failure(model.get("x")).0, ModelFailure::Name);
}

#[test]
fn an_empty_file_of_a_model_is_a_model_without_tensors() {
    let file = ModelFile::from_bytes(file_of("{}", &[])).unwrap();
    assert!(file.is_empty());
    assert!(open().files().load_model(&file, |_| {}).unwrap().is_empty());
}
