//! Weights of eight bits: the results of quantization, the products with them, and the memory that
//! they take.

use std::sync::Arc;

use half::f16;
use lapidary::{
    Budget, DType, Element, Gpu, Options, Residency, Result, Source, Tensor,
    operations::{Activation, Epilogue, Quantized},
};

use crate::devices::{gives, refused};

use super::gpu;

/// Quantization on the host: values, and a scale for each of them.
fn on_host(weights: &[f32], k: usize, group: usize) -> (Vec<i8>, Vec<f32>) {
    let mut values = Vec::new();
    let mut scales = Vec::new();
    for row in weights.chunks(k.max(1)) {
        for group in row.chunks(group) {
            let largest = group.iter().fold(0.0_f32, |most, v| most.max(v.abs()));
            let scale = largest / 127.0;
            let divisor = if scale == 0.0 { 1.0 } else { scale };
            values.extend(group.iter().map(|v| (v / divisor).round_ties_even() as i8));
            scales.extend(group.iter().map(|_| scale));
        }
    }
    (values, scales)
}

fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.f32() * 2.0 - 1.0).collect()
}

const SHAPES: [(usize, usize, Option<u64>); 7] = [
    (1, 1, None),
    (1, 1, Some(8)),
    (4, 100, Some(32)),
    (64, 384, Some(64)),
    (9, 130, None),
    (2, 50, Some(4096)),
    (1, 515, Some(128)),
];

fn check_against_the_host(gpu: &Gpu, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut any = || {
        let group = [None, Some(8 << random.u32(..6))][random.usize(..2)];
        (random.usize(1..90), random.usize(1..300), group)
    };
    for (n, k, group) in SHAPES.into_iter().chain([any(), any(), any()]) {
        let what = format!("[{n}, {k}] by {group:?}, seed {seed}");
        let weights = noise(seed, n * k);
        let (values, scales) = on_host(&weights, k, group.unwrap_or(4096) as usize);
        let quantized = gpu.tensor(&weights, &[n, k]).unwrap().quantize(group);
        let quantized = quantized.unwrap();
        let of_row = group.map(|group| k.div_ceil(group as usize));
        let shape = [n, of_row.unwrap_or(0)];
        let rank = 1 + usize::from(of_row.is_some());
        assert_eq!(quantized.scales.shape(), &shape[..rank]);
        // Divisions differ in the last bits, so values half way between two integers may differ.
        let got = quantized.values.to_vec::<i8>().unwrap();
        for ((&got, &value), (&weight, &scale)) in
            got.iter().zip(&values).zip(weights.iter().zip(&scales))
        {
            let is_half_way = ((weight / scale).fract().abs() - 0.5).abs() < 1e-3;
            let is_near = is_half_way && (i32::from(got) - i32::from(value)).abs() == 1;
            let fault = format!("{what}: {got} for {weight} by {scale}");
            assert!(got == value || is_near, "{fault}");
        }
        let worth = quantized.dequantize().unwrap().to_vec::<f32>().unwrap();
        for ((worth, &value), &scale) in worth.iter().zip(&got).zip(&scales) {
            let expected = f32::from(value) * scale;
            assert!((worth - expected).abs() <= 1e-6 * expected.abs(), "{what}");
        }
        for m in [1, 7] {
            let x = noise(seed + m as u64, m * k);
            let product = (gpu.tensor(&x, &[m, k]).unwrap()).matmul_quantized(&quantized);
            let product = product.unwrap();
            assert_eq!(product.shape(), [m, n]);
            for (at, got) in product.to_vec::<f32>().unwrap().into_iter().enumerate() {
                let (row, column) = (at / n * k, at % n * k);
                let terms = (0..k).map(|i| f64::from(x[row + i]) * f64::from(worth[column + i]));
                let expected: f64 = terms.sum();
                assert!((f64::from(got) - expected).abs() < 1e-4, "{what}, {m} rows");
            }
        }
    }
}

#[test]
fn values_scales_and_products_are_those_of_the_host() {
    let seed = std::env::var("LAPIDARY_SEED").ok();
    let seed = seed.map_or_else(|| fastrand::u64(..1 << 32), |seed| seed.parse().unwrap());
    println!("LAPIDARY_SEED={seed}");
    check_against_the_host(&gpu(), seed);
}

