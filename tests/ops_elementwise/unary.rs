//! Operations on one element.

use half::{bf16, f16};
use lapidary::{DType, Error, Gpu, Result, Tensor};

use crate::common::operands::numbers;
use crate::common::rows::unary;
use crate::devices::{each, gpus, reference, refused};
use crate::ops_elementwise::model::{ODD_FLOATS, check_all, tensor, views};

pub(crate) type Method = fn(&Tensor) -> Result<Tensor>;

/// An operation: its name, the method, and its relative and absolute error.
pub(crate) struct Case(
    pub(crate) &'static str,
    pub(crate) Method,
    pub(crate) [f32; 2],
);

macro_rules! of_rows {
    ({ $($name:ident)* } { $($in_place:ident)* } { $($by_hand:ident($($given:expr),*);)* }) => {
        &[
            $((stringify!($name), Tensor::$name),)*
            $((stringify!($by_hand), |x| x.$by_hand($($given),*)),)*
        ]
    };
}

const ROWS: &[(&str, Method)] = lapidary::unary_methods!(of_rows);

const COMPOSED: [Case; 6] = [
    Case("relu6", Tensor::relu6, [0.0; 2]),
    Case("hardtanh", |x| x.hardtanh(-2, 3.0), [0.0; 2]),
    Case("threshold", |x| x.threshold(1.5, -2), [0.0; 2]),
    Case("hardshrink", |x| x.hardshrink(0.5), [0.0; 2]),
    Case("softshrink", |x| x.softshrink(0.5), [1e-7, 0.0]),
    Case("selu", Tensor::selu, [2e-5, 1e-12]),
];

