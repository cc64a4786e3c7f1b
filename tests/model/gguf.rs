//! Files of GGUF: what llama.cpp's package wrote is read as it means it, and contradictions are
//! refused.

use lapidary::failure::ModelFailure;
use lapidary::files::{MetaValue, ModelFile};
use lapidary::operations::BlockFormat;
use lapidary::{Budget, DType, Error, Tensor};

use crate::model::files::{Folder, failure, open, open_served, open_with};

/// `tests/data/gguf/files.py` wrote both.
const EVERY: &[u8] = include_bytes!("../data/gguf/every.gguf");
const AS_FLOATS: &[u8] = include_bytes!("../data/gguf/every.safetensors");

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.cast(DType::F32).unwrap().to_vec().unwrap()
}

#[test]
fn tensors_of_every_type_have_the_values_that_llama_cpp_gives_them() {
    let folder = Folder::new();
    let path = folder.with("every.gguf", EVERY);
    let expected = ModelFile::from_bytes(AS_FLOATS).unwrap();
    let opened = [
        ModelFile::open(path),
        ModelFile::from_bytes(EVERY),
        open_served(EVERY),
    ];
    for file in opened {
        let file = file.unwrap();
        assert_eq!(file.len(), expected.len());
        let gpu = open();
        let files = gpu.files();
        let all = files.load_model(&expected, |_| {}).unwrap();
        for (lazy, model) in [
            (false, files.load_model(&file, |_| {}).unwrap()),
            (true, files.load_model_backed(&file).unwrap()),
        ] {
            for tensor in file.tensors() {
                assert_eq!(tensor.name, tensor.stored.trim_start_matches("D_"));
                let (found, wanted) = (model.get(tensor.name), all.get(tensor.name).unwrap());
                let found = found.unwrap();
                assert_eq!(found.shape(), [2, 512]);
                assert_eq!(Some(found.dtype()), tensor.dtype);
                let name = tensor.name;
                assert!(floats(&found) == floats(&wanted), "{name}, lazy {lazy}");
            }
        }
        // Rows begin and end within what the host reads at once.
        for name in ["Q4_0", "Q6_K", "F16"] {
            let row = files.load_rows_backed(&file, name, 1..2).unwrap();
            let wanted = all.get(name).unwrap().narrow(0, 1, 1).unwrap();
            assert!(floats(&row) == floats(&wanted), "{name}");
        }
    }
}

#[test]
fn blocks_are_dropped_and_read_again_under_a_budget() {
    let folder = Folder::new();
    let file = ModelFile::open(folder.with("every.gguf", EVERY)).unwrap();
    let expected = ModelFile::from_bytes(AS_FLOATS).unwrap();
    let (gpu, _) = open_with(Budget {
        host_bytes: Some(0),
        disk_bytes: Some(0),
        staging_bytes: Some(64 << 10),
        ..Budget::device(80 << 10)
    });
    let model = gpu.files().load_model_backed(&file).unwrap();
    let all = gpu.files().load_model_backed(&expected).unwrap();
    for _ in 0..2 {
        for tensor in file
            .tensors()
            .filter(|tensor| tensor.dtype == Some(DType::F32))
        {
            // A kernel needs them on the device.
            let [found, wanted] =
                [&model, &all].map(|model| (model.get(tensor.name).unwrap() + 0.0).unwrap());
            assert!(floats(&found) == floats(&wanted), "{}", tensor.name);
        }
    }
    assert!(gpu.memory().stats().dropped_to_source_bytes > 0);
}

#[test]
fn blocks_become_other_floats_and_eight_bits() {
    let file = ModelFile::from_bytes(EVERY).unwrap();
    let gpu = open();
    let plain = gpu.files().load_tensor(&file, "Q5_K").unwrap();
    for dtype in [DType::F16, DType::Bf16] {
        let narrow = file.floats_as(dtype).unwrap();
        let loaded = gpu.files().load_tensor(&narrow, "Q5_K").unwrap();
        assert_eq!(loaded.dtype(), dtype);
        let rounded = plain.cast(dtype).unwrap();
        assert!(floats(&loaded) == floats(&rounded), "{dtype}");
    }
    let quantized = gpu
        .files()
        .load_quantized_backed(&file, "Q5_K", Some(64))
        .unwrap();
    let again = plain.quantize(Some(64)).unwrap();
    let [a, b] = [quantized, again].map(|one| one.dequantize().unwrap());
    assert!(floats(&a) == floats(&b));
}

/// What `x` gives with a matrix of these elements, by products in f64.
fn products(x: &[f32], w: &[f32], k: usize) -> Vec<f64> {
    let rows = |x: &[f32]| w.chunks(k).map(|w| dot(x, w)).collect::<Vec<f64>>();
    x.chunks(k).flat_map(rows).collect()
}

