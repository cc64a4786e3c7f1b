//! Tensors created on the device.

use half::f16;
use lapidary::{DType, Residency, Result, Tensor};

use crate::devices::{each, gives, refused};
use crate::ops_elementwise::model::floats;
use crate::ops_reduce::model::{Array, download};

#[test]
fn full_tensors_hold_one_value_of_every_type() -> Result<()> {
    for gpu in each() {
        for len in [0, 1, 3, 5, 64, 1000] {
            let check = |made: Tensor, value: f64| {
                let expected = Array::new(&[len], |_| value).rounded(made.dtype());
                assert_eq!(download(&made), expected, "{}", made.dtype());
            };
            for dtype in [DType::F32, DType::F16, DType::Bf16] {
                check(gpu.full(&[len], 2.5, dtype)?, 2.5);
                check(gpu.full(&[len], -0.1, dtype)?, -0.1);
            }
            check(gpu.full(&[len], -100, DType::I8)?, -100.0);
            check(gpu.full(&[len], -7, DType::I32)?, -7.0);
            check(gpu.full(&[len], u32::MAX, DType::U32)?, f64::from(u32::MAX));
            check(gpu.full(&[len], 200, DType::U8)?, 200.0);
            check(gpu.full(&[len], true, DType::Bool)?, 1.0);
            check(gpu.full(&[len], 0, DType::F32)?, 0.0);
            let minus_zeros = gpu.full(&[len], -0.0, DType::F32)?.to_vec::<f32>()?;
            assert!(minus_zeros.iter().all(|x| x.is_sign_negative()));
        }
        assert_eq!(gpu.scalar(7_i32)?.item::<i32>()?, 7);
        for (value, dtype) in [(300, DType::U8), (-1, DType::U8), (128, DType::I8)] {
            refused!(DType: gpu.full(&[2], value, dtype));
        }
    }
    Ok(())
}

#[test]
fn a_full_tensor_of_an_odd_length_has_its_storage_for_itself() -> Result<()> {
    for gpu in each() {
        for dtype in [DType::F16, DType::U8] {
            let made = gpu.full(&[3], 2, dtype)?;
            let types = gpu.memory().snapshot().types;
            assert!(types.iter().all(|(of, _)| *of == dtype), "{types:?}");
            let copy = made.copy()?;
            // Only what covers its whole storage can be computed again.
            made.recompute_with(&[&copy], |inputs| inputs[0].ones_like())?;
            assert_eq!(download(&made).values, [2.0; 3]);
        }
        let ones = gpu.ones(&[3], DType::F16)?;
        ones.write(&[f16::from_f32(4.0); 3])?;
        assert_eq!(download(&ones).values, [4.0; 3]);
    }
    Ok(())
}

#[test]
fn ranges_count_up_and_down() -> Result<()> {
    for gpu in each() {
        gives!(i32: gpu.arange(0, 5, 1, DType::I32) => [0, 1, 2, 3, 4]);
        gives!(i32: gpu.arange(5, 0, -2, DType::I32) => [5, 3, 1]);
        gives!(u8: gpu.arange(5, 0, -2, DType::U8) => [5, 3, 1]);
        gives!(i8: gpu.arange(100, -101, -200, DType::I8) => [100, -100]);
        gives!(f32: gpu.arange(0, 1, 0.25, DType::F32) => [0.0, 0.25, 0.5, 0.75]);
        // The step is not rounded to 16 bits, only the elements are.
        let halves = gpu.arange(0.0, 3.0, 0.01, DType::Bf16)?;
        assert_eq!(halves.cast(DType::F32)?.to_vec::<f32>()?[299], 2.984375);
        assert_eq!(gpu.arange(3, 3, 1, DType::U32)?.shape(), [0]);
        assert_eq!(gpu.arange(3, 0, 1, DType::U32)?.shape(), [0]);
        let long = gpu.arange(0, 20_001, 1, DType::U32)?.to_vec::<u32>()?;
        assert!(long.iter().enumerate().all(|(k, &x)| k == x as usize));
        for error in [
            gpu.arange(0, 5, 0, DType::I32),
            gpu.arange(0.0, f32::INFINITY, 1.0, DType::F32),
            gpu.arange(0.0, f64::NAN, 1.0, DType::F32),
        ] {
            refused!(Shape: error);
        }
        refused!(DType: gpu.arange(0, 5, 1, DType::Bool));
        assert!(gpu.arange(0.0, 1e30, 1.0, DType::F32).is_err());
    }
    Ok(())
}

