//! A mixture of all families on one device, compared with plain Rust. Devices with unusual limits
//! use other kernels for the same numbers.

use half::f16;
use lapidary::{DType, Gpu, Result, Tensor};

use super::{assert_close, floats, small};

/// Rows and columns: odd, and as f32 more than one window of 64 KiB but less than two.
const SHAPE: [usize; 2] = [129, 241];
const LEN: usize = SHAPE[0] * SHAPE[1];

/// Runs one case of each family.
pub(crate) fn run(gpu: &Gpu) -> Result<()> {
    elements(gpu)?;
    copies(gpu)?;
    folds(gpu)?;
    rows(gpu)?;
    products(gpu)?;
    pieces(gpu)?;
    in_place(gpu)?;
    creation(gpu)
}

fn pair(gpu: &Gpu) -> Result<(Vec<f32>, Vec<f32>, Tensor, Tensor)> {
    let (x, y) = (small(LEN, 1), small(LEN, 2));
    let (a, b) = (gpu.tensor(&x, &SHAPE)?, gpu.tensor(&y, &SHAPE)?);
    Ok((x, y, a, b))
}

fn elements(gpu: &Gpu) -> Result<()> {
    let (x, y, a, b) = pair(gpu)?;
    let zipped =
        |f: fn(f32, f32) -> f32| -> Vec<f32> { x.iter().zip(&y).map(|(&x, &y)| f(x, y)).collect() };
    assert_eq!(floats(&(&a + &b)?), zipped(|x, y| x + y));
    assert_eq!(floats(&(&a * 0.5)?), zipped(|x, _| 0.5 * x));
    assert_eq!(floats(&(1.0 - &b)?), zipped(|_, y| 1.0 - y));
    assert_eq!(floats(&a.relu()?), zipped(|x, _| x.max(0.0)));
    assert_close(&floats(&a.exp()?), &zipped(|x, _| x.exp()));
    let larger = a.gt(&b)?;
    let expected: Vec<bool> = x.iter().zip(&y).map(|(x, y)| x > y).collect();
    assert_eq!(larger.to_vec::<bool>()?, expected);
    assert_eq!(floats(&larger.where_(&a, &b)?), zipped(f32::max));
    let row = gpu.tensor(&small(SHAPE[1], 3), &[SHAPE[1]])?;
    let with_row: Vec<f32> = x
        .chunks(SHAPE[1])
        .flat_map(|line| {
            line.iter()
                .zip(small(SHAPE[1], 3))
                .map(|(x, bias)| x + bias)
        })
        .collect();
    assert_eq!(floats(&(&a + &row)?), with_row);
    Ok(())
}

fn copies(gpu: &Gpu) -> Result<()> {
    let (x, _, a, _) = pair(gpu)?;
    let transposed: Vec<f32> = (0..LEN)
        .map(|i| x[i % SHAPE[0] * SHAPE[1] + i / SHAPE[0]])
        .collect();
    assert_eq!(floats(&a.t()?), transposed);
    assert_eq!(floats(&a.t()?.contiguous()?), transposed);
    let flipped: Vec<f32> = x.iter().rev().copied().collect();
    assert_eq!(floats(&a.flip(&[0, 1])?.contiguous()?), flipped);
    assert_eq!(floats(&a.cast(DType::F16)?.cast(DType::F32)?), x);
    let bytes: Vec<u8> = x.iter().map(|&x| x.max(0.0) as u8).collect();
    assert_eq!(a.relu()?.cast(DType::U8)?.to_vec::<u8>()?, bytes);
    assert_eq!(floats(&a.reshape(&[LEN])?), x);
    Ok(())
}

fn folds(gpu: &Gpu) -> Result<()> {
    let (x, _, a, _) = pair(gpu)?;
    let by_row: Vec<f32> = x.chunks(SHAPE[1]).map(|row| row.iter().sum()).collect();
    let column = |c: usize| x.iter().skip(c).step_by(SHAPE[1]);
    let by_column: Vec<f32> = (0..SHAPE[1]).map(|c| column(c).sum()).collect();
    let highest: Vec<f32> = (0..SHAPE[1])
        .map(|c| column(c).copied().fold(f32::MIN, f32::max))
        .collect();
    assert_eq!(floats(&a.sum(&[1])?), by_row);
    assert_eq!(floats(&a.sum(&[0])?), by_column);
    assert_eq!(a.sum_all()?.item::<f32>()?, x.iter().sum::<f32>());
    assert_eq!(floats(&a.max(&[0])?), highest);
    let first_highest = |row: &[f32]| {
        let highest = row.iter().copied().fold(f32::MIN, f32::max);
        row.iter().position(|&x| x == highest).expect("it is there") as u32
    };
    let places: Vec<u32> = x.chunks(SHAPE[1]).map(first_highest).collect();
    assert_eq!(a.argmax(1)?.to_vec::<u32>()?, places);
    Ok(())
}

