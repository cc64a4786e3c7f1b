//! Copies, casts, reshapes.

use half::{bf16, f16};
use lapidary::{DType, Gpu, Result, Tensor};

use crate::devices::{each, gpus, refused};
use crate::ops_elementwise::model::{ODD_FLOATS, Sample, alike, tensor, views};
use crate::ops_reduce::model::{Array, download};

/// Copies one of `step` views.
fn check_contiguous<T: Sample>(
    device: &str,
    gpu: &Gpu,
    random: &mut fastrand::Rng,
    step: usize,
) -> Result<()> {
    for x in views::<T>(gpu, random)?.into_iter().step_by(step) {
        let wanted = x.to_vec::<T>()?;
        for y in [x.contiguous()?, x.copy()?] {
            assert!(y.is_contiguous());
            let got = y.to_vec::<T>()?;
            assert!(alike(&got, &wanted), "{x} on {device}: {got:?} {wanted:?}");
        }
        assert!(!x.copy()?.shares_storage_with(&x));
        assert_eq!(x.contiguous()?.shares_storage_with(&x), x.is_contiguous());
        let flat = x.reshape(&[x.len()])?;
        assert_eq!(flat.shape(), [x.len()]);
        assert!(alike(&flat.to_vec::<T>()?, &wanted), "{x} flat on {device}");
    }
    Ok(())
}

#[test]
fn a_copy_is_row_major_and_holds_the_same() -> Result<()> {
    for (device, gpu) in gpus() {
        let random = &mut fastrand::Rng::with_seed(10);
        check_contiguous::<f32>(device, &gpu, random, 1)?;
        check_contiguous::<f16>(device, &gpu, random, 1)?;
        check_contiguous::<u8>(device, &gpu, random, 1)?;
        // Each view needs a compilation, and types of one width differ in nothing else.
        check_contiguous::<bf16>(device, &gpu, random, 5)?;
        check_contiguous::<i8>(device, &gpu, random, 5)?;
        check_contiguous::<i32>(device, &gpu, random, 5)?;
        check_contiguous::<u32>(device, &gpu, random, 5)?;
        check_contiguous::<bool>(device, &gpu, random, 5)?;
    }
    Ok(())
}

#[test]
fn transposes_of_every_shape_are_right_in_and_out_of_blocks() -> Result<()> {
    for gpu in each() {
        let random = &mut fastrand::Rng::with_seed(11);
        for (rows, columns) in [
            (4, 4),
            (8, 12),
            (12, 8),
            (6, 8),
            (8, 6),
            (32, 52),
            (5, 7),
            (1, 8),
            // Tiles of 256 blocks with ragged edges, in the shapes that these matrices choose.
            (68, 76),
            (64, 64),
            (4, 1100),
            (1030, 4),
            // Rows or columns that begin inside vec4s.
            (8, 9),
            (9, 33),
            (33, 9),
            (12, 10),
            (9, 12),
            (67, 66),
            (64, 75),
        ] {
            let x = tensor::<u32>(&gpu, random, &[rows, columns]);
            for y in [x.t()?, x.narrow(1, 1, columns - 1)?.t()?] {
                assert_eq!(y.copy()?.to_vec::<u32>()?, y.to_vec::<u32>()?, "{y}");
            }
            let x = tensor::<u8>(&gpu, random, &[3, rows, 2, columns]);
            for axes in [
                [0, 2, 3, 1],
                [2, 0, 3, 1],
                [0, 3, 2, 1],
                [0, 3, 1, 2],
                [2, 3, 0, 1],
            ] {
                let y = x.permute(&axes)?;
                assert_eq!(y.copy()?.to_vec::<u8>()?, y.to_vec::<u8>()?, "{y}");
            }
            let y = x.permute(&[0, 2, 3, 1])?.flip(&[2])?;
            assert_eq!(y.copy()?.to_vec::<u8>()?, y.to_vec::<u8>()?, "{y}");
            let z = y.cast(DType::F32)?.to_vec::<f32>()?;
            let wanted: Vec<f32> = y.to_vec::<u8>()?.iter().map(|&x| f32::from(x)).collect();
            assert_eq!(z, wanted);
        }
    }
    Ok(())
}

#[test]
fn more_matrices_than_a_grid_has_places_are_transposed() -> Result<()> {
    for gpu in each() {
        let random = &mut fastrand::Rng::with_seed(12);
        let matrices = gpu.caps().max_groups as usize + 3;
        let x = tensor::<u8>(&gpu, random, &[matrices, 4, 8]);
        let y = x.transpose(1, 2)?;
        assert_eq!(y.copy()?.to_vec::<u8>()?, y.to_vec::<u8>()?);
    }
    Ok(())
}

