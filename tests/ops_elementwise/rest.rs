//! Remainders of divisions are exact, for operands of any sizes.

use half::{bf16, f16};
use lapidary::{Element, Result};

use crate::devices::{each, gpus};

/// Numbers of all sizes and both signs, infinities and NaN.
const NUMBERS: [f32; 25] = [
    0.0,
    0.3,
    0.7,
    1.0,
    1e-2,
    2.0,
    3.0,
    5.5,
    6.0,
    7.0,
    501.0,
    1e3,
    1e5,
    16_777_215.0,
    16_777_216.0,
    1e20,
    1e30,
    f32::MAX,
    f32::MIN_POSITIVE,
    1.5e-38,
    3e-39,
    1e-44,
    1e-45,
    f32::INFINITY,
    f32::NAN,
];

fn numbers(random: &mut fastrand::Rng) -> Vec<f32> {
    let mut values = NUMBERS.to_vec();
    values.extend((0..40).map(|_| f32::from_bits(random.u32(..))));
    values.extend((0..40).map(|_| random.f32() * 1e4));
    values.into_iter().flat_map(|x| [x, -x]).collect()
}

/// Like Python's `%` and NumPy's.
fn remainder(a: f32, b: f32) -> f32 {
    match a % b {
        0.0 => 0_f32.copysign(b),
        rest if (rest < 0.0) != (b < 0.0) => rest + b,
        rest => rest,
    }
}

/// The same bits, or 0 if the adapter may flush the number.
fn is_same(got: f32, wanted: f32, may_flush: bool) -> bool {
    let is_tiny = wanted.abs() < f32::MIN_POSITIVE;
    got.to_bits() == wanted.to_bits()
        || got.is_nan() && wanted.is_nan()
        || may_flush && is_tiny && got == 0.0
}

#[test]
fn the_remainder_of_floats_is_exact() -> Result<()> {
    let mut random = fastrand::Rng::with_seed(11);
    let values = numbers(&mut random);
    let count = values.len();
    for (device, gpu) in gpus() {
        let may_flush = device.starts_with("adapter");
        let a = gpu.tensor(&values, &[count, 1])?;
        let b = gpu.tensor(&values, &[count])?;
        let rest = (&a % &b)?.to_vec::<f32>()?;
        let pythons = a.remainder(&b)?.to_vec::<f32>()?;
        for (k, (&rest, &pythons)) in rest.iter().zip(&pythons).enumerate() {
            let (a, b) = (values[k / count], values[k % count]);
            let wanted = a % b;
            assert!(
                is_same(rest, wanted, may_flush),
                "{a:e} % {b:e} is {rest:e}, not {wanted:e}, on {device}"
            );
            let wanted = remainder(a, b);
            // If the adapter flushes an operand or an intermediate, it is missing from the sum.
            let least = (a % b).abs().min(b.abs()).min(wanted.abs());
            let is_near = (pythons - wanted).abs() < f32::MIN_POSITIVE;
            let is_flushed = may_flush && least < f32::MIN_POSITIVE && is_near;
            assert!(
                is_same(pythons, wanted, false) || is_flushed,
                "remainder({a:e}, {b:e}) is {pythons:e}, not {wanted:e}, on {device}"
            );
        }
        let one = gpu.tensor(&[1e20_f32], &[1])?.rem(501)?;
        assert_eq!(one.to_vec::<f32>()?, [41.0], "{device}");
    }
    Ok(())
}

#[test]
fn the_remainder_of_narrow_floats_is_that_of_f32_rounded_once() -> Result<()> {
    let mut random = fastrand::Rng::with_seed(12);
    let values = numbers(&mut random);
    let count = values.len();
    for gpu in each() {
        macro_rules! check {
            ($type:ty) => {
                let narrow: Vec<$type> = values.iter().map(|&x| <$type>::from_f32(x)).collect();
                let (a, b) = (
                    gpu.tensor(&narrow, &[count, 1])?,
                    gpu.tensor(&narrow, &[count])?,
                );
                let rest = (&a % &b)?.to_vec::<$type>()?;
                for (k, &rest) in rest.iter().enumerate() {
                    let (a, b) = (narrow[k / count].to_f32(), narrow[k % count].to_f32());
                    let wanted = <$type>::from_f32(a % b).to_f32();
                    // A number that is subnormal in the narrow type may be flushed on the way.
                    let smallest = <$type>::MIN_POSITIVE.to_f32();
                    let is_flushed = wanted.abs() < smallest && rest.to_f32() == 0.0;
                    assert!(
                        is_same(rest.to_f32(), wanted, false) || is_flushed,
                        "{a:e} % {b:e} is {rest:e}, not {wanted:e}, in {}",
                        <$type>::DTYPE
                    );
                }
            };
        }
        check!(f16);
        check!(bf16);
    }
    Ok(())
}