fn dot(x: &[f32], w: &[f32]) -> f64 {
    let terms = x.iter().zip(w);
    terms.map(|(&x, &w)| f64::from(x) * f64::from(w)).sum()
}

#[test]
fn kernels_read_blocks_as_they_are_stored() {
    let folder = Folder::new();
    let file = ModelFile::open(folder.with("every.gguf", EVERY)).unwrap();
    let as_floats = ModelFile::from_bytes(AS_FLOATS).unwrap();
    let gpu = open();
    let all = gpu.files().load_model(&as_floats, |_| {}).unwrap();
    let mut formats = Vec::new();
    for tensor in file.tensors().filter(|tensor| tensor.shape == [2, 512]) {
        let name = tensor.name;
        let Ok(weight) = gpu.files().load_weight_backed(&file, name) else {
            assert_ne!(tensor.dtype, Some(DType::F32), "{name}");
            continue;
        };
        assert_eq!(weight.shape(), [2, 512]);
        formats.extend(weight.blocks());
        if let Some(format) = weight.blocks() {
            assert_eq!(format.name(), tensor.stored);
            let bytes: u64 = weight.tensors().iter().map(|one| one.size_bytes()).sum();
            assert_eq!(bytes, tensor.stored_bytes);
        }
        let wanted = floats(&all.get(name).unwrap());
        assert!(floats(&weight.dequantize().unwrap()) == wanted, "{name}");
        let ids = gpu.tensor(&[1_u32, 0, 1], &[3, 1]).unwrap();
        let rows = weight.embedding(&ids).unwrap();
        assert_eq!(rows.shape(), [3, 1, 512]);
        let twice: Vec<f32> = [&wanted[512..], &wanted[..]].concat();
        assert!(
            floats(&rows) == [&twice[..], &wanted[512..]].concat()[..3 * 512],
            "{name}"
        );
        if weight.blocks().is_none() {
            continue;
        }
        for m in [1, 2, 3, 5, 8, 9] {
            let x = gpu
                .rand_normal(&[m, 512], 0.0, 1.0, m as u64, DType::F32)
                .unwrap();
            let found = floats(&weight.linear(&x, None).unwrap());
            let x = floats(&x);
            for (at, (found, exact)) in found.iter().zip(products(&x, &wanted, 512)).enumerate() {
                let (x, w) = (&x[at / 2 * 512..], &wanted[at % 2 * 512..]);
                let terms = x[..512].iter().zip(w);
                let size: f64 = terms.map(|(x, w)| f64::from((x * w).abs())).sum();
                let error = (f64::from(*found) - exact).abs();
                assert!(
                    error <= 2e-6 * size,
                    "{name}, {m} rows: {found} for {exact}"
                );
            }
        }
    }
    assert_eq!(formats, BlockFormat::ALL);
}

#[test]
fn stored_blocks_are_dropped_and_read_again_under_a_budget() {
    let folder = Folder::new();
    let file = ModelFile::open(folder.with("every.gguf", EVERY)).unwrap();
    let (gpu, _) = open_with(Budget {
        host_bytes: Some(0),
        disk_bytes: Some(0),
        staging_bytes: Some(32 << 10),
        ..Budget::device(40 << 10)
    });
    let names = BlockFormat::ALL.map(BlockFormat::name);
    let load = |name| gpu.files().load_weight_backed(&file, name).unwrap();
    let weights = names.map(load);
    let x = gpu.ones(&[1, 512], DType::F32).unwrap();
    let sums = || {
        weights
            .each_ref()
            .map(|one| floats(&one.linear(&x, None).unwrap()))
    };
    let first = sums();
    for _ in 0..3 {
        assert!(sums() == first);
    }
    assert!(gpu.memory().stats().dropped_to_source_bytes > 0);
}

#[test]
fn metadata_has_its_types() {
    let file = ModelFile::from_bytes(EVERY).unwrap();
    let value = |key: &str| &file.metadata()[&format!("test.{key}")];
    assert_eq!(value("u8").as_u64(), Some(250));
    assert_eq!(
        (value("i8").as_i64(), value("i8").as_u64()),
        (Some(-5), None)
    );
    assert_eq!(value("u16").as_u64(), Some(65_000));
    assert_eq!(value("i16").as_f64(), Some(-500.0));
    assert_eq!(value("u32").as_u64(), Some(4_000_000_000));
    assert_eq!(value("i32").as_i64(), Some(-2_000_000_000));
    assert_eq!(value("u64").as_u64(), Some(18_000_000_000_000_000_000));
    assert_eq!(value("u64").as_i64(), None);
    assert_eq!(value("i64").as_i64(), Some(-9_000_000_000_000_000_000));
    assert_eq!(value("f32").as_f64(), Some(0.5));
    assert_eq!(value("f64").as_f64(), Some(1e300));
    assert_eq!(value("bool").as_bool(), Some(true));
    assert_eq!(value("text").as_str(), Some("straße\n"));
    let words = value("words").as_list().unwrap();
    let words: Vec<_> = words.iter().filter_map(MetaValue::as_str).collect();
    assert_eq!(words, ["a", "", "b c"]);
    let numbers = value("numbers").as_list().unwrap();
    assert_eq!(numbers.iter().filter_map(MetaValue::as_u64).sum::<u64>(), 6);
    assert_eq!(
        file.metadata()["general.architecture"].as_str(),
        Some("llama")
    );
}