fn rows(gpu: &Gpu) -> Result<()> {
    let (x, _, a, _) = pair(gpu)?;
    let softmax: Vec<f32> = x
        .chunks(SHAPE[1])
        .flat_map(|row| {
            let total: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
            row.iter()
                .map(move |&x| (f64::from(x).exp() / total) as f32)
        })
        .collect();
    assert_close(&floats(&a.softmax(-1)?), &softmax);
    let normal: Vec<f32> = x
        .chunks(SHAPE[1])
        .flat_map(|row| {
            let len = row.len() as f64;
            let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / len;
            let square = |&x: &f32| (f64::from(x) - mean).powi(2);
            let deviation = (row.iter().map(square).sum::<f64>() / len + 1e-5).sqrt();
            row.iter()
                .map(move |&x| (2.0 * (f64::from(x) - mean) / deviation + 1.0) as f32)
        })
        .collect();
    let weight = gpu.full(&[SHAPE[1]], 2.0, DType::F32)?;
    let bias = gpu.full(&[SHAPE[1]], 1.0, DType::F32)?;
    let got = a.layer_norm(&[SHAPE[1]], Some(&weight), Some(&bias), 1e-5)?;
    assert_close(&floats(&got), &normal);
    Ok(())
}

fn products(gpu: &Gpu) -> Result<()> {
    let (x, y, a, b) = pair(gpu)?;
    let [rows, columns] = SHAPE;
    let w = small(columns * 33, 4);
    let by_w: Vec<f32> = (0..rows * 33)
        .map(|at| {
            let (i, j) = (at / 33, at % 33);
            (0..columns)
                .map(|k| x[i * columns + k] * w[k * 33 + j])
                .sum()
        })
        .collect();
    let product = a.matmul(&gpu.tensor(&w, &[columns, 33])?)?;
    assert_eq!(floats(&product), by_w);
    let inner: Vec<f32> = (0..rows * rows)
        .map(|at| {
            let (i, j) = (at / rows * columns, at % rows * columns);
            (0..columns).map(|k| x[i + k] * y[j + k]).sum()
        })
        .collect();
    assert_eq!(floats(&a.matmul(&b.t()?)?), inner);
    Ok(())
}

fn pieces(gpu: &Gpu) -> Result<()> {
    let (x, y, a, b) = pair(gpu)?;
    assert_eq!(
        floats(&Tensor::concat(&[&a, &b], 0)?),
        [x.clone(), y.clone()].concat()
    );
    let lines = |v: &[f32]| v.chunks(SHAPE[1]).map(<[f32]>::to_vec).collect::<Vec<_>>();
    let side_by_side: Vec<f32> = lines(&x)
        .into_iter()
        .zip(lines(&y))
        .flat_map(|(x, y)| [x, y].concat())
        .collect();
    assert_eq!(floats(&Tensor::concat(&[&a, &b], 1)?), side_by_side);
    let backwards: Vec<u32> = (0..SHAPE[0] as u32).rev().collect();
    let picked = a.index_select(0, &gpu.tensor(&backwards, &[SHAPE[0]])?)?;
    let expected: Vec<f32> = lines(&x).into_iter().rev().flatten().collect();
    assert_eq!(floats(&picked), expected);
    Ok(())
}

fn in_place(gpu: &Gpu) -> Result<()> {
    let (x, y, a, b) = pair(gpu)?;
    a.add_(&b)?;
    a.mul_(2.0)?;
    let mut expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 2.0 * (x + y)).collect();
    assert_eq!(floats(&a), expected);
    a.narrow(1, 1, 3)?.fill_(7.0)?;
    for row in expected.chunks_mut(SHAPE[1]) {
        row[1..4].fill(7.0);
    }
    assert_eq!(floats(&a), expected);
    Ok(())
}

fn creation(gpu: &Gpu) -> Result<()> {
    let counted: Vec<i32> = (0..LEN as i32).collect();
    assert_eq!(
        gpu.arange(0, LEN as i64, 1, DType::I32)?.to_vec::<i32>()?,
        counted
    );
    let written = gpu.upload_with(&[LEN], |out| {
        out.push(counted[0]);
        out.extend_from_slice(&counted[1..20_000]);
        out.extend(counted[20_000..].iter().copied());
    })?;
    assert_eq!(written.to_vec::<i32>()?, counted);
    let halves = gpu.full(&[LEN], 1.5, DType::F16)?;
    assert_eq!(halves.to_vec::<f16>()?, vec![f16::from_f32(1.5); LEN]);
    let eye = gpu.eye(SHAPE[0], DType::F32)?;
    assert_eq!(eye.sum_all()?.item::<f32>()?, SHAPE[0] as f32);
    let drawn = floats(&gpu.rand_uniform(&SHAPE, -1.0, 1.0, 9, DType::F32)?);
    assert!(drawn.iter().all(|x| (-1.0..1.0).contains(x)));
    let mean = drawn.iter().sum::<f32>() / LEN as f32;
    assert!(mean.abs() < 0.02, "mean {mean}");
    Ok(())
}
