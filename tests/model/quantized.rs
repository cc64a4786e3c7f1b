//! A matrix in eight bits equals the device's result, and the device never holds its floats.

use lapidary::files::{ModelFile, WeightForm};
use lapidary::operations::{BlockFormat, Weight};
use lapidary::{DType, Error, Residency, failure::ModelFailure};

use crate::model::files::{bytes_of, failure, file_with, open};

#[test]
fn a_matrix_is_quantized_by_the_host_as_by_the_device() {
    let (n, k) = (70, 100);
    let mut all: Vec<f32> = (0..n * k)
        .map(|at| ((at * 37 % 101) as f32 - 50.0) / 64.0)
        .collect();
    all[k..2 * k].fill(0.0);
    all[3 * k + 7] = f32::NAN;
    all[4 * k + 9] = 1e-39;
    let bytes = file_with(&[("dense", "F32", &[n, k], bytes_of(&all))]);
    let (gpu, file) = (open(), ModelFile::from_bytes(bytes).unwrap());
    let device = gpu.tensor(&all, &[n, k]).unwrap();
    for group in [None, Some(8), Some(64)] {
        let expected = device.quantize(group).unwrap();
        let got = gpu
            .files()
            .load_quantized_backed(&file, "dense", group)
            .unwrap();
        assert_eq!(got.values.residency(), Residency::Backed);
        assert_eq!(got.scales.residency(), Residency::Backed);
        let bits = |scales: Vec<f32>| -> Vec<u32> {
            let value = |v: f32| if v.is_nan() { f32::NAN } else { v };
            scales.into_iter().map(|v| value(v).to_bits()).collect()
        };
        assert_eq!(got.scales.shape(), expected.scales.shape());
        assert_eq!(
            bits(got.scales.to_vec().unwrap()),
            bits(expected.scales.to_vec().unwrap())
        );
        let values = |values: Vec<i8>| -> Vec<i8> {
            // In a row with a NaN every value means NaN, so the integers do not matter.
            let mut values = values;
            values[3 * k..4 * k].fill(0);
            values
        };
        assert_eq!(
            values(got.values.to_vec().unwrap()),
            values(expected.values.to_vec().unwrap())
        );
        // Also if only a part is read, from the middle of a row on.
        let part = got.values.narrow(0, 1, 5).unwrap();
        got.values.evict().unwrap();
        let same = expected.values.narrow(0, 1, 5).unwrap();
        let [part, same] = [&part, &same].map(|rows| {
            let part = rows.narrow(1, 3, 90).unwrap().to_vec::<i8>().unwrap();
            // The row with the NaN, as above.
            [part[..2 * 90].to_vec(), part[3 * 90..].to_vec()].concat()
        });
        assert_eq!(part, same);
        let x = gpu.ones(&[2, k], DType::F32).unwrap();
        let sums = x.matmul_quantized(&got).unwrap().to_vec::<f32>().unwrap();
        let same = x.matmul_quantized(&expected).unwrap();
        for (got, expected) in sums.iter().zip(same.to_vec::<f32>().unwrap()) {
            assert!(got == &expected || got.is_nan() && expected.is_nan());
        }
    }
}

#[test]
fn what_is_no_matrix_of_floats_is_refused() {
    let bytes = file_with(&[
        ("vector", "F32", &[2], &[0; 8]),
        ("ids", "I32", &[2, 1], &[0; 8]),
        ("empty", "F32", &[3, 0], &[]),
        ("dense", "F32", &[2, 1], &[0; 8]),
    ]);
    let (gpu, file) = (open(), ModelFile::from_bytes(bytes).unwrap());
    let load = |name, group| gpu.files().load_quantized_backed(&file, name, group);
    assert_eq!(failure(load("dens", None)).0, ModelFailure::Name);
    assert!(matches!(load("vector", None), Err(Error::Shape { .. })));
    assert!(matches!(load("ids", None), Err(Error::DType { .. })));
    assert!(matches!(load("dense", Some(12)), Err(Error::Option { .. })));
    let empty = load("empty", None).unwrap();
    assert_eq!(
        (empty.values.shape(), empty.scales.shape()),
        (&[3, 0][..], &[3][..])
    );
    assert_eq!(empty.scales.to_vec::<f32>().unwrap(), [0.0; 3]);
}