#[test]
fn the_identity_has_ones_on_its_diagonal() -> Result<()> {
    for gpu in each() {
        for n in [0, 1, 2, 5, 8] {
            let wanted: Vec<f32> = (0..n * n)
                .map(|k| f32::from(u8::from(k / n == k % n)))
                .collect();
            for dtype in DType::ALL {
                let x = gpu.eye(n, dtype)?.cast(DType::F32)?;
                assert_eq!(x.to_vec::<f32>()?, wanted, "{dtype}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_seed_draws_the_same_everywhere_and_another_seed_something_else() -> Result<()> {
    let mut drawn: Vec<Vec<f32>> = Vec::new();
    for gpu in each() {
        let uniform = gpu.rand_uniform(&[1001], -2.0, 3.0, 42, DType::F32)?;
        let normal = gpu.rand_normal(&[1001], 1.0, 2.0, 42, DType::F32)?;
        let both = [uniform.to_vec::<f32>()?, normal.to_vec::<f32>()?].concat();
        if let Some(first) = drawn.first() {
            for (k, (a, b)) in both.iter().zip(first).enumerate() {
                assert!(
                    (a - b).abs() < 4e-3 * (1.0 + a.abs()) * 1e-2,
                    "{k}: {a} and {b}"
                );
            }
        }
        drawn.push(both);
        let other = gpu
            .rand_uniform(&[1001], -2.0, 3.0, 43 << 32, DType::F32)?
            .to_vec::<f32>()?;
        let equal = other.iter().zip(&drawn[0]).filter(|(a, b)| a == b).count();
        assert!(equal < 5, "{equal}");
    }
    Ok(())
}

#[test]
fn what_is_drawn_is_spread_as_it_should_be() -> Result<()> {
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let x = floats(&gpu.rand_uniform(&[20_000], 2.0, 4.0, 7, dtype)?)?;
            assert!(x.iter().all(|&x| (2.0..=4.0).contains(&x)));
            assert!(dtype != DType::F32 || x.iter().all(|&x| x < 4.0));
            let mean = x.iter().sum::<f32>() / 20_000.0;
            assert!((mean - 3.0).abs() < 0.02, "{mean}");
            let below = x.iter().filter(|&&x| x < 2.5).count();
            assert!((4_750..5_250).contains(&below), "{below}");
            let x = floats(&gpu.rand_normal(&[20_000], 5.0, 2.0, 7, dtype)?)?;
            let mean = x.iter().sum::<f32>() / 20_000.0;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / 20_000.0;
            assert!((mean - 5.0).abs() < 0.05, "{mean}");
            assert!((variance - 4.0).abs() < 0.15, "{variance}");
            let within = x.iter().filter(|&&x| (x - 5.0).abs() < 2.0).count();
            assert!((13_350..13_950).contains(&within), "{within}");
        }
        refused!(Option: gpu.rand_uniform(&[3], 1.0, 1.0, 0, DType::F32));
        refused!(Option: gpu.rand_normal(&[3], 0.0, -1.0, 0, DType::F32));
        refused!(DType: gpu.rand_normal(&[3], 0.0, 1.0, 0, DType::I32));
    }
    Ok(())
}

#[test]
fn ones_are_true_where_the_type_is_bool() -> Result<()> {
    for gpu in each() {
        let ones = gpu.ones(&[2], DType::Bool)?;
        assert_eq!(ones.to_vec::<bool>()?, [true; 2]);
    }
    Ok(())
}

#[test]
fn what_is_like_another_has_its_shape_and_type_alone() -> Result<()> {
    for gpu in each() {
        let x = gpu.tensor(&[1.5_f32, -2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
        let view = x.t()?;
        for made in [
            view.empty_like()?,
            view.zeros_like()?,
            view.ones_like()?,
            view.full_like(2)?,
            view.rand_uniform_like(0.0, 1.0, 3)?,
            view.rand_normal_like(0.0, 1.0, 3)?,
        ] {
            assert_eq!((made.shape(), made.dtype()), (view.shape(), DType::F32));
            assert!(made.is_contiguous() && !made.shares_storage_with(&x));
        }
        gives!(f32: view.full_like(2.5) => [2.5; 6]);
        let drawn = view.rand_uniform_like(0.0, 1.0, 3)?.to_vec::<f32>()?;
        let again = gpu.rand_uniform(&[3, 2], 0.0, 1.0, 3, DType::F32)?;
        assert_eq!(drawn, again.to_vec::<f32>()?);
        let mask = x.gt(2)?;
        gives!(bool: mask.zeros_like() => [false; 6]);
        gives!(bool: mask.ones_like() => [true; 6]);
        let bytes = x.cast(DType::U8)?;
        gives!(u8: bytes.ones_like() => [1; 6]);
        refused!(DType: bytes.full_like(-1));
        assert!(bytes.rand_normal_like(0.0, 1.0, 3).is_err());
    }
    Ok(())
}

#[test]
fn an_empty_tensor_keeps_whatever_bytes_it_has() -> Result<()> {
    for gpu in each() {
        // Leaves garbage in the memory.
        drop(gpu.full(&[6000], 7, DType::I32)?);
        let commands = gpu.memory().stats().commands;
        let x = gpu.empty(&[6000], DType::I32)?;
        gpu.finish()?;
        assert_eq!(x.residency(), Residency::Pending);
        assert!(
            gpu.memory().stats().commands <= commands + 1,
            "something was cleared"
        );
        // Written elements keep their values, and unwritten ones too, wherever the bytes go.
        x.narrow(0, 1, 2)?.copy_(&gpu.tensor(&[-1, -2], &[2])?)?;
        let first = x.to_vec::<i32>()?;
        assert_eq!(first[1..3], [-1, -2]);
        x.evict()?;
        x.prefetch()?;
        assert_eq!(x.to_vec::<i32>()?, first);
        assert_eq!(x.add(0)?.to_vec::<i32>()?, first);
        // It may be used in other ways before it is written.
        let unwritten = gpu.empty(&[100], DType::F16)?;
        unwritten.evict()?;
        assert_eq!(unwritten.residency(), Residency::Pending);
        let _pinned = unwritten.pin()?;
        assert_eq!(unwritten.residency(), Residency::Device);
        let [one, other] = [unwritten.to_vec::<f16>()?, unwritten.to_vec::<f16>()?];
        assert!(
            one.iter()
                .zip(&other)
                .all(|(a, b)| a.to_bits() == b.to_bits())
        );
        let flags = gpu.empty(&[1000], DType::Bool)?;
        assert_eq!(flags.to_vec::<bool>()?, [false; 1000]);
        gives!(f32: gpu.empty(&[0, 3], DType::F32) => [0.0; 0]);
        assert!(gpu.empty(&[usize::MAX, 2], DType::F32).is_err());
    }
    Ok(())
}