/// A file, part by part.
#[derive(Clone)]
struct Parts {
    version: u32,
    counts: Option<[u64; 2]>,
    values: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    data: Vec<u8>,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

fn value(key: &str, kind: u32, bytes: &[u8]) -> Vec<u8> {
    [&text(key), &kind.to_le_bytes()[..], bytes].concat()
}

fn list(of: u32, count: u64, bytes: &[u8]) -> Vec<u8> {
    [&of.to_le_bytes(), &count.to_le_bytes()[..], bytes].concat()
}

fn tensor(name: &str, dims: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let sizes: Vec<u8> = dims.iter().flat_map(|dim| dim.to_le_bytes()).collect();
    let count = (dims.len() as u32).to_le_bytes();
    [
        &text(name),
        &count[..],
        &sizes,
        &kind.to_le_bytes(),
        &offset.to_le_bytes(),
    ]
    .concat()
}

impl Parts {
    /// Two tensors of 32 bytes, and a value.
    fn new() -> Parts {
        Parts {
            version: 3,
            counts: None,
            values: vec![value("key", 4, &7_u32.to_le_bytes())],
            tensors: vec![tensor("a", &[4, 2], 0, 0), tensor("b", &[8], 26, 32)],
            data: vec![0; 64],
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let own = [self.tensors.len() as u64, self.values.len() as u64];
        let [tensors, values] = self.counts.unwrap_or(own);
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(tensors.to_le_bytes());
        bytes.extend(values.to_le_bytes());
        bytes.extend(self.values.concat());
        bytes.extend(self.tensors.concat());
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.extend(&self.data);
        bytes
    }
}

/// Asserts that a file with this change is refused with this message.
#[track_caller]
fn refuses(change: impl Fn(&mut Parts), says: &str) {
    let mut parts = Parts::new();
    change(&mut parts);
    let folder = Folder::new();
    let path = folder.with("hostile.gguf", &parts.bytes());
    for result in [ModelFile::open(path), ModelFile::from_bytes(parts.bytes())] {
        let (failed, text) = failure(result);
        assert_eq!(failed, ModelFailure::Damaged, "{text}");
        assert!(text.contains(says), "{text:?} should say {says:?}");
        assert!(
            text.len() < 2000 && !text.chars().any(char::is_control),
            "{text:?}"
        );
    }
}

#[test]
fn versions_two_and_three_are_read_and_others_are_named() {
    for version in [2, 3] {
        let parts = Parts {
            version,
            ..Parts::new()
        };
        let file = ModelFile::from_bytes(parts.bytes()).unwrap();
        assert_eq!(file.describe("a").unwrap().shape, [2, 4]);
        assert_eq!(file.metadata()["key"], MetaValue::Unsigned(7));
    }
    refuses(|parts| parts.version = 1, "version 1; 2 and 3 are read");
    refuses(|parts| parts.version = 4, "version 4");
    refuses(|parts| parts.version = 3_u32.swap_bytes(), "big-endian");
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused() {
    let bytes = Parts::new().bytes();
    for len in 0..bytes.len() {
        let (failed, text) = failure(ModelFile::from_bytes(&bytes[..len]));
        assert_eq!(failed, ModelFailure::Damaged, "{len}: {text}");
    }
}

#[test]
fn counts_and_lengths_beyond_the_file_take_no_memory() {
    let most = u64::MAX;
    refuses(
        |parts| parts.counts = Some([most, 1]),
        "tensors, for which its header has no room",
    );
    refuses(
        |parts| parts.counts = Some([2, most]),
        "values of metadata, for which",
    );
    refuses(|parts| parts.counts = Some([3, 1]), "inside another tensor");
    let long = [most.to_le_bytes().as_slice(), b"key"].concat();
    refuses(|parts| parts.values[0] = long.clone(), "a key should have");
    refuses(
        |parts| parts.tensors[0] = long.clone(),
        "the name of a tensor should have",
    );
    let text = value("key", 8, &most.to_le_bytes());
    refuses(
        |parts| parts.values[0] = text.clone(),
        "\"key\" should have",
    );
    let many = value("key", 9, &list(0, most, &[]));
    refuses(
        |parts| parts.values[0] = many.clone(),
        "elements of \"key\"",
    );
}

#[test]
fn values_that_cannot_be_are_refused() {
    let set = |value: Vec<u8>| move |parts: &mut Parts| parts.values[0] = value.clone();
    refuses(
        set(value("key", 13, &[0; 8])),
        "the type 13, which is not known",
    );
    refuses(set(value("key", 9, &list(13, 1, &[0; 8]))), "the type 13");
    refuses(set(value("key", 7, &[2])), "a truth of 2");
    let deep = (0..200).fold(list(0, 0, &[]), |inner, _| list(9, 1, &inner));
    refuses(set(value("key", 9, &deep)), "lists within 4 lists");
    let wide = (0..9).map(|at| value(&at.to_string(), 9, &list(0, 1 << 20, &vec![0; 1 << 20])));
    let wide: Vec<_> = wide.collect();
    refuses(|parts| parts.values = wide.clone(), "are the most");
    refuses(
        |parts| parts.values.push(parts.values[0].clone()),
        "\"key\" comes twice",
    );
    let alignment = |bytes: u32| value("general.alignment", 4, &bytes.to_le_bytes());
    for bytes in [0, 3, 1 << 21] {
        refuses(
            set(alignment(bytes)),
            "`general.alignment` is not a power of two",
        );
    }
    refuses(
        set(value("general.alignment", 8, &text("32"))),
        "`general.alignment`",
    );
}

#[test]
fn tensors_that_cannot_be_are_refused() {
    let set = |tensor: Vec<u8>| move |parts: &mut Parts| parts.tensors[1] = tensor.clone();
    refuses(
        set(tensor("b", &[1; 5], 0, 32)),
        "5 dimensions; 4 are the most",
    );
    refuses(set(tensor("b", &[u64::MAX, 2], 0, 32)), "can be counted");
    refuses(
        set(tensor("b", &[8], 99, 32)),
        "the type 99, which is not known",
    );
    refuses(
        set(tensor("b", &[8], 2, 32)),
        "rows of 8, which are no whole blocks of 32",
    );
    refuses(set(tensor("b", &[8], 0, 33)), "not aligned to 32");
    refuses(set(tensor("b", &[8], 0, 0)), "inside another tensor");
    refuses(set(tensor("b", &[8], 0, 64)), "beyond the file's");
    refuses(
        set(tensor("b", &[8], 0, u64::MAX - 31)),
        "beyond the file's",
    );
    refuses(set(tensor("b", &[9], 0, 32)), "beyond the file's");
    refuses(set(tensor("a", &[8], 0, 32)), "two tensors called \"a\"");
}

#[test]
fn words_that_are_not_utf_8_are_taken_and_names_are_not() {
    let mut parts = Parts::new();
    parts.values[0] = value("key", 8, &[2, 0, 0, 0, 0, 0, 0, 0, b'a', 0xff]);
    let file = ModelFile::from_bytes(parts.bytes()).unwrap();
    assert_eq!(file.metadata()["key"].as_str(), Some("a\u{fffd}"));
    let wrong = [2, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    refuses(|parts| parts.values[0] = wrong.into(), "a key is not UTF-8");
    refuses(
        |parts| parts.tensors[0] = wrong.into(),
        "the name of a tensor is not UTF-8",
    );
}

#[test]
fn a_part_of_a_split_model_says_how_to_join_them() {
    let mut parts = Parts::new();
    parts.values[0] = value("split.count", 2, &3_u16.to_le_bytes());
    let (failed, text) = failure(ModelFile::from_bytes(parts.bytes()));
    assert_eq!(failed, ModelFailure::Unsupported);
    assert!(
        text.contains("one of 3 parts") && text.contains("--merge"),
        "{text}"
    );
    parts.values[0] = value("split.count", 2, &1_u16.to_le_bytes());
    assert_eq!(ModelFile::from_bytes(parts.bytes()).unwrap().len(), 2);
}

#[test]
fn a_type_without_a_kernel_is_listed_and_refused() {
    let mut parts = Parts::new();
    parts.tensors[1] = tensor("b", &[256], 10, 32);
    parts.data.resize(32 + 84, 0);
    let file = ModelFile::from_bytes(parts.bytes()).unwrap();
    let described = file.describe("b").unwrap();
    assert_eq!((described.stored.as_str(), described.dtype), ("Q2_K", None));
    let (failed, text) = failure(open().files().load_tensor(&file, "b"));
    assert_eq!(failed, ModelFailure::Unsupported);
    assert!(text.contains("Q2_K"), "{text}");
    let wrong = open().files().load_quantized_backed(&file, "a", Some(5));
    assert!(matches!(wrong, Err(Error::Option { .. })), "{wrong:?}");
}