/// `crates/lm/tests` compares the blocks, byte by byte in what a model says, with those of
/// llama.cpp's package.
#[test]
fn a_file_says_once_in_which_form_its_weights_are_loaded() {
    let (n, k) = (5, 64);
    let all: Vec<f32> = (0..n * k)
        .map(|at| ((at * 37 % 101) as f32 - 50.0) / 64.0)
        .collect();
    let norm = vec![1.5_f32; k];
    let bytes = file_with(&[
        ("dense", "F32", &[n, k], bytes_of(&all)),
        ("norm", "F32", &[k], bytes_of(&norm)),
    ]);
    let (gpu, file) = (open(), ModelFile::from_bytes(bytes).unwrap());
    for (form, bits, most) in [
        (WeightForm::Stored, 32.0, 0.0),
        (WeightForm::Float(DType::F16), 16.0, 1e-3),
        (WeightForm::Int8 { group: Some(32) }, 9.0, 0.004),
        (WeightForm::Blocks(BlockFormat::Q8_0), 8.5, 0.004),
        (WeightForm::Blocks(BlockFormat::Q5_1), 6.0, 0.03),
        (WeightForm::Blocks(BlockFormat::Q5_0), 5.5, 0.06),
        (WeightForm::Blocks(BlockFormat::Q4_1), 5.0, 0.06),
        (WeightForm::Blocks(BlockFormat::Q4_0), 4.5, 0.12),
    ] {
        let file = file.weights_as(form).unwrap();
        let weight = gpu.files().load_weight_backed(&file, "dense").unwrap();
        let bytes: u64 = weight.tensors().iter().map(|of| of.size_bytes()).sum();
        assert_eq!(bytes as f64 * 8.0, bits * (n * k) as f64, "{form:?}");
        let check = || {
            let got = weight.dequantize().unwrap().cast(DType::F32).unwrap();
            for (got, wanted) in got.to_vec::<f32>().unwrap().into_iter().zip(&all) {
                assert!((got - wanted).abs() <= most, "{form:?}: {got} for {wanted}");
            }
        };
        check();
        for tensor in weight.tensors() {
            tensor.evict().unwrap();
            assert_eq!(tensor.residency(), Residency::Backed, "{form:?}");
        }
        check();
        let norm = gpu.files().load_tensor(&file, "norm").unwrap();
        assert_eq!(norm.dtype(), DType::F32);
    }
}

#[test]
fn rows_of_several_matrices_are_one_weight() {
    let ramp = |from: usize, n: usize| -> Vec<f32> {
        let value = |at: usize| ((at * 37 % 101) as f32 - 50.0) / 64.0;
        (from..from + n * 64).map(value).collect()
    };
    let (one, other, third) = (ramp(0, 3), ramp(7, 5), ramp(99, 1));
    let half = vec![0_u8; 2 * 64];
    let bytes = file_with(&[
        ("one", "F32", &[3, 64], bytes_of(&one)),
        ("other", "F32", &[5, 64], bytes_of(&other)),
        ("third", "F32", &[1, 64], bytes_of(&third)),
        ("half", "F16", &[1, 64], &half),
        ("wide", "F32", &[1, 65], &[0; 4 * 65]),
    ]);
    let (gpu, file) = (open(), ModelFile::from_bytes(bytes).unwrap());
    for form in [
        WeightForm::Stored,
        WeightForm::Float(DType::Bf16),
        WeightForm::Int8 { group: None },
        WeightForm::Int8 { group: Some(16) },
        WeightForm::Blocks(BlockFormat::Q5_1),
    ] {
        let file = file.weights_as(form).unwrap();
        let names = ["one", "other", "third"];
        let joined = gpu
            .files()
            .load_joined_weight_backed(&file, &names)
            .unwrap();
        assert_eq!(joined.shape(), [9, 64]);
        let bits = |of: &Weight| -> Vec<u32> {
            let all = of.dequantize().unwrap().cast(DType::F32).unwrap();
            all.to_vec::<f32>()
                .unwrap()
                .into_iter()
                .map(f32::to_bits)
                .collect()
        };
        let apart = names.map(|name| bits(&gpu.files().load_weight_backed(&file, name).unwrap()));
        assert_eq!(bits(&joined), apart.concat(), "{form:?}");
        joined.tensors()[0].evict().unwrap();
        assert_eq!(bits(&joined), apart.concat(), "{form:?}, read again");
    }
    for names in [&["one", "half"][..], &["one", "wide"], &[]] {
        let error = gpu.files().load_joined_weight_backed(&file, names);
        assert!(matches!(error, Err(Error::Shape { .. })), "{names:?}");
    }
}

#[test]
fn more_rows_than_there_are_numbers_are_refused() {
    let most = [1 << 63, 0];
    let bytes = file_with(&[("one", "F32", &most, &[]), ("other", "F32", &most, &[])]);
    let (gpu, file) = (open(), ModelFile::from_bytes(bytes).unwrap());
    let joined = (gpu.files()).load_joined_weight_backed(&file, &["one", "other"]);
    assert!(matches!(joined, Err(Error::Shape { .. })), "{joined:?}");
}

#[test]
fn forms_that_cannot_be_are_refused() {
    let bytes = file_with(&[
        ("dense", "F32", &[1, 48], &[0; 4 * 48]),
        ("indices", "I32", &[2, 32], &[0; 4 * 64]),
    ]);
    let (gpu, file) = (open(), ModelFile::from_bytes(bytes).unwrap());
    for format in [BlockFormat::Q4K, BlockFormat::Q5K, BlockFormat::Q6K] {
        let error = file.weights_as(WeightForm::Blocks(format)).unwrap_err();
        assert!(matches!(error, Error::Option { .. }), "{error}");
    }
    let error = file.weights_as(WeightForm::Int8 { group: Some(48) });
    assert!(matches!(
        error,
        Err(Error::Option {
            option: "group",
            ..
        })
    ));
    let error = file.weights_as(WeightForm::Float(DType::I8));
    assert!(matches!(error, Err(Error::DType { .. })));
    let small = file.weights_as(WeightForm::Blocks(BlockFormat::Q4_0));
    let small = small.unwrap();
    let error = gpu.files().load_weight_backed(&small, "dense").unwrap_err();
    assert!(error.to_string().contains("rows of 48 elements"), "{error}");
    let error = gpu.files().load_weight_backed(&small, "indices");
    assert!(matches!(error, Err(Error::DType { .. })));
}
