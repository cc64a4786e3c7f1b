//! Operations on three elements, and interpolation between two tensors.

use half::{bf16, f16};
use lapidary::{DType, Gpu, Result, Tensor};

use crate::devices::{each, gives, gpus, reference, refused};
use crate::ops_elementwise::model::{Sample, assert_close, check_all, floats, tensor};

type Method = fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>;

const CASES: [(&str, Method); 4] = [
    ("lerp", |a, b, c| a.lerp(b, c)),
    ("lerp, a number", |a, b, _| a.lerp(b, 0.25)),
    ("addcmul", |a, b, c| a.addcmul(b, c, -0.5)),
    ("addcdiv", |a, b, c| a.addcdiv(b, c, 2)),
];

/// The shapes of three tensors, and the shape to which they broadcast.
const SHAPES: [([&[usize]; 3], &[usize]); 5] = [
    ([&[0], &[1], &[0]], &[0]),
    ([&[300], &[300], &[300]], &[300]),
    ([&[6, 8], &[8], &[6, 1]], &[6, 8]),
    ([&[5, 7], &[], &[7]], &[5, 7]),
    ([&[4, 1, 3], &[5, 1], &[4, 5, 3]], &[4, 5, 3]),
];

/// Small numbers: with large ones, sums may cancel completely.
fn small<T: Sample>(gpu: &Gpu, random: &mut fastrand::Rng, shape: &[usize]) -> Result<Tensor> {
    let odd = tensor::<T>(gpu, random, shape);
    odd.nan_to_num(f32::NAN, Some(2.0), Some(-2.0))?
        .clamp(-4.0, 4.0)
}

fn check<T: Sample>(
    device: &str,
    gpu: &Gpu,
    reference: &Gpu,
    random: &mut fastrand::Rng,
) -> Result<()> {
    for (shapes, shape) in SHAPES {
        let [a, b, c] = shapes.map(|shape| small::<T>(gpu, random, shape));
        let (a, b, c) = (a?, b?, c?);
        let (x, y, z) = (a.to(reference)?, b.to(reference)?, c.to(reference)?);
        for (name, method) in CASES {
            let (got, wanted) = (method(&a, &b, &c)?, method(&x, &y, &z)?);
            assert_eq!(got.dtype(), T::DTYPE);
            // With only two tensors, the result has their common shape.
            assert!(got.shape() == shape || name == "lerp, a number", "{name}");
            // After cancellation the error is that of the terms.
            let zero = x.cast(DType::F32)?.zeros_like()?;
            let [y, z] = [&y, &z].map(|x| x.cast(DType::F32));
            let term = floats(&method(&zero, &y?, &z?)?)?;
            let what = format!("{name} of {a}, {b} and {c} on {device}");
            let error = |at: usize| Some([1e-6, 1e-6 * (1.0 + term[at].abs().min(1e30))]);
            check_all(&what, &got, &wanted, error, |at| format!("element {at}"))?;
        }
    }
    Ok(())
}

#[test]
fn three_tensors_broadcast_and_meet() -> Result<()> {
    let reference = &reference();
    for (device, gpu) in gpus() {
        let random = &mut fastrand::Rng::with_seed(30);
        check::<f32>(device, &gpu, reference, random)?;
        check::<f16>(device, &gpu, reference, random)?;
        check::<bf16>(device, &gpu, reference, random)?;
    }
    Ok(())
}

#[test]
fn both_ends_are_met_and_integers_wrap() -> Result<()> {
    for gpu in each() {
        let a = gpu.tensor(&[0.1_f32, -7.3, 1e8, -3e-5], &[4])?;
        let b = gpu.tensor(&[0.7_f32, 1e9, -0.3, 12.1], &[4])?;
        assert_eq!(a.lerp(&b, 0.0)?.to_vec::<f32>()?, a.to_vec::<f32>()?);
        assert_eq!(a.lerp(&b, 1.0)?.to_vec::<f32>()?, b.to_vec::<f32>()?);
        let ends = gpu.tensor(&[0.0_f32, 1.0, 0.0, 1.0], &[4])?;
        let met = a.lerp(&b, &ends)?.to_vec::<f32>()?;
        assert_eq!(met, [0.1, 1e9, 1e8, 12.1]);
        let n = gpu.tensor(&[250_u8, 3, 0], &[3])?;
        let m = gpu.tensor(&[2_u8, 100, 9], &[3])?;
        gives!(u8: n.addcmul(&m, &m, 3) => [6, 51, 243]);
        let n = gpu.tensor(&[i32::MAX, -3], &[2])?;
        let m = gpu.tensor(&[1, 1 << 20], &[2])?;
        // The square of the second is 2^40, which wraps to 0.
        gives!(i32: n.addcmul(&m, &m, -1) => [i32::MAX - 1, -3]);
        gives!(i32: n.addcmul(&m, &m, 1) => [i32::MIN, -3]);
    }
    Ok(())
}

