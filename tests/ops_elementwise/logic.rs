//! Logic, bits, masks; floor division, and angles.

use half::{bf16, f16};
use lapidary::{DType, Error, Gpu, Result, Tensor};

use crate::devices::gpus;
use crate::ops_elementwise::binary::{Method, pairs};
use crate::ops_elementwise::model::{Sample, alike, assert_close, broadcast, tensor};

fn check_logic<T: Sample>(gpu: &Gpu, random: &mut fastrand::Rng) -> Result<()> {
    type Case = (&'static str, Method, fn(bool, bool) -> bool);
    let cases: [Case; 3] = [
        ("logical_and", Tensor::logical_and, |a, b| a && b),
        ("logical_or", Tensor::logical_or, |a, b| a || b),
        ("logical_xor", Tensor::logical_xor, |a, b| a != b),
    ];
    let [a, b] = [(); 2].map(|()| tensor::<T>(gpu, random, &[600]));
    let truths = |t: &Tensor| -> Result<Vec<bool>> {
        let is_true = |x: &T| x.ne(&T::default());
        Ok(t.to_vec::<T>()?.iter().map(is_true).collect())
    };
    let (x, y) = (truths(&a)?, truths(&b)?);
    for (name, method, model) in cases {
        let wanted: Vec<bool> = x.iter().zip(&y).map(|(&a, &b)| model(a, b)).collect();
        assert_eq!(
            method(&a, &b)?.to_vec::<bool>()?,
            wanted,
            "{name} of {a} and {b}"
        );
    }
    Ok(())
}

#[test]
fn truths_combine_whatever_the_type() -> Result<()> {
    for (_, gpu) in gpus() {
        let random = &mut fastrand::Rng::with_seed(9);
        check_logic::<f32>(&gpu, random)?;
        check_logic::<f16>(&gpu, random)?;
        check_logic::<bf16>(&gpu, random)?;
        check_logic::<i8>(&gpu, random)?;
        check_logic::<i32>(&gpu, random)?;
        check_logic::<u32>(&gpu, random)?;
        check_logic::<u8>(&gpu, random)?;
        check_logic::<bool>(&gpu, random)?;
        let a = gpu.tensor(&[false, false, true, true], &[4])?;
        let b = gpu.tensor(&[false, true, false, true], &[4])?;
        assert_eq!((&a & &b)?.to_vec::<bool>()?, [false, false, false, true]);
        assert_eq!((&a | &b)?.to_vec::<bool>()?, [false, true, true, true]);
        assert_eq!((a ^ b)?.to_vec::<bool>()?, [false, true, true, false]);
        let bits = gpu.tensor(&[1_u8, 0x81], &[2])?;
        assert_eq!(bits.left_shift_scalar(1)?.to_vec::<u8>()?, [2, 2]);
        assert_eq!((&bits >> &bits)?.to_vec::<u8>()?, [0, 0]);
    }
    Ok(())
}

fn check_masked<T: Sample>(
    device: &str,
    gpu: &Gpu,
    random: &mut fastrand::Rng,
    value: T,
) -> Result<()>
where
    lapidary::operations::Scalar: From<T>,
{
    for &(shape_a, shape_b, shape) in pairs(T::DTYPE) {
        let mask = tensor::<bool>(gpu, random, shape_a);
        let x = tensor::<T>(gpu, random, shape_b);
        let m = broadcast(&mask.to_vec::<bool>()?, shape_a, shape);
        let y = broadcast(&x.to_vec::<T>()?, shape_b, shape);
        let wanted: Vec<T> = (m.iter().zip(y))
            .map(|(&m, y)| if m { value } else { y })
            .collect();
        let got = x.masked_fill(&mask, value)?;
        assert_eq!((got.dtype(), got.shape()), (T::DTYPE, shape));
        assert!(
            alike(&got.to_vec::<T>()?, &wanted),
            "{x} by {mask} on {device}"
        );
        let out = x.broadcast_to(shape)?.copy()?;
        out.masked_fill_(&mask, value)?;
        assert!(
            alike(&out.to_vec::<T>()?, &wanted),
            "{x} by {mask} in place on {device}"
        );
    }
    Ok(())
}

#[test]
fn a_mask_is_filled_with_one_number() -> Result<()> {
    for (device, gpu) in gpus() {
        let random = &mut fastrand::Rng::with_seed(10);
        check_masked(device, &gpu, random, f32::NEG_INFINITY)?;
        check_masked(device, &gpu, random, f16::from_f32(0.5))?;
        check_masked(device, &gpu, random, bf16::from_f32(0.5))?;
        check_masked(device, &gpu, random, -7_i8)?;
        check_masked(device, &gpu, random, -7_i32)?;
        check_masked(device, &gpu, random, u32::MAX)?;
        check_masked(device, &gpu, random, 9_u8)?;
        check_masked(device, &gpu, random, true)?;
        let x = tensor::<f32>(&gpu, random, &[12, 8]);
        let view = x.narrow(1, 3, 5)?;
        let mask = tensor::<bool>(&gpu, random, &[5]);
        let wanted = view.masked_fill(&mask, 2)?.to_vec::<f32>()?;
        view.masked_fill_(&mask, 2)?;
        assert!(alike(&view.to_vec::<f32>()?, &wanted));
        assert!(matches!(x.masked_fill(&x, 1), Err(Error::DType { .. })));
        assert!(matches!(
            mask.masked_fill(&mask, 1),
            Err(Error::DType { .. })
        ));
        let three = tensor::<bool>(&gpu, random, &[3]);
        assert!(matches!(x.masked_fill(&three, 1), Err(Error::Shape { .. })));
    }
    Ok(())
}

#[test]
fn rounding_down_and_its_remainder_are_those_of_python() -> Result<()> {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    // Dividend, divisor, and the results of Python's // and % (PyTorch's for 0 and infinity).
    let cases = [
        (7.0, 2.0, 3.0, 1.0),
        (-7.0, 2.0, -4.0, 1.0),
        (7.0, -2.0, -4.0, -1.0),
        (-7.0, -2.0, 3.0, -1.0),
        (6.0, 3.0, 2.0, 0.0),
        (-6.0, 3.0, -2.0, 0.0),
        (0.5, 8.0, 0.0, 0.5),
        (-0.5, 8.0, -1.0, 7.5),
        (1e6, 0.25, 4e6, 0.0),
        (5.0, inf, 0.0, 5.0),
        (-5.0, inf, -1.0, inf),
        (5.0, 0.0, inf, nan),
        (-5.0, 0.0, -inf, nan),
        (0.0, 0.0, nan, nan),
        (inf, 2.0, inf, nan),
        (nan, 2.0, nan, nan),
        (2.0, nan, nan, nan),
    ];
    for (device, gpu) in gpus() {
        let a: Vec<f32> = cases.iter().map(|case| case.0).collect();
        let b: Vec<f32> = cases.iter().map(|case| case.1).collect();
        let (a, b) = (gpu.tensor(&a, &[17])?, gpu.tensor(&b, &[17])?);
        let quotients = a.floor_divide(&b)?.to_vec::<f32>()?;
        let rests = a.remainder(&b)?.to_vec::<f32>()?;
        for (k, case) in cases.iter().enumerate() {
            let what = format!("{case:?} on {device}");
            assert_close(
                &what,
                &[quotients[k], rests[k]],
                &[case.2, case.3],
                0.0,
                0.0,
            );
        }
    }
    Ok(())
}

/// Integers far beyond the exact ones of f32. A small quotient is exact; a larger one has an error
/// of a few ulp.
#[test]
fn large_quotients_are_off_by_little() -> Result<()> {
    let dividends = [1e20_f32, 3e30, 1.7e7, 9e8, 5e12, 1e6, 123_456.0];
    let divisors: [f32; 7] = [501.0, 7.0, 3.0, 1000.0, 65_537.0, 1e10, 12.0];
    let pairs = dividends.into_iter().flat_map(|a| divisors.map(|b| (a, b)));
    let (a, b): (Vec<f32>, Vec<f32>) = pairs.unzip();
    for (device, gpu) in gpus() {
        let (x, y) = (gpu.tensor(&a, &[49])?, gpu.tensor(&b, &[49])?);
        let got = x.floor_divide(&y)?.to_vec::<f32>()?;
        for (k, got) in got.into_iter().enumerate() {
            let quotient = a[k] as u128 / b[k] as u128;
            let gap = (got as u128).abs_diff(quotient);
            let unit = (quotient >> 23).max(1);
            let most = if quotient <= 1 << 20 { 0 } else { 4 * unit };
            assert!(gap <= most, "{} // {} on {device}: {got}", a[k], b[k]);
        }
    }
    Ok(())
}

#[test]
fn integers_are_whole_and_finite() -> Result<()> {
    for (device, gpu) in gpus() {
        let x = gpu.tensor(&[i32::MIN, -3, 0, 7, i32::MAX], &[5])?;
        let wanted = x.to_vec::<i32>()?;
        for round in [Tensor::floor, Tensor::ceil, Tensor::round, Tensor::trunc] {
            let got = round(&x)?;
            assert_eq!(
                (got.dtype(), got.to_vec::<i32>()?),
                (DType::I32, wanted.clone())
            );
            got.fill_(1)?;
            assert_eq!(x.to_vec::<i32>()?, wanted, "a copy on {device}");
        }
        for round in [
            Tensor::floor_,
            Tensor::ceil_,
            Tensor::round_,
            Tensor::trunc_,
        ] {
            round(&x)?;
            assert_eq!(x.to_vec::<i32>()?, wanted, "{device}");
        }
        for dtype in [DType::I32, DType::U32, DType::U8, DType::I8, DType::Bool] {
            let x = x.cast(dtype)?;
            assert_eq!(
                x.is_nan()?.to_vec::<bool>()?,
                [false; 5],
                "{dtype} on {device}"
            );
            assert_eq!(
                x.is_inf()?.to_vec::<bool>()?,
                [false; 5],
                "{dtype} on {device}"
            );
            assert_eq!(
                x.is_finite()?.to_vec::<bool>()?,
                [true; 5],
                "{dtype} on {device}"
            );
        }
        let flags = x.gt_scalar(0)?;
        assert!(
            matches!(flags.floor(), Err(Error::DType { .. })),
            "{device}"
        );
        let wide = x.narrow(0, 0, 1)?.broadcast_to(&[3])?;
        assert!(
            matches!(wide.floor_(), Err(Error::Shape { .. })),
            "{device}"
        );
    }
    Ok(())
}

#[test]
fn the_quadrant_follows_from_both_signs_even_of_zero_and_infinity() -> Result<()> {
    let values = [0.0, 1.0, 3e38, 2e-38, f32::INFINITY, f32::NAN];
    let values: Vec<f32> = values.into_iter().flat_map(|x| [x, -x]).collect();
    for (device, gpu) in gpus() {
        let y = gpu.tensor(&values, &[12, 1])?;
        let x = gpu.tensor(&values, &[12])?;
        let got = y.atan2(&x)?.to_vec::<f32>()?;
        for (k, &got) in got.iter().enumerate() {
            let (y, x) = (values[k / 12], values[k % 12]);
            let wanted = f64::from(y).atan2(f64::from(x)) as f32;
            let what = format!("atan2({y:?}, {x:?}) on {device}");
            assert_close(&what, &[got], &[wanted], 1e-6, 0.0);
            assert!(wanted.is_nan() || got.signum() == wanted.signum(), "{what}");
        }
    }
    Ok(())
}

/// By the definition: the largest number that divides both.
fn gcd(a: u64, b: u64) -> u64 {
    match (a, b) {
        (0, other) | (other, 0) => other,
        _ => (1..=a.min(b))
            .rev()
            .find(|by| a.is_multiple_of(*by) && b.is_multiple_of(*by))
            .unwrap_or(1),
    }
}

#[test]
fn divisors_multiples_and_steps_of_integers() -> Result<()> {
    for (device, gpu) in gpus() {
        let values = [0, 1, -1, 2, 12, -18, 97, 360, -1001, 4096];
        let a = gpu.tensor(&values, &[10, 1])?;
        let b = gpu.tensor(&values, &[10])?;
        let [divisors, multiples, steps] = [a.gcd(&b)?, a.lcm(&b)?, a.heaviside(&b)?];
        let [divisors, multiples, steps] = [
            divisors.to_vec::<i32>()?,
            multiples.to_vec::<i32>()?,
            steps.to_vec::<i32>()?,
        ];
        for k in 0..100 {
            let (a, b) = (i64::from(values[k / 10]), i64::from(values[k % 10]));
            let what = format!("{a} and {b} on {device}");
            let common = gcd(a.unsigned_abs(), b.unsigned_abs()) as i64;
            assert_eq!(i64::from(divisors[k]), common, "{what}");
            assert_eq!(
                i64::from(multiples[k]),
                (a * b).abs() / common.max(1),
                "{what}"
            );
            let step = if a == 0 { b } else { i64::from(a > 0) };
            assert_eq!(i64::from(steps[k]), step, "{what}");
        }
        // The pair with most steps, and the least number, whose absolute value wraps.
        let far = gpu.tensor(&[2_971_215_073_u32, 1 << 31, u32::MAX], &[3])?;
        let near = gpu.tensor(&[1_836_311_903_u32, 48, 0], &[3])?;
        assert_eq!(far.gcd(&near)?.to_vec::<u32>()?, [1, 16, u32::MAX]);
        assert_eq!(near.gcd_scalar(0)?.to_vec::<u32>()?[1], 48);
        let least = gpu.tensor(&[i8::MIN, i8::MIN, 60], &[3])?;
        let other = gpu.tensor(&[0_i8, 96, -14], &[3])?;
        assert_eq!(least.gcd(&other)?.to_vec::<i8>()?, [i8::MIN, 32, 2]);
        let small = gpu.tensor(&[4_u8, 0, 100], &[3])?;
        small.lcm_scalar_(6)?;
        assert_eq!(small.to_vec::<u8>()?, [12, 0, 44]);
        let x = gpu.tensor(&[1.0_f32], &[1])?;
        assert!(matches!(x.gcd(&x), Err(Error::DType { .. })));
    }
    Ok(())
}
