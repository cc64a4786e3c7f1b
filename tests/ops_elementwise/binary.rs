//! Operations on two elements, and the choice between two.

use half::{bf16, f16};
use lapidary::{DType, Element, Error, Gpu, Result, Tensor};

use crate::devices::gpus;
use crate::ops_elementwise::model::{
    Sample, assert_close, broadcast, floats, rounded, samples, tensor, views,
};

pub(crate) type Method = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// Two shapes, and the shape to which they broadcast.
type Pair = (&'static [usize], &'static [usize], &'static [usize]);

const PAIRS: [Pair; 14] = [
    (&[0], &[0], &[0]),
    (&[0], &[1], &[0]),
    (&[], &[], &[]),
    (&[5], &[5], &[5]),
    (&[1000], &[], &[1000]),
    (&[1], &[64], &[64]),
    (&[7, 1500], &[1500], &[7, 1500]),
    (&[6, 8], &[6, 1], &[6, 8]),
    (&[6, 7], &[6, 1], &[6, 7]),
    (&[3, 1], &[1, 5], &[3, 5]),
    (&[4, 1], &[1, 8], &[4, 8]),
    (&[2, 1, 4, 1], &[3, 1, 4], &[2, 3, 4, 4]),
    (
        &[2, 1, 2, 1, 2, 1, 2, 1],
        &[1, 3, 1, 2, 1, 3, 1, 4],
        &[2, 3, 2, 2, 2, 3, 2, 4],
    ),
    (&[65, 4], &[65, 4], &[65, 4]),
];

/// The pairs to test for a type. Each needs a compilation. Types that are computed like another
/// type differ only in loads and stores, so a few pairs are enough.
pub(crate) fn pairs(dtype: DType) -> &'static [Pair] {
    match dtype {
        DType::Bf16 | DType::I8 => &PAIRS[6..9],
        _ => &PAIRS,
    }
}

fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.max(b)
    }
}

fn smaller(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.min(b)
    }
}

fn heaviside(a: f64, b: f64) -> f64 {
    match a {
        0.0 => b,
        _ if a.is_nan() => a,
        _ => f64::from(u8::from(a > 0.0)),
    }
}

/// `a` times a logarithm of `b`.
fn times_log(a: f64, b: f64, log: f64) -> f64 {
    if a == 0.0 && !b.is_nan() {
        0.0
    } else {
        a * log
    }
}

/// The logarithm of the sum of two powers of one base, whose natural logarithm is `unit`.
fn sum_of(a: f64, b: f64, unit: f64) -> f64 {
    match a == b {
        true => a + std::f64::consts::LN_2 / unit,
        false => larger(a, b) + (-(a - b).abs() * unit).exp().ln_1p() / unit,
    }
}

