//! Products, all, any, counts, variances, norms and logsumexp.

use lapidary::{DType, Error, Result, Tensor};

use super::model::*;

/// The accepted types: all, or floats.
#[derive(Clone, Copy, PartialEq)]
enum Takes {
    All,
    Floats,
}

/// Its name, the method, the accepted types, the result's type, and the result for a row.
type Case = (
    &'static str,
    fn(&Tensor, &[isize]) -> Result<Tensor>,
    Takes,
    fn(DType) -> DType,
    fn(&[f64], DType) -> f64,
);

fn wide(dtype: DType) -> DType {
    match dtype {
        DType::U8 | DType::Bool => DType::U32,
        DType::I8 => DType::I32,
        dtype => dtype,
    }
}

fn product(row: &[f64], dtype: DType) -> f64 {
    let wrapped = row.iter().fold(1_i64, |a, &b| a.wrapping_mul(b as i64));
    match wide(dtype) {
        DType::I32 => f64::from(wrapped as i32),
        DType::U32 => f64::from(wrapped as u32),
        _ => row.iter().product(),
    }
}

fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

fn variance(row: &[f64], correction: f64) -> f64 {
    let (len, mean) = (row.len() as f64, row.iter().sum::<f64>() / row.len() as f64);
    match len > 0.0 {
        true => row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (len - correction).max(0.0),
        false => f64::NAN,
    }
}

fn norm(row: &[f64], p: f64) -> f64 {
    let sum: f64 = row.iter().map(|v| v.abs().powf(p)).sum();
    sum.powf(1.0 / p)
}

fn log_sum_exp(row: &[f64]) -> f64 {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let middle = if max.is_finite() { max } else { 0.0 };
    row.iter().map(|v| (v - middle).exp()).sum::<f64>().ln() + middle
}

const CASES: &[Case] = &[
    ("prod", Tensor::prod, Takes::All, wide, product),
    (
        "any",
        Tensor::any,
        Takes::All,
        |_| DType::Bool,
        |row, _| truth(row.iter().any(|&v| v != 0.0)),
    ),
    (
        "all",
        Tensor::all,
        Takes::All,
        |_| DType::Bool,
        |row, _| truth(row.iter().all(|&v| v != 0.0)),
    ),
    (
        "count_nonzero",
        Tensor::count_nonzero,
        Takes::All,
        |_| DType::U32,
        |row, _| row.iter().filter(|&&v| v != 0.0).count() as f64,
    ),
    (
        "var",
        |x, a| x.var(a, 1),
        Takes::Floats,
        |d| d,
        |row, _| variance(row, 1.0),
    ),
    (
        "std",
        |x, a| x.std(a, 0),
        Takes::Floats,
        |d| d,
        |row, _| variance(row, 0.0).sqrt(),
    ),
    (
        "norm 0",
        |x, a| x.norm(a, 0.0),
        Takes::Floats,
        |d| d,
        |row, _| row.iter().filter(|&&v| v != 0.0).count() as f64,
    ),
    (
        "norm 1",
        |x, a| x.norm(a, 1.0),
        Takes::Floats,
        |d| d,
        |row, _| row.iter().map(|v| v.abs()).sum(),
    ),
    (
        "norm 2",
        |x, a| x.norm(a, 2.0),
        Takes::Floats,
        |d| d,
        |row, _| norm(row, 2.0),
    ),
    (
        "norm 3",
        |x, a| x.norm(a, 3.0),
        Takes::Floats,
        |d| d,
        |row, _| norm(row, 3.0),
    ),
    (
        "logsumexp",
        Tensor::logsumexp,
        Takes::Floats,
        |d| d,
        |row, _| log_sum_exp(row),
    ),
];

/// Reductions without a result for an empty row.
const EXTREMES: &[Case] = &[
    (
        "norm inf",
        |x, a| x.norm(a, f32::INFINITY),
        Takes::Floats,
        |d| d,
        |row, _| {
            row.iter()
                .map(|v| v.abs())
                .fold(0.0, |a, b| if b > a || b.is_nan() { b } else { a })
        },
    ),
    (
        "norm -inf",
        |x, a| x.norm(a, f32::NEG_INFINITY),
        Takes::Floats,
        |d| d,
        |row, _| {
            let sizes = row.iter().map(|v| v.abs());
            sizes.fold(
                f64::INFINITY,
                |a, b| if b < a || b.is_nan() { b } else { a },
            )
        },
    ),
];

fn check(what: &str, array: &Array, tensor: &Tensor, tolerance: f64) {
    let dtype = tensor.dtype();
    for (given, axes) in axis_sets(array.shape.len()) {
        let (shape, rows) = array.rows(&axes);
        for (name, method, takes, gives, model) in CASES.iter().chain(EXTREMES) {
            let what = format!("{name} of {what} over {given:?}");
            let got = method(tensor, &given);
            if *takes == Takes::Floats && !dtype.is_float() {
                assert!(matches!(got, Err(Error::DType { .. })), "{what}");
                continue;
            }
            let is_empty = axes.iter().any(|&axis| array.shape[axis] == 0);
            if name.ends_with("inf") && is_empty {
                assert!(matches!(got, Err(Error::Shape { .. })), "{what}");
                continue;
            }
            let got = got.unwrap();
            assert_eq!(got.dtype(), gives(dtype), "{what}");
            let expected = Array {
                shape: shape.clone(),
                values: rows.iter().map(|row| model(row, dtype)).collect(),
            };
            let expected = expected.rounded(got.dtype());
            assert_close(&download(&got), &expected, tolerance, &what);
        }
    }
}

