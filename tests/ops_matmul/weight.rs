//! Weights in any stored form, above all blocks: the adapter beside the host's decoder, and
//! products beside sums in f64.

use half::f16;
use lapidary::operations::{Activation, BlockFormat, Epilogue, Weight};
use lapidary::sim::SimOptions;
use lapidary::{DType, Gpu, Result, Tensor};

use super::gpu;
use crate::devices::refused;

const SHAPES: [[usize; 2]; 4] = [[1, 256], [7, 768], [64, 512], [130, 256]];

/// Random blocks. The floats of each are small; a block of `Q6_K` has one, at its end.
fn blocks(format: BlockFormat, count: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; count * format.block_bytes()];
    random.fill(&mut bytes);
    let places: &[usize] = match format {
        BlockFormat::Q6K => &[208],
        BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 => &[0],
        _ => &[0, 2],
    };
    for block in bytes.chunks_mut(format.block_bytes()) {
        for &at in places {
            let float = f16::from_f32((random.f32() - 0.5) * 0.02);
            block[at..at + 2].copy_from_slice(&float.to_le_bytes());
        }
    }
    bytes
}

fn weight(gpu: &Gpu, format: BlockFormat, [n, k]: [usize; 2]) -> Weight {
    let of_row = k / format.block_len();
    let bytes = blocks(format, n * of_row, (n * k) as u64);
    let bytes = gpu.tensor(&bytes, &[n, of_row * format.block_bytes()]);
    Weight::from_blocks(format, bytes.unwrap()).unwrap()
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.cast(DType::F32).unwrap().to_vec().unwrap()
}

/// Checks `[…, k]` by `[n, k]`: the error is at most `most` of the sum of all absolute products.
#[track_caller]
fn check(what: &str, found: &Tensor, x: &Tensor, w: &[f32], most: f64) {
    let k = *x.shape().last().unwrap();
    let (found, x) = (floats(found), floats(x));
    let wanted = x.chunks(k).flat_map(|x| w.chunks(k).map(move |w| (x, w)));
    assert_eq!(found.len(), x.len() / k * (w.len() / k), "{what}");
    for (at, (found, (x, w))) in found.iter().zip(wanted).enumerate() {
        let terms = || x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w));
        let (exact, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
        let error = (f64::from(*found) - exact).abs();
        assert!(error <= most * size, "{what}, {at}: {found} for {exact}");
    }
}

#[test]
fn blocks_have_the_elements_that_the_host_decodes() -> Result<()> {
    let (gpu, host) = (gpu(), Gpu::simulated(SimOptions::default())?.0);
    for format in BlockFormat::ALL {
        for shape in SHAPES {
            let what = format!("{format:?}, {shape:?}");
            let [found, wanted] = [&gpu, &host].map(|gpu| weight(gpu, format, shape));
            let wanted = floats(&wanted.dequantize()?);
            assert!(floats(&found.dequantize()?) == wanted, "{what}");
            let n = shape[0] as u32;
            let ids = gpu.tensor(&[n - 1, 0, n / 2, n], &[2, 2])?;
            let rows = found.embedding(&ids)?;
            assert_eq!(rows.shape(), [2, 2, shape[1]]);
            let row = |at: u32| &wanted[at as usize * shape[1]..][..shape[1]];
            let (picked, last) = (floats(&rows), 3 * shape[1]);
            let named = [row(n - 1), row(0), row(n / 2)].concat();
            assert!(picked[..last] == named, "{what}");
        }
    }
    Ok(())
}

#[test]
fn products_with_blocks_are_right_for_any_number_of_rows() -> Result<()> {
    let gpu = gpu();
    for format in BlockFormat::ALL {
        let rows = [&[1, 2, 9][..], &[1, 3, 5, 8], &[1, 4], &[6]];
        for (shape, rows) in SHAPES.into_iter().zip(rows) {
            let weight = weight(&gpu, format, shape);
            let w = floats(&weight.dequantize()?);
            for &m in rows {
                let x = gpu.rand_normal(&[m, shape[1]], 0.0, 1.0, m as u64, DType::F32)?;
                let found = weight.linear(&x, None)?;
                let what = format!("{format:?}, {shape:?}, {m} rows");
                check(&what, &found, &x, &w, 2e-6);
            }
        }
    }
    Ok(())
}

