//! Operations on one element.

use half::{bf16, f16};
use lapidary::{DType, Error, Gpu, Result, Tensor};

use crate::devices::gpus;
use crate::ops_elementwise::model::{ODD_FLOATS, assert_close, floats, rounded, tensor, views};

type Method = fn(&Tensor) -> Result<Tensor>;

/// An operation: its name, the method, and the function in f64.
struct Case(&'static str, Method, fn(f64) -> f64);

fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 || x.is_nan() {
        return if x.is_nan() { x } else { x.signum() };
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// For large arguments by the continued fraction, because 1 - erf(x) loses digits.
fn erfc(x: f64) -> f64 {
    if x.is_nan() || x < 2.0 {
        return 1.0 - erf(x);
    }
    let fraction = (1..200)
        .rev()
        .fold(x, |rest, n| x + f64::from(n) / 2.0 / rest);
    (-x * x).exp() / (fraction * std::f64::consts::PI.sqrt())
}

/// By bisection.
fn erfinv(y: f64) -> f64 {
    if y.is_nan() || y.abs() >= 1.0 {
        return if y.abs() == 1.0 {
            y * f64::INFINITY
        } else {
            f64::NAN
        };
    }
    let (mut low, mut high) = (0.0, 6.0);
    for _ in 0..1000 {
        let middle = (low + high) / 2.0;
        match erf(middle) < y.abs() {
            true => low = middle,
            false => high = middle,
        }
        if high - low < 1e-13 * low {
            break;
        }
    }
    low.copysign(y)
}

fn sinc(x: f64) -> f64 {
    let pi = std::f64::consts::PI;
    match x {
        0.0 => 1.0,
        // 0 for integers, NaN for infinity.
        _ if x == x.round() => 0.0 * x,
        _ => (pi * (x - 2.0 * (x / 2.0).round())).sin() / (pi * x),
    }
}

fn tanhshrink(x: f64) -> f64 {
    match x.abs() < 1e-3 {
        true => x.powi(3) / 3.0,
        false => x - x.tanh(),
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn sign(x: f64) -> f64 {
    if x == 0.0 || x.is_nan() {
        x
    } else {
        x.signum()
    }
}

fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

fn relu(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

fn softplus(x: f64) -> f64 {
    let above = if x < 0.0 { 0.0 } else { x };
    above + (-x.abs()).exp().ln_1p()
}

fn held(x: f64, low: f64, high: f64) -> f64 {
    if x.is_nan() { x } else { x.clamp(low, high) }
}

/// The exponential for negative numbers.
fn elu(x: f64, alpha: f64) -> f64 {
    if x < 0.0 { alpha * x.exp_m1() } else { x }
}

const CASES: &[Case] = &[
    Case("neg", Tensor::neg, |x| -x),
    Case("abs", Tensor::abs, f64::abs),
    Case("sign", Tensor::sign, sign),
    Case("square", Tensor::square, |x| x * x),
    Case("relu", Tensor::relu, relu),
    Case("exp", Tensor::exp, f64::exp),
    Case("log", Tensor::log, f64::ln),
    Case("sqrt", Tensor::sqrt, f64::sqrt),
    Case("rsqrt", Tensor::rsqrt, |x| 1.0 / x.sqrt()),
    Case("recip", Tensor::recip, |x| 1.0 / x),
    Case("sin", Tensor::sin, f64::sin),
    Case("cos", Tensor::cos, f64::cos),
    Case("tanh", Tensor::tanh, f64::tanh),
    Case("erf", Tensor::erf, erf),
    Case("sigmoid", Tensor::sigmoid, sigmoid),
    Case("silu", Tensor::silu, |x| x * sigmoid(x)),
    Case("gelu", Tensor::gelu, |x| {
        0.5 * x * (1.0 + erf(x / 2_f64.sqrt()))
    }),
    Case("gelu_tanh", Tensor::gelu_tanh, gelu_tanh),
    Case("floor", Tensor::floor, f64::floor),
    Case("ceil", Tensor::ceil, f64::ceil),
    Case("round", Tensor::round, f64::round_ties_even),
    Case("trunc", Tensor::trunc, f64::trunc),
    Case("frac", Tensor::frac, f64::fract),
    Case("exp2", Tensor::exp2, f64::exp2),
    Case("expm1", Tensor::expm1, f64::exp_m1),
    Case("log2", Tensor::log2, f64::log2),
    Case("log10", Tensor::log10, f64::log10),
    Case("log1p", Tensor::log1p, f64::ln_1p),
    Case("tan", Tensor::tan, f64::tan),
    Case("asin", Tensor::asin, f64::asin),
    Case("acos", Tensor::acos, f64::acos),
    Case("atan", Tensor::atan, f64::atan),
    Case("sinh", Tensor::sinh, f64::sinh),
    Case("cosh", Tensor::cosh, f64::cosh),
    // Rust's functions lose digits near 0.
    Case("asinh", Tensor::asinh, |x| {
        if x.is_infinite() {
            return x;
        }
        let size = x.abs();
        (size + size * size / (1.0 + size.hypot(1.0)))
            .ln_1p()
            .copysign(x)
    }),
    Case("acosh", Tensor::acosh, f64::acosh),
    Case("atanh", Tensor::atanh, f64::atanh),
    Case("softplus", Tensor::softplus, softplus),
    Case("log_sigmoid", Tensor::log_sigmoid, |x| -softplus(-x)),
    Case("softsign", Tensor::softsign, |x| x / (1.0 + x.abs())),
    Case("mish", Tensor::mish, |x| x * softplus(x).tanh()),
    Case("hardsigmoid", Tensor::hardsigmoid, |x| {
        held(x / 6.0 + 0.5, 0.0, 1.0)
    }),
    Case("hardswish", Tensor::hardswish, |x| {
        x * held(x + 3.0, 0.0, 6.0) / 6.0
    }),
    Case(
        "leaky_relu",
        |x| x.leaky_relu(0.25),
        |x| if x < 0.0 { x / 4.0 } else { x },
    ),
    Case("elu", |x| x.elu(1.5), |x| elu(x, 1.5)),
    Case("erfc", Tensor::erfc, erfc),
    Case("erfinv", Tensor::erfinv, erfinv),
    Case("ndtr", Tensor::ndtr, |x| 0.5 * erfc(-x / 2_f64.sqrt())),
    Case("sinc", Tensor::sinc, sinc),
    Case("logit", Tensor::logit, |x| x.ln() - (-x).ln_1p()),
    Case(
        "celu",
        |x| x.celu(1.5),
        |x| {
            if x < 0.0 { 1.5 * (x / 1.5).exp_m1() } else { x }
        },
    ),
    Case("tanhshrink", Tensor::tanhshrink, tanhshrink),
    Case("deg2rad", Tensor::deg2rad, f64::to_radians),
    Case("rad2deg", Tensor::rad2deg, f64::to_degrees),
    Case("relu6", Tensor::relu6, |x| held(x, 0.0, 6.0)),
    Case("hardtanh", |x| x.hardtanh(-2, 3.0), |x| held(x, -2.0, 3.0)),
    Case(
        "threshold",
        |x| x.threshold(1.5, -2),
        |x| if x <= 1.5 { -2.0 } else { x },
    ),
    Case(
        "hardshrink",
        |x| x.hardshrink(0.5),
        |x| if x.abs() <= 0.5 { 0.0 } else { x },
    ),
    Case(
        "softshrink",
        |x| x.softshrink(0.5),
        |x| x - held(x, -0.5, 0.5),
    ),
    Case("selu", Tensor::selu, |x| {
        1.0507009873554805 * elu(x, 1.6732632423543772)
    }),
];

/// The error of an operation. The adapter's own exponential is as accurate as its argument.
fn tolerance(name: &str) -> (f32, f32) {
    match name {
        "exp" | "exp2" => (2e-5, 0.0),
        // f32 ends at numbers of this size.
        "erfc" => (2e-5, 1e-37),
        "ndtr" => (0.0, 3e-7),
        "erfinv" | "deg2rad" | "rad2deg" => (1e-6, 0.0),
        "sinc" => (1e-6, 1e-9),
        "logit" => (1e-6, 2e-7),
        "tanhshrink" => (2e-6, 0.0),
        "softshrink" => (1e-7, 0.0),
        "celu" | "expm1" | "elu" | "selu" | "sinh" | "cosh" => (2e-5, 1e-12),
        "log1p" | "softsign" | "leaky_relu" => (1e-6, 0.0),
        "log2" | "log10" | "atan" | "asinh" | "acosh" | "asin" | "acos" => (1e-6, 1e-6),
        "atanh" => (2e-6, 1e-7),
        // Sine and cosine have an error of 1e-6, which is large relative to a value near 0.
        "tan" => (1e-4, 1e-6),
        "softplus" | "log_sigmoid" | "mish" => (2e-5, 2e-6),
        "hardsigmoid" | "hardswish" => (1e-6, 1e-7),
        "log" => (1e-6, 1e-6),
        "sin" | "cos" => (1e-6, 1e-6),
        "sigmoid" | "silu" | "gelu" | "gelu_tanh" => (2e-5, 1e-6),
        "sqrt" | "rsqrt" | "recip" | "tanh" | "erf" => (1e-6, 2e-7),
        _ => (0.0, 0.0),
    }
}

fn check(device: &str, case: &Case, x: &Tensor) -> Result<()> {
    let Case(name, method, model) = case;
    let inputs = floats(x)?;
    let round = |y: f64| rounded(x.dtype(), y).0;
    let wanted: Vec<f32> = inputs.iter().map(|&x| round(model(f64::from(x)))).collect();
    let y = method(x)?;
    assert_eq!((y.dtype(), y.shape()), (x.dtype(), x.shape()));
    let mut got = floats(&y)?;
    // Far from 0 the adapter's results for these are arbitrary.
    if matches!(*name, "sin" | "cos" | "tan") {
        for (x, (got, wanted)) in inputs.iter().zip(got.iter_mut().zip(&wanted)) {
            if x.is_finite() && x.abs() > 3e4 {
                *got = *wanted;
            }
        }
    }
    let (relative, absolute) = tolerance(name);
    let (relative, absolute) = match rounded(x.dtype(), 0.0).1 {
        0.0 => (relative, absolute),
        more => (relative + more, absolute + 1e-7),
    };
    let what = format!("{name} of {x} on {device}");
    for (index, (&got, &wanted)) in got.iter().zip(&wanted).enumerate() {
        let one = format!("{what}, f({:?})", inputs[index]);
        assert_close(&one, &[got], &[wanted], relative, absolute);
    }
    Ok(())
}

#[test]
fn every_operation_is_right_about_ordinary_and_odd_numbers() -> Result<()> {
    let mut numbers = ODD_FLOATS.to_vec();
    numbers.extend((-400..400).map(|n| n as f32 * 0.0613));
    numbers.extend((0..50).map(|n| n as f32 * 611.7));
    numbers.extend((1..20).flat_map(|n| [0.9_f32.powi(n * n / 2), -0.8_f32.powi(n * n / 3)]));
    let halves: Vec<f16> = numbers.iter().map(|&x| f16::from_f32(x)).collect();
    let upper: Vec<bf16> = numbers.iter().map(|&x| bf16::from_f32(x)).collect();
    for (device, gpu) in gpus() {
        let x = gpu.tensor(&numbers, &[numbers.len()])?;
        let h = gpu.tensor(&halves, &[halves.len()])?;
        let u = gpu.tensor(&upper, &[upper.len()])?;
        for case in CASES {
            check(device, case, &x)?;
            check(device, case, &h)?;
            check(device, case, &u)?;
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
    for (device, gpu) in gpus() {
        let case = |name: &str| CASES.iter().find(|case| case.0 == name);
        for (name, numbers) in [
            ("erfinv", &ends),
            ("logit", &ends),
            ("erfc", &tail),
            ("sinc", &waves),
        ] {
            let x = gpu.tensor(numbers, &[numbers.len()])?;
            check(device, case(name).expect("a name of the table"), &x)?;
        }
        let whole: Vec<f32> = (1..60).map(|n| 1.37_f32.powi(n).round()).collect();
        let x = gpu.tensor(&whole, &[whole.len()])?;
        assert_eq!(x.sinc()?.to_vec::<f32>()?, vec![0.0; whole.len()]);
    }
    Ok(())
}

#[test]
fn views_of_every_kind_are_taken_as_they_are() -> Result<()> {
    for (device, gpu) in gpus() {
        let mut random = fastrand::Rng::with_seed(1);
        for x in views::<f32>(&gpu, &mut random)? {
            check(device, &CASES[1], &x)?;
        }
        for x in views::<f16>(&gpu, &mut random)? {
            check(device, &CASES[0], &x)?;
        }
        for x in views::<bf16>(&gpu, &mut random)? {
            check(device, &CASES[0], &x)?;
        }
    }
    Ok(())
}

#[test]
fn integers_wrap_and_know_their_sign() -> Result<()> {
    fn ints(gpu: &Gpu) -> Result<()> {
        let x = gpu.tensor(&[i32::MIN, -3, 0, 5, i32::MAX], &[5])?;
        assert_eq!(x.neg()?.to_vec::<i32>()?, [i32::MIN, 3, 0, -5, -i32::MAX]);
        assert_eq!(x.abs()?.to_vec::<i32>()?, [i32::MIN, 3, 0, 5, i32::MAX]);
        assert_eq!(x.sign()?.to_vec::<i32>()?, [-1, -1, 0, 1, 1]);
        assert_eq!(x.square()?.to_vec::<i32>()?, [0, 9, 0, 25, 1]);
        assert_eq!(x.relu()?.to_vec::<i32>()?, [0, 0, 0, 5, i32::MAX]);
        assert_eq!(x.clamp(-1, 4)?.to_vec::<i32>()?, [-1, -1, 0, 4, 4]);
        let x = gpu.tensor(&[0_u8, 1, 200, 255, 16], &[5])?;
        assert_eq!(x.neg()?.to_vec::<u8>()?, [0, 255, 56, 1, 240]);
        assert_eq!(x.square()?.to_vec::<u8>()?, [0, 1, 64, 1, 0]);
        assert_eq!(x.sign()?.to_vec::<u8>()?, [0, 1, 1, 1, 1]);
        assert_eq!(x.clamp(16, 200)?.to_vec::<u8>()?, [16, 16, 200, 200, 16]);
        assert_eq!(x.bitwise_not()?.to_vec::<u8>()?, [255, 254, 55, 0, 239]);
        let x = gpu.tensor(&[i8::MIN, -3, 0, 16, i8::MAX], &[5])?;
        assert_eq!(x.neg()?.to_vec::<i8>()?, [i8::MIN, 3, 0, -16, -i8::MAX]);
        assert_eq!(x.abs()?.to_vec::<i8>()?, [i8::MIN, 3, 0, 16, i8::MAX]);
        assert_eq!(x.sign()?.to_vec::<i8>()?, [-1, -1, 0, 1, 1]);
        assert_eq!(x.square()?.to_vec::<i8>()?, [0, 9, 0, 0, 1]);
        assert_eq!(x.relu()?.to_vec::<i8>()?, [0, 0, 0, 16, i8::MAX]);
        assert_eq!(x.clamp(-1, 4)?.to_vec::<i8>()?, [-1, -1, 0, 4, 4]);
        assert_eq!(x.bitwise_not()?.to_vec::<i8>()?, [127, 2, -1, -17, -128]);
        let x = gpu.tensor(&[0_u32, 7, u32::MAX], &[3])?;
        assert_eq!(x.neg()?.to_vec::<u32>()?, [0, u32::MAX - 6, 1]);
        assert_eq!(x.abs()?.to_vec::<u32>()?, [0, 7, u32::MAX]);
        Ok(())
    }
    gpus().iter().try_for_each(|(_, gpu)| ints(gpu))
}

#[test]
fn questions_are_answered_by_bools() -> Result<()> {
    for (device, gpu) in gpus() {
        for values in [ODD_FLOATS.to_vec(), ODD_FLOATS[3..].to_vec()] {
            let x = gpu.tensor(&values, &[values.len()])?;
            let answers = |f: fn(f32) -> bool| values.iter().map(|&x| f(x)).collect::<Vec<_>>();
            let nan = x.is_nan()?;
            assert_eq!(nan.dtype(), DType::Bool);
            assert_eq!(nan.to_vec::<bool>()?, answers(f32::is_nan), "{device}");
            assert_eq!(x.is_finite()?.to_vec::<bool>()?, answers(f32::is_finite));
            assert_eq!(x.is_inf()?.to_vec::<bool>()?, answers(f32::is_infinite));
            assert_eq!(x.logical_not()?.to_vec::<bool>()?, answers(|x| x == 0.0));
            let signs = x.signbit()?.to_vec::<bool>()?;
            for (sign, x) in signs.iter().zip(&values).filter(|(_, x)| !x.is_nan()) {
                assert_eq!(*sign, x.is_sign_negative(), "{x:?} on {device}");
            }
        }
        let n = gpu.tensor(&[-128_i8, -1, 0, 127], &[4])?;
        let negative = [true, true, false, false];
        assert_eq!(n.signbit()?.to_vec::<bool>()?, negative);
        let h = n.cast(DType::F16)?.signbit()?;
        assert_eq!(h.to_vec::<bool>()?, negative);
        let n = gpu.tensor(&[0_u32, u32::MAX], &[2])?;
        assert_eq!(n.signbit()?.to_vec::<bool>()?, [false; 2]);
        let b = gpu.tensor(&[true, false, true], &[3])?;
        assert_eq!((!&b)?.to_vec::<bool>()?, [false, true, false]);
        assert_eq!(b.bitwise_not()?.to_vec::<bool>()?, [false, true, false]);
    }
    Ok(())
}

#[test]
fn clamping_keeps_nan_and_obeys_the_upper_bound() -> Result<()> {
    for (_, gpu) in gpus() {
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
    for (_, gpu) in gpus() {
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
    for (name, gpu) in gpus() {
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
                (x.xlogy_scalar(2.5)?, as_f32.xlogy_scalar(2.5)?),
            ] {
                assert_eq!(got.dtype(), DType::F32, "{name} {dtype}");
                assert_eq!(
                    got.to_vec::<f32>()?,
                    expected.to_vec::<f32>()?,
                    "{name} {dtype}"
                );
            }
            // An f32 does not fit in place.
            let refused = x.exp_();
            assert!(
                matches!(refused, Err(Error::DType { .. })),
                "{name} {dtype}"
            );
        }
        let (ints, floats) = (of_type(DType::I32)?, of_type(DType::F32)?);
        assert!(matches!(ints.atan2(&floats), Err(Error::DType { .. })));
    }
    Ok(())
}