#[test]
fn the_value_is_not_rounded_to_a_narrow_type() -> Result<()> {
    for gpu in each() {
        // As f16 the value is 1, and as bf16 too.
        let value = 1.0004;
        let x = gpu.tensor(&[1000.0_f32], &[1])?;
        for (dtype, base, wanted) in [(DType::F16, -1000.0, 0.4), (DType::Bf16, -1000.0, 0.4)] {
            let (x, one) = (x.cast(dtype)?, gpu.ones(&[1], dtype)?);
            let a = gpu.full(&[1], base, dtype)?;
            for made in [a.addcmul(&x, &one, value)?, a.addcdiv(&x, &one, value)?] {
                let got = floats(&made)?[0];
                assert!((got - wanted).abs() < 2e-3, "{got} of {dtype}");
            }
            a.addcmul_(&one, &x, value)?;
            assert!((floats(&a)?[0] - wanted).abs() < 2e-3, "{a}");
        }
    }
    Ok(())
}

#[test]
fn in_place_the_view_is_written_and_nothing_else() -> Result<()> {
    for gpu in each() {
        let random = &mut fastrand::Rng::with_seed(31);
        for axes in [[0, 1], [1, 0]] {
            for (name, in_place, method) in IN_PLACE {
                let x = small::<f32>(&gpu, random, &[12, 12])?;
                let before = floats(&x)?;
                let view = x.narrow(0, 1, 8)?.narrow(1, 3, 8)?.permute(&axes)?;
                let [b, c] = [[8, 8], [1, 8]].map(|shape| small::<f32>(&gpu, random, &shape));
                let (b, c) = (b?, c?);
                let wanted = floats(&method(&view, &b, &c)?)?;
                in_place(&view, &b, &c)?;
                assert_close(name, &floats(&view)?, &wanted, 0.0, 0.0);
                let after = floats(&x)?;
                for (at, (before, after)) in before.iter().zip(after).enumerate() {
                    let is_inside = (1..9).contains(&(at / 12)) && (3..11).contains(&(at % 12));
                    assert!(is_inside || before.to_bits() == after.to_bits(), "{name}");
                }
            }
        }
        // Its own storage with another layout is read before it is written.
        let x = gpu.tensor(&[1.0_f32, 2.0, 3.0, 4.0], &[4])?;
        x.addcmul_(&x.flip(&[0])?, &x, 1)?;
        assert_eq!(x.to_vec::<f32>()?, [5.0, 8.0, 9.0, 8.0]);
    }
    Ok(())
}

type InPlace = (
    &'static str,
    fn(&Tensor, &Tensor, &Tensor) -> Result<()>,
    fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
);

const IN_PLACE: [InPlace; 4] = [
    ("lerp_", |a, b, c| a.lerp_(b, c), |a, b, c| a.lerp(b, c)),
    (
        "lerp_, a number",
        |a, b, _| a.lerp_(b, 0.75),
        |a, b, _| a.lerp(b, 0.75),
    ),
    (
        "addcmul_",
        |a, b, c| a.addcmul_(b, c, 0.5),
        |a, b, c| a.addcmul(b, c, 0.5),
    ),
    (
        "addcdiv_",
        |a, b, c| a.addcdiv_(b, c, -1),
        |a, b, c| a.addcdiv(b, c, -1),
    ),
];

#[test]
fn what_does_not_go_together_is_refused() -> Result<()> {
    for gpu in each() {
        let random = &mut fastrand::Rng::with_seed(32);
        let a = tensor::<f32>(&gpu, random, &[4]);
        let b = tensor::<f16>(&gpu, random, &[4]);
        let c = tensor::<f32>(&gpu, random, &[3]);
        let n = tensor::<i32>(&gpu, random, &[4]);
        refused!(DType: a.lerp(&a, &b));
        refused!(DType: a.lerp(&b, &a));
        refused!(DType: n.lerp(&n, 0.5));
        refused!(DType: n.addcdiv(&n, &n, 1));
        refused!(DType: n.addcmul(&n, &n, 0.5));
        refused!(Shape: a.addcmul(&a, &c, 1));
        let wide = c.unsqueeze(1)?.broadcast_to(&[3, 4])?;
        refused!(Shape: wide.lerp_(&a, &a));
        let other = reference();
        let far = other.tensor(&[0.0_f32; 4], &[4])?;
        refused!(Foreign: a.lerp(&a, &far));
    }
    Ok(())
}

#[test]
fn either_choice_of_where_may_be_a_number() -> Result<()> {
    for gpu in each() {
        let mask = gpu.tensor(&[true, false, true], &[3])?;
        let x = gpu.tensor(&[1.0_f32, 2.0], &[2, 1])?;
        gives!(f32: mask.where_(&x, -0.5) => [2, 3], [1.0, -0.5, 1.0, 2.0, -0.5, 2.0]);
        gives!(f32: mask.where_(7, &x) => [7.0, 1.0, 7.0, 7.0, 2.0, 7.0]);
        gives!(f32: mask.where_(1, 0.5) => [1.0, 0.5, 1.0]);
        gives!(i32: mask.where_(-1, 0) => [-1, 0, -1]);
        let flipped = mask.where_(false, true)?;
        assert_eq!(flipped.to_vec::<bool>()?, [false, true, false]);
        let small = gpu.tensor(&[5_u8, 6, 7], &[3])?;
        gives!(u8: mask.where_(&small, 255) => [5, 255, 7]);
        refused!(DType: mask.where_(&small, 256));
        refused!(DType: mask.where_(true, 1));
        refused!(DType: x.where_(1, 0));
        refused!(DType: x.where_(&x, 0));
        let other = reference();
        let far = other.tensor(&[0.0_f32; 3], &[3])?;
        refused!(Foreign: mask.where_(&far, 0));
        refused!(Foreign: mask.where_(0, &far));
    }
    Ok(())
}