#[test]
fn the_simulated_device_quantizes_and_multiplies_the_same() -> Result<()> {
    let (gpu, _handle) = Gpu::simulated(lapidary::sim::SimOptions::default())?;
    check_against_the_host(&gpu, 5);
    Ok(())
}

#[test]
fn fusion_changes_neither_values_nor_scales_nor_products() {
    let of = |fusion| {
        let gpu = Gpu::open(Options {
            fuse: Some(fusion),
            ..Options::from_env().unwrap()
        })
        .unwrap();
        let mut all = Vec::new();
        for group in [None, Some(32)] {
            let weights = gpu.tensor(&noise(1, 40 * 100), &[40, 100]).unwrap();
            let quantized = weights.quantize(group).unwrap();
            let x = gpu.tensor(&noise(2, 300), &[3, 100]).unwrap();
            let product = x.matmul_quantized(&quantized).unwrap();
            let result = (product.relu().unwrap() * 2.0_f32).unwrap();
            let bits = |of: &Tensor| -> Vec<u32> {
                let values = of.to_vec::<f32>().unwrap();
                values.into_iter().map(f32::to_bits).collect()
            };
            all.push((
                quantized.values.to_vec::<i8>().unwrap(),
                bits(&quantized.scales),
                bits(&result),
            ));
        }
        all
    };
    assert_eq!(of(true), of(false));
}

#[test]
fn zeros_are_kept_and_what_is_no_number_is_not_hidden() -> Result<()> {
    let gpu = gpu();
    let mut weights = vec![0.5_f32; 4 * 16];
    weights[..16].fill(0.0);
    weights[16] = f32::NAN;
    weights[32 + 9] = f32::NEG_INFINITY;
    weights[48..56].fill(1e-40);
    let tensor = gpu.tensor(&weights, &[4, 16])?;
    let worth = |group| {
        let quantized = tensor.quantize(group).unwrap();
        let ones = gpu.tensor(&[1.0_f32; 16], &[16]).unwrap();
        let sums = ones.matmul_quantized(&quantized).unwrap();
        (
            quantized.dequantize().unwrap().to_vec::<f32>().unwrap(),
            sums.to_vec::<f32>().unwrap(),
        )
    };
    let (by_rows, sums) = worth(None);
    assert_eq!(by_rows[..16], [0.0; 16]);
    assert!(by_rows[16..48].iter().all(|v| v.is_nan()));
    assert!(sums[0] == 0.0 && sums[1].is_nan() && sums[2].is_nan());
    assert!((sums[3] - 4.0).abs() < 1e-5);
    let (by_groups, sums) = worth(Some(8));
    assert!(by_groups[16..24].iter().all(|v| v.is_nan()));
    assert!(by_groups[24..32].iter().all(|v| (v - 0.5).abs() < 1e-6));
    assert!(by_groups[32..40].iter().all(|v| (v - 0.5).abs() < 1e-6));
    assert_eq!(by_groups[48..56], [0.0; 8]);
    assert!(sums[1].is_nan() && (sums[3] - 4.0).abs() < 1e-5);
    Ok(())
}