#[test]
fn every_reduction_agrees_with_the_model_over_every_set_of_axes() {
    const SHAPES: &[&[usize]] = &[&[3, 0], &[13], &[], &[3, 3000], &[2048, 4], &[7, 5, 3]];
    for (name, gpu) in gpus() {
        for dtype in DType::ALL {
            // Each type compiles its own kernels, and the narrow ones differ only in their loads.
            let shapes = match dtype {
                DType::F32 => SHAPES,
                DType::I32 => &SHAPES[..5],
                _ => &SHAPES[..2],
            };
            for shape in shapes {
                let array = Array::new(shape, noise(dtype)).rounded(dtype);
                let tensor = array.upload(&gpu, dtype);
                let tolerance = 3e-5_f64.max(tolerance(dtype));
                if dtype == DType::F32 && *shape == [7, 5, 3] {
                    for (view, array, tensor) in views(&array, &tensor) {
                        let what = format!("{name} {dtype} {shape:?} {view}");
                        check(&what, &array, &tensor, tolerance);
                    }
                } else {
                    check(
                        &format!("{name} {dtype} {shape:?}"),
                        &array,
                        &tensor,
                        tolerance,
                    );
                }
            }
        }
    }
}

#[test]
fn nan_and_infinities_reach_every_result() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let rows = [
        [1.0, nan, 3.0, -inf, 5.0],
        [1.0, 2.0, inf, -1.0, 0.0],
        [-inf, -inf, -inf, -inf, -inf],
        [0.0, 0.0, -0.0, 0.0, -0.0],
        [nan, nan, nan, nan, nan],
        [90.0, 91.0, -200.0, 89.0, 1.0],
    ];
    for (name, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let array = Array::new(&[6, 5], |at| rows[at / 5][at % 5]);
            let tensor = array.upload(&gpu, dtype);
            for axis in [0, 1] {
                let (_, rows) = array.rows(&[axis]);
                let rows = rows.into_iter().enumerate();
                // One row at a time, because a power of another row may overflow.
                for (at, row) in rows.filter(|(_, row)| row.iter().any(|v| !v.is_finite())) {
                    let given = tensor.select(1 - axis as isize, at as isize).unwrap();
                    let array = Array {
                        shape: vec![row.len()],
                        values: row,
                    };
                    let what = format!("{name} {dtype} {:?}", array.values);
                    check(&what, &array, &given, 1e-3_f64.max(tolerance(dtype) / 2.0));
                }
            }
            let large = tensor.logsumexp(&[1]).unwrap();
            let large = download(&large).values[5];
            let off = 0.1_f64.max(91.4 * tolerance(dtype));
            assert!((large - 91.4).abs() < off, "{name} {dtype} {large}");
        }
    }
}

#[test]
fn a_spread_far_from_zero_is_as_exact_as_one_around_it() {
    for (name, gpu) in gpus() {
        let data: Vec<f32> = (0..4000).map(|at| 1e4 + (at % 5) as f32).collect();
        let t = gpu.tensor(&data, &[4000]).unwrap();
        let got = t.var_all(0).unwrap().item::<f32>().unwrap();
        assert!((got - 2.0).abs() < 1e-5, "{name} {got}");
        let got = t.std_keepdim(&[0], 1).unwrap();
        assert_eq!(got.shape(), [1], "{name}");
        let one = t.narrow(0, 0, 1).unwrap();
        assert!(one.var_all(1).unwrap().item::<f32>().unwrap().is_nan());
        assert_eq!(one.var_all(0).unwrap().item::<f32>().unwrap(), 0.0);
        assert!(matches!(t.norm_all(f32::NAN), Err(Error::Option { .. })));
        assert!(matches!(t.prod(&[1]), Err(Error::Axis { .. })));
        assert!(matches!(t.any(&[0, -1]), Err(Error::Shape { .. })));
    }
}

#[test]
fn any_finite_number_corrects_a_variance() -> Result<()> {
    for (name, gpu) in gpus() {
        let x = gpu.tensor(&[1.0_f32, 2.0, 3.0, 6.0], &[4])?;
        for (correction, expected) in [(0.5, 4.0), (-3.0, 2.0), (3.5, 28.0)] {
            let got = x.var(&[0], correction)?.item::<f32>()?;
            assert!((got - expected).abs() < 1e-5, "{name} {correction}: {got}");
            let got = x.std_all(correction)?.item::<f32>()?;
            assert!(
                (got - expected.sqrt()).abs() < 1e-5,
                "{name} {correction}: {got}"
            );
        }
        // As many elements as the correction, or fewer: the divisor is 0.
        for correction in [4.0, 4.5, 1000.0] {
            let got = x.var(&[0], correction)?.item::<f32>()?;
            assert_eq!(got, f32::INFINITY, "{name} {correction}");
        }
        for correction in [-1.0, 0.0, 1.0] {
            let got = x.narrow(0, 0, 0)?.var(&[0], correction)?.item::<f32>()?;
            assert!(got.is_nan(), "{name} {correction}: {got}");
        }
        for correction in [f64::NAN, f64::INFINITY] {
            let refused = x.var(&[0], correction);
            assert!(matches!(refused, Err(Error::Option { .. })), "{refused:?}");
        }
    }
    Ok(())
}