/// An operation: its name, the method, the function in f64, and the relative error.
type FloatCase = (&'static str, Method, fn(f64, f64) -> f64, f32);

const FLOATS: &[FloatCase] = &[
    ("add", Tensor::add, |a, b| a + b, 1e-7),
    ("sub", Tensor::sub, |a, b| a - b, 1e-7),
    ("mul", Tensor::mul, |a, b| a * b, 1e-7),
    ("div", Tensor::div, |a, b| a / b, 4e-7),
    ("pow", Tensor::pow, f64::powf, 3e-5),
    ("maximum", Tensor::maximum, larger, 0.0),
    ("minimum", Tensor::minimum, smaller, 0.0),
    ("fmax", Tensor::fmax, f64::max, 0.0),
    ("fmin", Tensor::fmin, f64::min, 0.0),
    ("atan2", Tensor::atan2, f64::atan2, 1e-6),
    ("hypot", Tensor::hypot, f64::hypot, 5e-7),
    ("copysign", Tensor::copysign, f64::copysign, 0.0),
    ("heaviside", Tensor::heaviside, heaviside, 0.0),
    ("xlogy", Tensor::xlogy, |a, b| times_log(a, b, b.ln()), 2e-6),
    (
        "xlog1py",
        Tensor::xlog1py,
        |a, b| times_log(a, b, b.ln_1p()),
        2e-6,
    ),
    (
        "logaddexp",
        Tensor::logaddexp,
        |a, b| sum_of(a, b, 1.0),
        4e-7,
    ),
    (
        "logaddexp2",
        Tensor::logaddexp2,
        |a, b| sum_of(a, b, std::f64::consts::LN_2),
        4e-7,
    ),
];

fn check_floats<T: Sample>(device: &str, gpu: &Gpu, random: &mut fastrand::Rng) -> Result<()> {
    for &(shape_a, shape_b, shape) in pairs(T::DTYPE) {
        let a = tensor::<T>(gpu, random, shape_a);
        let b = tensor::<T>(gpu, random, shape_b);
        let (x, y) = (floats(&a)?, floats(&b)?);
        let (x, y) = (broadcast(&x, shape_a, shape), broadcast(&y, shape_b, shape));
        // Each shape needs a compilation, so the later operations run with a few shapes.
        let few = if shape.len() == 2 || shape == [5] {
            FLOATS.len()
        } else {
            7
        };
        for &(name, method, model, relative) in &FLOATS[..few] {
            let out = method(&a, &b)?;
            assert_eq!((out.dtype(), out.shape()), (T::DTYPE, shape));
            for (k, got) in floats(&out)?.into_iter().enumerate() {
                let exact = model(f64::from(x[k]), f64::from(y[k]));
                let (wanted, more) = rounded(T::DTYPE, exact);
                // If a result is near the largest f32, an intermediate may overflow.
                if name == "pow" && exact.abs() > 1e36 && got.abs() > 1e36 {
                    continue;
                }
                let what = format!("{name}({:?}, {:?}) of {a} and {b} on {device}", x[k], y[k]);
                // Results from logarithms have their absolute error, even near 0.
                let absolute = match name {
                    "xlogy" | "xlog1py" => 1e-6 * x[k].abs().min(1e30),
                    "logaddexp" | "logaddexp2" => 4e-7,
                    _ => 1e-36,
                };
                assert_close(&what, &[got], &[wanted], relative + more, absolute);
            }
        }
    }
    Ok(())
}

#[test]
fn floats_broadcast_and_follow_ieee() -> Result<()> {
    for (device, gpu) in gpus() {
        let mut random = fastrand::Rng::with_seed(3);
        check_floats::<f32>(device, &gpu, &mut random)?;
        check_floats::<f16>(device, &gpu, &mut random)?;
        check_floats::<bf16>(device, &gpu, &mut random)?;
    }
    Ok(())
}

#[test]
fn powers_of_and_to_zero_infinity_and_nan_are_those_of_ieee() -> Result<()> {
    let inf = f32::INFINITY;
    let near_one = [1.0 - f32::EPSILON / 2.0, 1.0, 1.0 + f32::EPSILON];
    let bases: Vec<f32> = [0.0, 0.3, 2.0, 1e30, f32::MAX, inf, f32::NAN]
        .into_iter()
        .chain(near_one)
        .flat_map(|x| [x, -x])
        .collect();
    let exponents: Vec<f32> = [0.0, 0.46, 1.0, 2.0, 3.0, 1e9, 1e30, inf, f32::NAN]
        .into_iter()
        .flat_map(|x| [x, -x])
        .collect();
    for (device, gpu) in gpus() {
        let a = gpu.tensor(&bases, &[bases.len(), 1])?;
        let b = gpu.tensor(&exponents, &[exponents.len()])?;
        let got = a.pow(&b)?.to_vec::<f32>()?;
        for (k, &got) in got.iter().enumerate() {
            let (a, b) = (bases[k / exponents.len()], exponents[k % exponents.len()]);
            let wanted = f64::from(a).powf(b.into()) as f32;
            // Otherwise the exponent multiplies an adapter's rounding error.
            let is_exact = [0.0, 1.0].contains(&a.abs()) || !a.is_finite() || !b.is_finite();
            if is_exact || b == 0.0 {
                let what = format!("pow({a:?}, {b:?}) on {device}");
                assert_close(&what, &[got], &[wanted], 0.0, 0.0);
                assert!(wanted.is_nan() || got.signum() == wanted.signum(), "{what}");
            }
        }
    }
    Ok(())
}

fn rounded_down(a: i64, b: i64) -> i64 {
    let is_below = a % b != 0 && (a < 0) != (b < 0);
    a / b - i64::from(is_below)
}

macro_rules! integers {
    ($gpu:expr, $random:expr, $type:ty, $pow:expr) => {{
        for &(shape_a, shape_b, shape) in pairs(<$type>::DTYPE) {
            let a = tensor::<$type>($gpu, $random, shape_a);
            let b = tensor::<$type>($gpu, $random, shape_b);
            let x = broadcast(&a.to_vec::<$type>()?, shape_a, shape);
            let y = broadcast(&b.to_vec::<$type>()?, shape_b, shape);
            let cases: [(&str, Method, fn($type, $type) -> $type); 15] = [
                ("add", Tensor::add, <$type>::wrapping_add),
                ("sub", Tensor::sub, <$type>::wrapping_sub),
                ("mul", Tensor::mul, <$type>::wrapping_mul),
                ("div", Tensor::div, |a, b| {
                    if b == 0 { a } else { a.wrapping_div(b) }
                }),
                ("rem", Tensor::rem, |a, b| {
                    if b == 0 { 0 } else { a.wrapping_rem(b) }
                }),
                ("maximum", Tensor::maximum, std::cmp::max),
                ("minimum", Tensor::minimum, std::cmp::min),
                ("pow", Tensor::pow, $pow),
                ("remainder", Tensor::remainder, |a, b| {
                    let (a, b) = (i64::from(a), i64::from(b));
                    if b == 0 {
                        0
                    } else {
                        (a - b * rounded_down(a, b)) as $type
                    }
                }),
                ("floor_divide", Tensor::floor_divide, |a, b| match b {
                    0 => a,
                    b => rounded_down(a.into(), b.into()) as $type,
                }),
                ("bitwise_and", Tensor::bitwise_and, |a, b| a & b),
                ("bitwise_or", Tensor::bitwise_or, |a, b| a | b),
                ("bitwise_xor", Tensor::bitwise_xor, |a, b| a ^ b),
                (
                    "left_shift",
                    Tensor::left_shift,
                    |a, b| match u32::try_from(b) {
                        Ok(by) if by < <$type>::BITS => a << by,
                        _ => 0,
                    },
                ),
                ("right_shift", Tensor::right_shift, |a, b| {
                    let by = u32::try_from(b).unwrap_or(63).min(63);
                    (i64::from(a) >> by) as $type
                }),
            ];
            // Each shape needs a compilation, so the simple operations run with a few shapes.
            let few = if shape.len() == 2 || shape == [5] {
                15
            } else {
                8
            };
            for (name, method, model) in cases.into_iter().take(few) {
                let wanted: Vec<$type> = x.iter().zip(&y).map(|(&a, &b)| model(a, b)).collect();
                assert_eq!(
                    method(&a, &b)?.to_vec::<$type>()?,
                    wanted,
                    "{name} {shape:?}"
                );
            }
        }
    }};
}

fn signed_power(a: i32, b: i32) -> i32 {
    match (u32::try_from(b), a) {
        (Ok(b), _) => a.wrapping_pow(b),
        (Err(_), 1) => 1,
        (Err(_), -1) => {
            if b % 2 == 0 {
                1
            } else {
                -1
            }
        }
        _ => 0,
    }
}

#[test]
fn integers_wrap_and_division_by_zero_is_defined() -> Result<()> {
    for (_, gpu) in gpus() {
        let random = &mut fastrand::Rng::with_seed(4);
        integers!(&gpu, random, i32, signed_power);
        integers!(&gpu, random, u32, u32::wrapping_pow);
        integers!(&gpu, random, u8, |a, b| a.wrapping_pow(u32::from(b)));
        integers!(&gpu, random, i8, |a, b| signed_power(a.into(), b.into())
            as i8);
        let least = gpu.tensor(&[i32::MIN, i32::MIN], &[2])?;
        let by = gpu.tensor(&[-1, 0], &[2])?;
        assert_eq!((&least / &by)?.to_vec::<i32>()?, [i32::MIN; 2]);
        assert_eq!((&least % &by)?.to_vec::<i32>()?, [0; 2]);
    }
    Ok(())
}

/// A comparison: its name, the method, and the function.
type OrderCase<T> = (&'static str, Method, fn(&T, &T) -> bool);

fn check_order<T: Sample>(gpu: &Gpu, random: &mut fastrand::Rng) -> Result<()> {
    let cases: [OrderCase<T>; 6] = [
        ("eq", Tensor::eq, |a, b| a == b),
        ("ne", Tensor::ne, |a, b| a != b),
        ("lt", Tensor::lt, |a, b| a < b),
        ("le", Tensor::le, |a, b| a <= b),
        ("gt", Tensor::gt, |a, b| a > b),
        ("ge", Tensor::ge, |a, b| a >= b),
    ];
    for &(shape_a, shape_b, shape) in pairs(T::DTYPE) {
        let a = tensor::<T>(gpu, random, shape_a);
        let b = tensor::<T>(gpu, random, shape_b);
        let x = broadcast(&a.to_vec::<T>()?, shape_a, shape);
        let y = broadcast(&b.to_vec::<T>()?, shape_b, shape);
        for (name, method, model) in cases {
            let wanted: Vec<bool> = x.iter().zip(&y).map(|(a, b)| model(a, b)).collect();
            let got = method(&a, &b)?;
            assert_eq!(got.to_vec::<bool>()?, wanted, "{name} of {a} and {b}");
        }
    }
    Ok(())
}

#[test]
fn comparisons_give_bools_and_nan_is_unequal_to_all() -> Result<()> {
    for (_, gpu) in gpus() {
        let random = &mut fastrand::Rng::with_seed(5);
        check_order::<f32>(&gpu, random)?;
        check_order::<f16>(&gpu, random)?;
        check_order::<bf16>(&gpu, random)?;
        check_order::<i8>(&gpu, random)?;
        check_order::<i32>(&gpu, random)?;
        check_order::<u32>(&gpu, random)?;
        check_order::<u8>(&gpu, random)?;
        check_order::<bool>(&gpu, random)?;
    }
    Ok(())
}

#[test]
fn views_of_every_kind_meet() -> Result<()> {
    for (device, gpu) in gpus() {
        let random = &mut fastrand::Rng::with_seed(6);
        for (a, b) in views::<u8>(&gpu, random)?
            .iter()
            .zip(views::<u8>(&gpu, random)?)
        {
            let wanted: Vec<u8> = (a.to_vec::<u8>()?.iter().zip(b.to_vec::<u8>()?))
                .map(|(a, b)| a.wrapping_sub(b))
                .collect();
            assert_eq!((a - &b)?.to_vec::<u8>()?, wanted, "{a} - {b} on {device}");
        }
        for (a, b) in views::<i32>(&gpu, random)?
            .iter()
            .zip(views::<i32>(&gpu, random)?)
        {
            let row = tensor::<i32>(&gpu, random, &a.shape()[a.rank().min(1)..]);
            let x = a.to_vec::<i32>()?;
            let y = broadcast(&row.to_vec::<i32>()?, row.shape(), a.shape());
            let wanted: Vec<i32> = x.iter().zip(y).map(|(x, y)| x.wrapping_add(y)).collect();
            assert_eq!(
                (a + &row)?.to_vec::<i32>()?,
                wanted,
                "{a} + {row} on {device}"
            );
            let lesser = a.lt(&b)?;
            let c = lesser.to_vec::<bool>()?;
            let y = b.to_vec::<i32>()?;
            let wanted: Vec<i32> = (0..c.len())
                .map(|k| if c[k] { x[k] } else { y[k] })
                .collect();
            assert_eq!(
                lesser.where_(a, &b)?.to_vec::<i32>()?,
                wanted,
                "{a} ? {b} on {device}"
            );
        }
    }
    Ok(())
}

#[test]
fn where_broadcasts_all_three_and_takes_more_dimensions_than_its_parameters_hold() -> Result<()> {
    let shape = [2, 3, 2, 2, 2, 3, 2, 2];
    for (_, gpu) in gpus() {
        let random = &mut fastrand::Rng::with_seed(7);
        let c = tensor::<bool>(&gpu, random, &[2, 1, 2, 1, 2, 1, 2, 1]);
        let a = tensor::<f32>(&gpu, random, &shape).permute(&[7, 6, 5, 4, 3, 2, 1, 0])?;
        let a = a.permute(&[7, 6, 5, 4, 3, 2, 1, 0])?;
        let b = tensor::<f32>(&gpu, random, &[3, 1, 2, 1, 3, 1, 2]);
        let (x, y, z) = (c.to_vec::<bool>()?, a.to_vec::<f32>()?, b.to_vec::<f32>()?);
        let x = broadcast(&x, c.shape(), &shape);
        let z = broadcast(&z, b.shape(), &shape);
        let wanted: Vec<u32> = (0..y.len())
            .map(|k| if x[k] { y[k] } else { z[k] }.to_bits())
            .collect();
        let got: Vec<u32> = c
            .where_(&a, &b)?
            .to_vec::<f32>()?
            .iter()
            .map(|x| x.to_bits())
            .collect();
        assert_eq!(got, wanted);
    }
    Ok(())
}

#[test]
fn an_operand_of_one_element_is_read_where_it_is() -> Result<()> {
    for (name, gpu) in gpus() {
        let base = gpu.tensor(&[10.0_f32, 20.0, 30.0, 40.0], &[4])?;
        let one = base.select(0, 2)?;
        let x = gpu
            .tensor(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2])?
            .t()?;
        let product = x.mul(&one)?.to_vec::<f32>()?;
        assert_eq!(product, [30.0, 90.0, 150.0, 60.0, 120.0, 180.0], "{name}");
        let is_more = x.mul(&one)?.gt(&base.select(0, 3)?)?.to_vec::<bool>()?;
        assert_eq!(is_more, [false, true, true, true, true, true], "{name}");
        x.add_(&one)?;
        let sum = [31.0, 33.0, 35.0, 32.0, 34.0, 36.0];
        assert_eq!(x.to_vec::<f32>()?, sum, "{name}");
    }
    Ok(())
}

#[test]
fn numbers_take_the_place_of_tensors_on_either_side() -> Result<()> {
    for (_, gpu) in gpus() {
        let x = gpu.tensor(&[1.0_f32, 2.0, 4.0], &[3])?;
        assert_eq!((&x * 2.0)?.to_vec::<f32>()?, [2.0, 4.0, 8.0]);
        assert_eq!((8.0 / &x)?.to_vec::<f32>()?, [8.0, 4.0, 2.0]);
        assert_eq!((1 - &x)?.to_vec::<f32>()?, [0.0, -1.0, -3.0]);
        assert_eq!((-&x)?.to_vec::<f32>()?, [-1.0, -2.0, -4.0]);
        assert_eq!(x.pow_scalar(2)?.to_vec::<f32>()?, [1.0, 4.0, 16.0]);
        assert_eq!(x.pow_scalar(0.5)?.to_vec::<f32>()?[2], 2.0);
        assert_eq!(x.maximum_scalar(1.5)?.to_vec::<f32>()?, [1.5, 2.0, 4.0]);
        assert_eq!(x.ge_scalar(2)?.to_vec::<bool>()?, [false, true, true]);
        let chain = ((&x + &x)? + &x)?.relu()?;
        assert_eq!(chain.to_vec::<f32>()?, [3.0, 6.0, 12.0]);
        let n = gpu.tensor(&[7_u8, 255], &[2])?;
        assert_eq!(n.add_scalar(1)?.to_vec::<u8>()?, [8, 0]);
        assert!(matches!(n.add_scalar(256), Err(Error::DType { .. })));
        assert!(matches!(&n * 0.5, Err(Error::DType { .. })));
    }
    Ok(())
}

#[test]
fn operands_that_do_not_go_together_are_refused() -> Result<()> {
    for (_, gpu) in gpus() {
        let random = &mut fastrand::Rng::with_seed(8);
        let a = tensor::<f32>(&gpu, random, &[4]);
        let b = tensor::<f16>(&gpu, random, &[4]);
        let c = tensor::<f32>(&gpu, random, &[3]);
        let d = tensor::<bool>(&gpu, random, &[4]);
        let mixed = a.add(&b).expect_err("two types");
        assert!(mixed.to_string().contains("cast"), "{mixed}");
        assert!(matches!(a.add(&c), Err(Error::Shape { .. })));
        assert!(matches!(d.add(&d), Err(Error::DType { .. })));
        assert!(matches!(a.bitwise_and(&a), Err(Error::DType { .. })));
        assert!(matches!(d.left_shift(&d), Err(Error::DType { .. })));
        assert!(matches!(a.where_(&a, &a), Err(Error::DType { .. })));
        let (_, other) = gpus().swap_remove(0);
        let far = other.tensor(&samples::<f32>(random, 4), &[4])?;
        assert!(matches!(a.add(&far), Err(Error::Foreign { .. })));
    }
    Ok(())
}