#[test]
fn batches_views_empties_and_narrow_activations_are_taken() -> Result<()> {
    let gpu = gpu();
    let weights = gpu.tensor(&noise(3, 48 * 96), &[48, 96])?;
    for group in [None, Some(16)] {
        let quantized = weights.quantize(group)?;
        let wide = quantized.dequantize()?;
        let check = |x: &Tensor, quantized: &Quantized, wide: &Tensor, within: f32| {
            let got = x.matmul_quantized(quantized).unwrap();
            let expected = x.linear(&wide.cast(x.dtype()).unwrap(), None).unwrap();
            assert_eq!((got.dtype(), got.shape()), (x.dtype(), expected.shape()));
            let values = |of: Tensor| of.cast(DType::F32).unwrap().to_vec::<f32>().unwrap();
            for (got, expected) in values(got).into_iter().zip(values(expected)) {
                let within = within * expected.abs().max(1.0);
                let is_near = (got - expected).abs() <= within;
                assert!(is_near, "{got} for {expected} {group:?}");
            }
        };
        let x = gpu.tensor(&noise(4, 2 * 3 * 5 * 96), &[2, 3, 5, 96])?;
        check(&x, &quantized, &wide, 1e-4);
        check(&x.narrow(2, 1, 3)?, &quantized, &wide, 1e-4);
        check(&x.transpose(0, 2)?, &quantized, &wide, 1e-4);
        check(&x.cast(DType::F16)?, &quantized, &wide, 2e-2);
        check(&x.cast(DType::Bf16)?, &quantized, &wide, 1e-1);
        check(&x.narrow(0, 0, 0)?, &quantized, &wide, 0.0);
        // Rows of weights, one of them alone, and weights whose rows are not contiguous.
        for (start, len) in [(5, 7), (11, 1), (3, 0)] {
            let part = Quantized {
                values: quantized.values.narrow(0, start, len)?,
                scales: quantized.scales.narrow(0, start, len)?,
            };
            check(&x, &part, &wide.narrow(0, start, len)?, 1e-4);
        }
        let columns = quantized.values.t()?.contiguous()?;
        let turned = Quantized {
            values: columns.t()?,
            scales: quantized.scales.clone(),
        };
        check(&x, &turned, &wide, 1e-4);
        let nothing = gpu.zeros(&[48, 0], DType::F32)?;
        let empty = nothing.quantize(group)?;
        let product = gpu.zeros(&[2, 0], DType::F32)?.matmul_quantized(&empty);
        gives!(f32: product => [0.0; 96]);
        assert_eq!(empty.dequantize()?.shape(), [48, 0]);
    }
    Ok(())
}

#[test]
fn a_layer_ends_in_its_kernel_as_by_operations_of_their_own() -> Result<()> {
    let gpu = gpu();
    let weights = gpu.tensor(&noise(5, 20 * 64), &[20, 64])?;
    let bias = gpu.tensor(&noise(6, 20), &[20])?;
    let columns = gpu.tensor(&noise(7, 20), &[20])?;
    for group in [None, Some(32)] {
        let quantized = weights.quantize(group)?;
        for m in [1, 6, 40] {
            let x = gpu.tensor(&noise(8, m * 64), &[m, 64])?;
            let residual = gpu.tensor(&noise(9, m * 20), &[m, 20])?;
            let end = Epilogue::new()
                .scale_columns(&columns)
                .bias(&bias)
                .activation(Activation::Gelu)
                .residual(&residual);
            let got = x.matmul_quantized_with(&quantized, &end)?;
            let product = (x.matmul_quantized(&quantized)? * &columns)?;
            let hidden = (product + &bias)?.gelu()?;
            let expected = (hidden + &residual)?.to_vec::<f32>()?;
            for (got, expected) in got.to_vec::<f32>()?.into_iter().zip(expected) {
                assert!((got - expected).abs() < 1e-5, "{got} for {expected}");
            }
        }
    }
    Ok(())
}

#[test]
fn quantized_weights_leave_and_come_back_like_any_tensor() -> Result<()> {
    let gpu = gpu();
    let made = (gpu.tensor(&noise(10, 30 * 64), &[30, 64])?).quantize(Some(32));
    let made = made?;
    let x = gpu.tensor(&noise(11, 2 * 64), &[2, 64])?;
    let product = |weights: &Quantized| {
        let product = x.matmul_quantized(weights).unwrap();
        product.to_vec::<f32>().unwrap()
    };
    let expected = product(&made);
    made.values.evict()?;
    made.scales.evict()?;
    assert_ne!(made.values.residency(), Residency::Device);
    assert_eq!(product(&made), expected);
    // From the bytes of a file.
    let of = |bytes: &[u8]| Source::bytes(Arc::from(bytes));
    let values = made.values.to_vec::<i8>()?;
    let scales = made.scales.to_vec::<f32>()?;
    let backed = Quantized {
        values: gpu.backed(of(i8::bytes_of(&values)), &[30, 64], DType::I8)?,
        scales: gpu.backed(of(f32::bytes_of(&scales)), &[30, 2], DType::F32)?,
    };
    assert_eq!(product(&backed), expected);
    Ok(())
}