/// Casts, and compares with Rust's `as`.
fn check_cast(device: &str, x: &Tensor, to: DType) -> Result<()> {
    let (from, y) = (x.dtype(), x.cast(to)?);
    assert_eq!(y.dtype(), to);
    let convert = |number: f64| match to {
        // Integers wrap, and floats saturate. Adapters may flush subnormal numbers.
        DType::I32 if !from.is_float() => f64::from(number as i64 as i32),
        DType::U32 if !from.is_float() => f64::from(number as i64 as u32),
        DType::U8 if !from.is_float() => f64::from(number as i64 as u8),
        DType::I8 if !from.is_float() => f64::from(number as i64 as i8),
        // From f64, `half` drops bits that decide how it rounds.
        DType::F16 => f16::from_f32(number as f32).to_f64(),
        DType::Bf16 => bf16::from_f32(number as f32).to_f64(),
        DType::Bool if from == DType::F32 && number.abs() < f64::from(f32::MIN_POSITIVE) => 0.0,
        _ => Array::new(&[], |_| number).rounded(to).values[0],
    };
    for (got, number) in download(&y).values.iter().zip(download(x).values) {
        let wanted = convert(number);
        let what = format!("{number} of {from} as {to} is {got}, not {wanted}, on {device}");
        assert!(alike(&[*got], &[wanted]), "{what}");
    }
    Ok(())
}

#[test]
fn casts_follow_rusts_as() -> Result<()> {
    let ends = [-2147483904.0, -2147483648.0, 2147483520.0, 2147483647.0];
    let above = [2147483648.0, 4294967040.0, 4294967296.0, 16777217.0];
    let small = [255.0, 255.5, 256.0, 0.999, -0.999];
    let more = ends.iter().chain(&above).chain(&small);
    let more = more.map(|&x: &f32| f64::from(x));
    let floats: Vec<f64> = ODD_FLOATS.iter().map(|&x| x.into()).chain(more).collect();
    let ints = [-65536, -257, -1, 0, 1, 255, 256, 65519, 65520, 1 << 24];
    let ints = ints.into_iter().chain([i32::MIN, i32::MAX]).map(f64::from);
    let words = [0, 1, 255, 256, 65519, 65520, 1 << 24, 1 << 31, u32::MAX];
    for (device, gpu) in gpus() {
        for from in DType::ALL {
            let numbers: Vec<f64> = match from {
                DType::I32 => ints.clone().collect(),
                DType::U32 => words.map(f64::from).to_vec(),
                DType::U8 => (0..256).map(f64::from).collect(),
                DType::I8 => (-128..128).map(f64::from).collect(),
                DType::Bool => vec![1.0, 0.0, 1.0],
                _ => {
                    let all = Array::new(&[floats.len()], |at| floats[at]);
                    all.rounded(from).values
                }
            };
            let x = Array::new(&[numbers.len()], |at| numbers[at]).upload(&gpu, from);
            for to in DType::ALL.into_iter().filter(|&to| to != from) {
                check_cast(device, &x, to)?;
            }
        }
    }
    Ok(())
}

#[test]
fn floats_become_narrower_ones_as_on_the_host_and_back() -> Result<()> {
    let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    let mut floats: Vec<f32> = halves.iter().map(|x| x.to_f32()).collect();
    // Between two f16, at their midpoint and just beside it.
    for k in 0..0x7c00_u16 {
        let (a, b) = (f16::from_bits(k).to_f32(), f16::from_bits(k + 1).to_f32());
        let middle = if b.is_finite() {
            (a + b) / 2.0
        } else {
            65520.0
        };
        floats.extend([middle, middle.next_up(), middle.next_down(), -middle]);
    }
    // And between two bf16 with some exponents: next to the midpoint, and with a carry.
    let mut upper = vec![f32::NAN];
    upper.extend([0x7f80_0001, 0xffff_ffff].map(f32::from_bits));
    let exponents = (0x0080..0x0100).chain(0x3f00..0x4000);
    for k in exponents.chain(0x7f00..=0x7f80) {
        for low in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff_u32] {
            upper.extend([0, 1 << 31].map(|sign| f32::from_bits(sign | k << 16 | low)));
        }
    }
    for (device, gpu) in gpus() {
        for some in floats.chunks(10_000) {
            check_cast(device, &gpu.tensor(some, &[some.len()])?, DType::F16)?;
        }
        for some in halves.chunks(10_000) {
            check_cast(device, &gpu.tensor(some, &[some.len()])?, DType::F32)?;
        }
        for some in upper.chunks(10_000) {
            check_cast(device, &gpu.tensor(some, &[some.len()])?, DType::Bf16)?;
        }
    }
    Ok(())
}

#[test]
fn a_reshape_is_a_view_where_it_can_be() -> Result<()> {
    for gpu in each() {
        let random = &mut fastrand::Rng::with_seed(12);
        let x = tensor::<i32>(&gpu, random, &[4, 6]);
        assert!(x.reshape(&[2, 12])?.shares_storage_with(&x));
        let y = x.t()?.reshape(&[24])?;
        assert!(!y.shares_storage_with(&x));
        assert_eq!(y.to_vec::<i32>()?, x.t()?.to_vec::<i32>()?);
        refused!(Shape: x.reshape(&[5]));
    }
    Ok(())
}