#[test]
fn operands_of_a_product_with_blocks_are_views_of_any_float_and_shape() -> Result<()> {
    let gpu = gpu();
    let weight = weight(&gpu, BlockFormat::Q4K, [10, 512]);
    let w = floats(&weight.dequantize()?);
    let all = gpu.rand_normal(&[2, 3, 513], 0.0, 1.0, 1, DType::F32)?;
    for (dtype, most) in [(DType::F32, 2e-6), (DType::F16, 1e-3), (DType::Bf16, 8e-3)] {
        // Neither contiguous nor at a vec4.
        let x = all.cast(dtype)?.narrow(2, 1, 512)?;
        let found = weight.linear(&x, None)?;
        assert_eq!((found.shape(), found.dtype()), (&[2, 3, 10][..], dtype));
        check(&format!("{dtype}"), &found, &x, &w, most);
        let line = x.flatten()?.narrow(0, 512, 512)?;
        let found = weight.linear(&line, None)?;
        assert_eq!(found.shape(), [10]);
        check(&format!("a line of {dtype}"), &found, &line, &w, most);
    }
    let x = all.narrow(2, 0, 512)?;
    let bias = gpu.rand_normal(&[10], 0.0, 1.0, 2, DType::F32)?;
    let end = Epilogue::new().bias(&bias).activation(Activation::Silu);
    let found = weight.linear_with(&x, &end)?;
    let plain = Weight::new(weight.dequantize()?)?;
    let wanted = plain.linear_with(&x, &end)?;
    for (found, wanted) in floats(&found).into_iter().zip(floats(&wanted)) {
        // The absolute products come to about 1,000.
        assert!((found - wanted).abs() <= 1e-4, "{found} for {wanted}");
    }
    let tracked = x.copy()?.requires_grad()?;
    let loss = weight.linear(&tracked, Some(&bias))?.sum_all()?;
    let grads = loss.backward()?;
    let column_sums = gpu.tensor(&w, &[10, 512])?.sum(&[0])?;
    let (found, wanted) = (floats(&grads.get(&tracked).unwrap()), floats(&column_sums));
    for (found, wanted) in found.chunks(512).flatten().zip(wanted.iter().cycle()) {
        assert!((found - wanted).abs() <= 1e-5, "{found} for {wanted}");
    }
    Ok(())
}

#[test]
fn bytes_may_be_any_view() -> Result<()> {
    let gpu = gpu();
    let format = BlockFormat::Q5_0;
    let bytes = blocks(format, 3 * 4, 9);
    let row = 4 * format.block_bytes();
    let shifted: Vec<u8> = bytes
        .chunks(row)
        .flat_map(|row| [&[0; 3], row].concat())
        .collect();
    let shifted = gpu.tensor(&shifted, &[3, 3 + row])?.narrow(1, 3, row)?;
    let plain = gpu.tensor(&bytes, &[3, row])?;
    let floats = |bytes| -> Result<Vec<f32>> {
        Ok(floats(&Weight::from_blocks(format, bytes)?.dequantize()?))
    };
    let wanted = floats(plain.clone())?;
    assert!(floats(shifted)? == wanted);
    assert!(floats(plain.narrow(0, 1, 2)?)? == wanted[128..]);
    Ok(())
}

#[test]
fn a_product_with_no_elements_is_empty_or_zero() -> Result<()> {
    let gpu = gpu();
    for shape in [[0, 256], [3, 0]] {
        let weight = weight(&gpu, BlockFormat::Q4_0, shape);
        let x = gpu.ones(&[2, shape[1]], DType::F32)?;
        let found = weight.linear(&x, None)?;
        assert_eq!(found.shape(), [2, shape[0]]);
        assert!(floats(&found).iter().all(|&value| value == 0.0));
    }
    let weight = weight(&gpu, BlockFormat::Q8_0, [4, 32]);
    let found = weight.linear(&gpu.ones(&[0, 32], DType::F32)?, None);
    assert_eq!(found?.shape(), [0, 4]);
    Ok(())
}

#[test]
fn plain_and_scaled_weights_are_what_their_tensors_are() -> Result<()> {
    let gpu = gpu();
    let matrix = gpu.rand_normal(&[6, 96], 0.0, 1.0, 3, DType::F32)?;
    let x = gpu.rand_normal(&[2, 96], 0.0, 1.0, 4, DType::F32)?;
    let ids = gpu.tensor(&[5_u32, 1], &[2])?;
    let scaled = matrix.quantize(Some(32))?;
    let weights = [
        Weight::new(matrix.clone())?,
        Weight::new(matrix.cast(DType::Bf16)?)?,
        scaled.clone().into(),
    ];
    for weight in weights {
        assert_eq!((weight.shape(), weight.blocks()), ([6, 96], None));
        let wide = weight.dequantize()?;
        let found = weight.linear(&x, None)?;
        check("linear", &found, &x, &floats(&wide), 2e-6);
        let rows = floats(&weight.embedding(&ids)?);
        assert!(rows == floats(&wide.index_select(0, &ids)?));
    }
    Ok(())
}

#[test]
fn weights_that_cannot_be_are_refused() -> Result<()> {
    let gpu = gpu();
    for shape in [&[2, 143][..], &[288], &[1, 2, 144]] {
        let bytes = gpu.zeros(shape, DType::U8)?;
        let error = Weight::from_blocks(BlockFormat::Q4K, bytes).unwrap_err();
        assert!(error.to_string().contains("whole blocks of 144"), "{error}");
    }
    let words = gpu.zeros(&[2, 144], DType::U32)?;
    refused!(DType: Weight::from_blocks(BlockFormat::Q4K, words));
    let integers = gpu.zeros(&[2, 2], DType::I32)?;
    refused!(DType: Weight::new(integers));
    let line = gpu.zeros(&[2], DType::F32)?;
    refused!(Shape: Weight::new(line));
    let weight = weight(&gpu, BlockFormat::Q8_0, [4, 64]);
    let x = gpu.zeros(&[1, 32], DType::F32)?;
    let error = weight.linear(&x, None).unwrap_err().to_string();
    assert!(error.contains("the last dimension has to be 64"), "{error}");
    let x = gpu.zeros(&[1, 64], DType::I32)?;
    refused!(DType: weight.linear(&x, None));
    let other = super::gpu().zeros(&[1, 64], DType::F32)?;
    refused!(Foreign: weight.linear(&other, None));
    Ok(())
}