#[test]
fn narrow_weights_never_exist_in_f32_on_the_device() -> Result<()> {
    let gpu = Gpu::open(Options {
        budget: Some(Budget::default()),
        ..Options::from_env()?
    })?;
    let (n, k) = (2048, 1024);
    let wide_bytes = (n * k * 4) as u64;
    // Created on the host, as a file has them.
    let halves = vec![f16::from_f32(0.25); n * k];
    let halves = gpu.tensor(&halves, &[n, k])?;
    let values = gpu.tensor(&vec![3_i8; n * k], &[n, k])?;
    let by_rows = Quantized {
        values: values.clone(),
        scales: gpu.tensor(&vec![0.5_f32; n], &[n])?,
    };
    let by_groups = Quantized {
        values,
        scales: gpu.tensor(&vec![0.5_f32; n * k / 64], &[n, k / 64])?,
    };
    for m in [1, 8, 300] {
        let x = gpu.tensor(&vec![1.0_f32; m * k], &[m, k])?;
        x.force()?;
        let check = |product: &dyn Fn() -> Tensor, worth: f32| {
            gpu.memory().reset_peaks();
            let before = gpu.memory().stats().live_bytes.now;
            assert_eq!(product().to_vec::<f32>().unwrap(), vec![worth; m * n]);
            let peak = gpu.memory().stats().live_bytes.peak - before;
            // The result, and at most packed operands.
            let most = (m * n * 4 + m.next_multiple_of(64) * k * 4) as u64 + wide_bytes * 5 / 8;
            assert!(peak < most, "{peak} bytes for {m} rows, {most} at the most");
            assert!(m > 8 || peak < wide_bytes / 8, "{peak} bytes for {m} rows");
        };
        check(&|| x.linear(&halves, None).unwrap(), 0.25 * k as f32);
        check(&|| x.matmul_quantized(&by_rows).unwrap(), 1.5 * k as f32);
        check(&|| x.matmul_quantized(&by_groups).unwrap(), 1.5 * k as f32);
    }
    Ok(())
}

#[test]
fn what_does_not_belong_together_is_refused_with_its_numbers() -> Result<()> {
    let gpu = gpu();
    let matrix = gpu.zeros(&[4, 100], DType::F32)?;
    for group in [0, 1, 4, 12, 100, 8192, u64::MAX] {
        let error = matrix.quantize(Some(group)).unwrap_err().to_string();
        let [given, most] = [&group.to_string(), "4096"].map(|text| error.contains(text));
        assert!(given && most, "{error}");
    }
    let vector = gpu.zeros(&[4], DType::F32)?;
    refused!(Shape: vector.quantize(None));
    let integers = gpu.zeros(&[4, 4], DType::I8)?;
    refused!(DType: integers.quantize(None));
    let quantized = matrix.quantize(Some(32))?;
    let x = gpu.zeros(&[2, 99], DType::F32)?;
    let error = x.matmul_quantized(&quantized).unwrap_err().to_string();
    let shapes = ["[2, 99]", "[4, 100]"];
    assert!(shapes.iter().all(|shape| error.contains(shape)), "{error}");
    let x = gpu.zeros(&[2, 100], DType::F32)?;
    let with_scales = |shape: &[usize], dtype| Quantized {
        values: quantized.values.clone(),
        scales: gpu.zeros(shape, dtype).unwrap(),
    };
    for shape in [&[5][..], &[4, 3], &[5, 4], &[], &[4, 4, 1]] {
        let weights = with_scales(shape, DType::F32);
        refused!(Shape: x.matmul_quantized(&weights));
        refused!(Shape: weights.dequantize());
    }
    refused!(DType: x.matmul_quantized(&with_scales(&[4], DType::F16)));
    let wide = Quantized {
        values: matrix.clone(),
        scales: vector,
    };
    refused!(DType: x.matmul_quantized(&wide));
    let integers = gpu.zeros(&[2, 100], DType::I32)?;
    refused!(DType: integers.matmul_quantized(&quantized));
    let elsewhere = super::gpu().zeros(&[2, 100], DType::F32)?;
    refused!(Foreign: elsewhere.matmul_quantized(&quantized));
    let ends = Epilogue::new().scale_columns(&gpu.zeros(&[3], DType::F32)?);
    refused!(Shape: x.matmul_quantized_with(&quantized, &ends));
    Ok(())
}