pub(crate) fn cases() -> impl Iterator<Item = Case> {
    let of = |&(name, method): &(&'static str, Method)| Case(name, method, unary(name).error);
    ROWS.iter().map(of).chain(COMPOSED)
}

/// Far from 0 the adapter's results for some are arbitrary. The sign of a NaN is not defined.
pub(crate) fn is_defined(name: &str, x: f32) -> bool {
    match name {
        "sin" | "cos" | "tan" => !x.is_finite() || x.abs() <= 3e4,
        "signbit" => !x.is_nan(),
        _ => true,
    }
}

fn check(device: &str, reference: &Gpu, case: &Case, x: &Tensor) -> Result<()> {
    let Case(name, method, error) = *case;
    let (got, wanted, inputs) = (method(x)?, method(&x.to(reference)?)?, numbers(x)?);
    assert_eq!(got.shape(), x.shape());
    let what = format!("{name} of {x} on {device}");
    let error = |at: usize| is_defined(name, inputs[at] as f32).then_some(error);
    check_all(&what, &got, &wanted, error, |at| {
        format!("f({})", inputs[at])
    })
}

/// Does the operation take this type, without a cast to f32?
fn accepts(case: &Case, dtype: DType) -> bool {
    let is_composed = COMPOSED.iter().any(|one| one.0 == case.0);
    dtype.is_float() && is_composed || !is_composed && unary(case.0).accepts(dtype)
}

/// The numbers at which every operation is tested.
fn line() -> Vec<f32> {
    let mut numbers = ODD_FLOATS.to_vec();
    numbers.extend((-400..400).map(|n| n as f32 * 0.0613));
    numbers.extend((0..50).map(|n| n as f32 * 611.7));
    numbers.extend((1..20).flat_map(|n| [0.9_f32.powi(n * n / 2), -0.8_f32.powi(n * n / 3)]));
    numbers
}

#[test]
fn every_operation_is_right_about_ordinary_and_odd_numbers() -> Result<()> {
    let (line, reference) = (line(), reference());
    for (device, gpu) in gpus() {
        let floats = gpu.tensor(&line, &[line.len()])?;
        let ints = [0, 1, -1, -3, 5, 16, 127, -128, 200, 255, i32::MAX, i32::MIN];
        let ints = gpu.tensor(&ints, &[ints.len()])?;
        for case in cases() {
            let types = DType::ALL.into_iter();
            for dtype in types.filter(|&dtype| accepts(&case, dtype)) {
                let x = if dtype.is_float() { &floats } else { &ints };
                check(device, &reference, &case, &x.cast(dtype)?)?;
            }
        }
    }
    Ok(())
}

#[test]
fn what_is_near_the_end_of_the_line_keeps_its_digits() -> Result<()> {
    // From 1/2 up to the last number below 1, and the same below 0.
    let near_one: Vec<f32> = (1..25).map(|n| 1.0 - 0.5_f32.powi(n)).collect();
    let ends: Vec<f32> = near_one.iter().flat_map(|&x| [x, -x, 1.0 - x]).collect();
    let tail: Vec<f32> = (0..600).map(|n| n as f32 * 0.0155).collect();
    let waves: Vec<f32> = (0..200).map(|n| n as f32 * 0.25 + 1e-3).collect();
    let reference = reference();
    for (device, gpu) in gpus() {
        for case in cases() {
            let numbers = match case.0 {
                "erfinv" | "logit" => &ends,
                "erfc" => &tail,
                "sinc" => &waves,
                _ => continue,
            };
            let x = gpu.tensor(numbers, &[numbers.len()])?;
            check(device, &reference, &case, &x)?;
        }
        let whole: Vec<f32> = (1..60).map(|n| 1.37_f32.powi(n).round()).collect();
        let x = gpu.tensor(&whole, &[whole.len()])?;
        assert_eq!(x.sinc()?.to_vec::<f32>()?, vec![0.0; whole.len()]);
    }
    Ok(())
}

#[test]
fn views_of_every_kind_are_taken_as_they_are() -> Result<()> {
    let reference = reference();
    for (device, gpu) in gpus() {
        let random = &mut fastrand::Rng::with_seed(1);
        let views_of = |name: &str, views: Vec<Tensor>| {
            let case = cases().find(|case| case.0 == name).expect("a row");
            let mut views = views.iter();
            views.try_for_each(|x| check(device, &reference, &case, x))
        };
        views_of("abs", views::<f32>(&gpu, random)?)?;
        views_of("neg", views::<f16>(&gpu, random)?)?;
        views_of("neg", views::<bf16>(&gpu, random)?)?;
    }
    Ok(())
}

#[test]
fn clamping_keeps_nan_and_obeys_the_upper_bound() -> Result<()> {
    for gpu in each() {
        let x = gpu.tensor(&[f32::NAN, -9.0, 0.5, 9.0, f32::INFINITY], &[5])?;
        let got = x.clamp(-1.0, 1.0)?.to_vec::<f32>()?;
        assert!(got[0].is_nan());
        assert_eq!(got[1..], [-1.0, 0.5, 1.0, 1.0]);
        assert_eq!(x.clamp(5, 2)?.to_vec::<f32>()?[1..], [2.0; 4]);
        let all = x.clamp(f32::NAN, 1.0)?.to_vec::<f32>()?;
        assert!(all.iter().all(|x| x.is_nan()));
    }
    Ok(())
}

#[test]
fn types_that_make_no_sense_are_refused_with_a_hint() -> Result<()> {
    for gpu in each() {
        let mut random = fastrand::Rng::with_seed(2);
        let ints = tensor::<i32>(&gpu, &mut random, &[4]);
        let bools = tensor::<bool>(&gpu, &mut random, &[4]);
        for error in [
            ints.silu(),
            bools.neg(),
            bools.relu(),
            bools.floor(),
            bools.softplus(),
            ints.hypot(&ints),
            bools.signbit(),
            ints.clamp(0.5, 1),
        ] {
            let error = error.expect_err("a type that is not taken");
            assert!(matches!(error, Error::DType { .. }), "{error}");
            assert!(error.to_string().contains("cast"), "{error}");
        }
    }
    Ok(())
}

#[test]
fn functions_of_real_numbers_give_f32_for_integers_and_bools() -> Result<()> {
    for gpu in each() {
        let of_type = |dtype| gpu.tensor(&[0_u32, 1, 3, 100], &[4])?.cast(dtype);
        for dtype in [DType::I32, DType::U32, DType::U8, DType::I8, DType::Bool] {
            let x = of_type(dtype)?;
            let as_f32 = x.cast(DType::F32)?;
            for (got, expected) in [
                (x.exp()?, as_f32.exp()?),
                (x.sqrt()?, as_f32.sqrt()?),
                (x.flip(&[0])?.log1p()?, as_f32.flip(&[0])?.log1p()?),
                (x.sigmoid()?, as_f32.sigmoid()?),
                (x.atan2(&x)?, as_f32.atan2(&as_f32)?),
                (x.xlogy(2.5)?, as_f32.xlogy(2.5)?),
            ] {
                assert_eq!(got.dtype(), DType::F32, "{dtype}");
                assert_eq!(got.to_vec::<f32>()?, expected.to_vec::<f32>()?, "{dtype}");
            }
            // An f32 does not fit in place.
            refused!(DType: x.exp_());
        }
        let (ints, floats) = (of_type(DType::I32)?, of_type(DType::F32)?);
        refused!(DType: ints.atan2(&floats));
    }
    Ok(())
}
