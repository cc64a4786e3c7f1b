//! Masks, bits, and rounding of integers.

use half::{bf16, f16};
use lapidary::{DType, Gpu, Result, Tensor};

use crate::devices::{each, gives, reference, refused};
use crate::ops_elementwise::binary::pairs;
use crate::ops_elementwise::model::{Sample, alike, tensor};
use crate::ops_reduce::model::all_same;

#[test]
fn operators_of_truths_and_bits() -> Result<()> {
    for gpu in each() {
        let a = gpu.tensor(&[false, false, true, true], &[4])?;
        let b = gpu.tensor(&[false, true, false, true], &[4])?;
        gives!(bool: &a & &b => [false, false, false, true]);
        gives!(bool: &a | &b => [false, true, true, true]);
        gives!(bool: a ^ b => [false, true, true, false]);
        let bits = gpu.tensor(&[1_u8, 0x81], &[2])?;
        gives!(u8: bits.left_shift(1) => [2, 2]);
        gives!(u8: &bits >> &bits => [0, 0]);
    }
    Ok(())
}

fn check_masked<T: Sample>(gpu: &Gpu, reference: &Gpu, random: &mut fastrand::Rng, value: T)
where
    lapidary::operations::Scalar: From<T>,
{
    for &(shape_a, shape_b, shape) in pairs(T::DTYPE) {
        let mask = tensor::<bool>(gpu, random, shape_a);
        let x = tensor::<T>(gpu, random, shape_b);
        let what = format!("{x} by {mask}");
        all_same(&what, reference, &[&x, &mask], 0.0, |t| {
            let made = t[0].masked_fill(&t[1], value)?;
            assert_eq!((made.dtype(), made.shape()), (T::DTYPE, shape));
            let written = t[0].broadcast_to(shape)?.copy()?;
            written.masked_fill_(&t[1], value)?;
            Ok([made, written])
        });
    }
}

#[test]
fn a_mask_is_filled_with_one_number() -> Result<()> {
    let reference = &reference();
    for gpu in each() {
        let random = &mut fastrand::Rng::with_seed(10);
        check_masked(&gpu, reference, random, f32::NEG_INFINITY);
        check_masked(&gpu, reference, random, f16::from_f32(0.5));
        check_masked(&gpu, reference, random, bf16::from_f32(0.5));
        check_masked(&gpu, reference, random, -7_i8);
        check_masked(&gpu, reference, random, -7_i32);
        check_masked(&gpu, reference, random, u32::MAX);
        check_masked(&gpu, reference, random, 9_u8);
        check_masked(&gpu, reference, random, true);
        let x = tensor::<f32>(&gpu, random, &[12, 8]);
        let view = x.narrow(1, 3, 5)?;
        let mask = tensor::<bool>(&gpu, random, &[5]);
        let wanted = view.masked_fill(&mask, 2)?.to_vec::<f32>()?;
        view.masked_fill_(&mask, 2)?;
        assert!(alike(&view.to_vec::<f32>()?, &wanted));
        refused!(DType: x.masked_fill(&x, 1));
        refused!(DType: mask.masked_fill(&mask, 1));
        let three = tensor::<bool>(&gpu, random, &[3]);
        refused!(Shape: x.masked_fill(&three, 1));
    }
    Ok(())
}

#[test]
fn integers_are_whole_and_finite() -> Result<()> {
    for gpu in each() {
        let x = gpu.tensor(&[i32::MIN, -3, 0, 7, i32::MAX], &[5])?;
        let wanted = x.to_vec::<i32>()?;
        type Round = (fn(&Tensor) -> Result<Tensor>, fn(&Tensor) -> Result<()>);
        let all: [Round; 4] = [
            (Tensor::floor, Tensor::floor_),
            (Tensor::ceil, Tensor::ceil_),
            (Tensor::round, Tensor::round_),
            (Tensor::trunc, Tensor::trunc_),
        ];
        for (round, in_place) in all {
            let got = round(&x)?;
            assert_eq!(got.dtype(), DType::I32);
            assert_eq!(got.to_vec::<i32>()?, wanted);
            got.fill_(1)?;
            assert_eq!(x.to_vec::<i32>()?, wanted, "a copy");
            in_place(&x)?;
            assert_eq!(x.to_vec::<i32>()?, wanted);
        }
        for dtype in [DType::I32, DType::U32, DType::U8, DType::I8, DType::Bool] {
            let x = x.cast(dtype)?;
            assert_eq!(x.is_nan()?.to_vec::<bool>()?, [false; 5], "{dtype}");
            assert_eq!(x.is_inf()?.to_vec::<bool>()?, [false; 5], "{dtype}");
            assert_eq!(x.is_finite()?.to_vec::<bool>()?, [true; 5], "{dtype}");
        }
        refused!(DType: x.gt(0)?.floor());
        refused!(Shape: x.narrow(0, 0, 1)?.broadcast_to(&[3])?.floor_());
    }
    Ok(())
}

#[test]
fn divisors_and_multiples_of_far_integers() -> Result<()> {
    for gpu in each() {
        // The pair with most steps, and the least number, whose absolute value wraps.
        let far = gpu.tensor(&[2_971_215_073_u32, 1 << 31, u32::MAX], &[3])?;
        let near = gpu.tensor(&[1_836_311_903_u32, 48, 0], &[3])?;
        gives!(u32: far.gcd(&near) => [1, 16, u32::MAX]);
        assert_eq!(near.gcd(0)?.to_vec::<u32>()?[1], 48);
        let least = gpu.tensor(&[i8::MIN, i8::MIN, 60], &[3])?;
        let other = gpu.tensor(&[0_i8, 96, -14], &[3])?;
        gives!(i8: least.gcd(&other) => [i8::MIN, 32, 2]);
        let small = gpu.tensor(&[4_u8, 0, 100], &[3])?;
        small.lcm_(6)?;
        assert_eq!(small.to_vec::<u8>()?, [12, 0, 44]);
        let x = gpu.tensor(&[1.0_f32], &[1])?;
        refused!(DType: x.gcd(&x));
    }
    Ok(())
}
