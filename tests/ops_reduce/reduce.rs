//! Sums, means, extremes, their indices, products, counts, variances, norms and logsumexp.

use lapidary::{DType, Gpu, Result, Tensor};

use crate::devices::{reference, refused};

use super::model::*;

/// The shapes: empty, one element, primes, thin and flat, odd, more rows than a vec4, long rows.
const SHAPES: &[&[usize]] = &[
    &[],
    &[0],
    &[3, 0],
    &[0, 3],
    &[1],
    &[13],
    &[1, 37],
    &[37, 1],
    &[4, 16],
    &[16, 4],
    &[7, 5, 3],
    &[8, 12, 4],
    &[33, 65, 7],
    &[3, 3000],
    &[3000, 3],
    &[2, 3, 2, 3, 2, 3],
];

type Fold = fn(&Tensor, &[isize]) -> Result<Tensor>;

/// Reductions over axes, and their errors for f32.
pub(crate) const FOLDS: &[(&str, Fold, f64)] = &[
    ("sum", Tensor::sum, 4e-6),
    ("mean", Tensor::mean, 4e-6),
    ("max", Tensor::max, 0.0),
    ("min", Tensor::min, 0.0),
    ("any", Tensor::any, 0.0),
    ("all", Tensor::all, 0.0),
    ("count_nonzero", Tensor::count_nonzero, 0.0),
    ("prod", Tensor::prod, 3e-5),
    ("var", |x, a| x.var(a, 1), 3e-5),
    ("std", |x, a| x.std(a, 0), 3e-5),
    ("norm 0", |x, a| x.norm(a, 0.0), 3e-5),
    ("norm 1", |x, a| x.norm(a, 1.0), 3e-5),
    ("norm 2", |x, a| x.norm(a, 2.0), 3e-5),
    ("norm 3", |x, a| x.norm(a, 3.0), 3e-5),
    ("norm inf", |x, a| x.norm(a, f32::INFINITY), 3e-5),
    ("norm -inf", |x, a| x.norm(a, f32::NEG_INFINITY), 3e-5),
    ("logsumexp", Tensor::logsumexp, 3e-5),
];

/// Of these there are kernels of their own.
const SUMS: &[(&str, Fold, f64)] = FOLDS.split_at(4).0;
const MOMENTS: &[(&str, Fold, f64)] = FOLDS.split_at(4).1;

/// The type of a result.
fn gives(name: &str, dtype: DType) -> DType {
    match (name, dtype) {
        ("any" | "all", _) => DType::Bool,
        ("count_nonzero", _) => DType::U32,
        ("sum" | "prod", DType::U8 | DType::Bool) => DType::U32,
        ("sum" | "prod", DType::I8) => DType::I32,
        _ => dtype,
    }
}

/// Compares with the simulation, over every set of axes. Errors are at least this large.
fn check(what: &str, reference: &Gpu, x: &Tensor, folds: &[(&str, Fold, f64)], least: f64) {
    let (dtype, far) = (x.dtype(), x.to(reference).unwrap());
    for (given, axes) in axis_sets(x.rank()) {
        let is_empty = axes.iter().any(|&axis| x.shape()[axis] == 0);
        for &(name, fold, error) in folds {
            let what = format!("{name} of {what} over {given:?}");
            let got = fold(x, &given);
            let is_of_floats = ["mean", "var", "std", "logsumexp"].contains(&name);
            if !dtype.is_float() && (is_of_floats || name.starts_with("norm")) {
                refused!(DType: got);
                continue;
            }
            if is_empty && ["max", "min", "norm inf", "norm -inf"].contains(&name) {
                refused!(Shape: got);
                continue;
            }
            let (got, wanted) = (got.unwrap(), fold(&far, &given).unwrap());
            assert_eq!(got.dtype(), gives(name, dtype), "{what}");
            let is_exact = error == 0.0;
            let error = if is_exact {
                0.0
            } else {
                error.max(tolerance(dtype)).max(least)
            };
            near(&got, &wanted, error, &what);
        }
        let kept = x.shape().iter().enumerate();
        let kept = kept.map(|(axis, &dim)| if axes.contains(&axis) { 1 } else { dim });
        let got = x.sum_keepdim(&given).unwrap();
        assert_eq!(got.shape(), kept.collect::<Vec<_>>(), "{what}");
    }
}

fn check_arg(what: &str, reference: &Gpu, x: &Tensor) {
    let far = x.to(reference).unwrap();
    for axis in 0..x.rank() {
        let along = axis as isize - x.rank() as isize;
        for (name, index) in [
            ("argmax", Tensor::argmax as Arg),
            ("argmin", Tensor::argmin),
        ] {
            let got = index(x, along);
            if x.shape()[axis] == 0 {
                refused!(Shape: got);
                continue;
            }
            let (got, wanted) = (got.unwrap(), index(&far, along).unwrap());
            assert_eq!(got.dtype(), DType::U32);
            near(
                &got,
                &wanted,
                0.0,
                &format!("{name} of {what}, axis {axis}"),
            );
        }
    }
}

type Arg = fn(&Tensor, isize) -> Result<Tensor>;

/// Calls `run` with tensors of f32 in every shape, and with views of those that are small. Each set
/// of axes needs a compilation, and types differ in loads, stores and orders alone. So f16 and i32
/// have no shapes of more than three dimensions, and other types a few. Types of two and of four
/// elements a word have views of one shape.
fn for_all(all: &[&[usize]], run: impl Fn(&str, &Tensor)) {
    const FEW: &[&[usize]] = &[&[7, 5, 3], &[4, 16], &[3, 3000]];
    for gpu in each() {
        for dtype in DType::ALL {
            let (most, shapes) = match dtype {
                DType::F32 => (7, all),
                DType::F16 | DType::I32 => (3, all),
                _ => (3, FEW),
            };
            for &shape in shapes.iter().filter(|shape| shape.len() <= most) {
                let is_small = shape.len() <= 3 && shape.iter().product::<usize>() < 1000;
                let has_views = match dtype {
                    DType::F32 => is_small,
                    DType::F16 | DType::U8 => shape == [7, 5, 3],
                    _ => false,
                };
                let tensor = made(&gpu, shape, dtype);
                let mut views = views(&tensor);
                views.truncate(if has_views { views.len() } else { 1 });
                for (view, tensor) in views {
                    run(&format!("{dtype} {shape:?} {view}"), &tensor);
                }
            }
        }
    }
}

#[test]
fn sums_and_extremes_over_every_set_of_axes() {
    let reference = reference();
    for_all(SHAPES, |what, x| check(what, &reference, x, SUMS, 0.0));
}

#[test]
fn argmax_and_argmin_find_the_first_extreme_along_every_axis() {
    let reference = reference();
    for_all(&SHAPES[1..], |what, x| check_arg(what, &reference, x));
}

#[test]
fn moments_over_every_set_of_axes() {
    const SHAPES: &[&[usize]] = &[&[3, 0], &[13], &[], &[3, 3000], &[2048, 4], &[7, 5, 3]];
    let reference = reference();
    for gpu in each() {
        for dtype in DType::ALL {
            // Each type compiles its own kernels, and the narrow ones differ only in their loads.
            let shapes = match dtype {
                DType::F32 => SHAPES,
                DType::I32 => &SHAPES[..5],
                _ => &SHAPES[..2],
            };
            for &shape in shapes {
                let tensor = made(&gpu, shape, dtype);
                let has_views = dtype == DType::F32 && shape == [7, 5, 3];
                for (view, x) in views(&tensor) {
                    // Sums, which have the same loops, are tested with all views.
                    if view == "whole" || has_views && view == "stepped" {
                        let what = format!("{dtype} {shape:?} {view}");
                        check(&what, &reference, &x, MOMENTS, 3e-5);
                    }
                }
            }
        }
    }
}

#[test]
fn views_of_a_large_odd_tensor_are_reduced() {
    let reference = reference();
    for gpu in each() {
        for (view, tensor) in views(&made(&gpu, &[33, 65, 7], DType::F32)) {
            check(view, &reference, &tensor, SUMS, 0.0);
        }
    }
}

#[test]
fn nan_and_infinities_propagate() -> Result<()> {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let rows = [
        [1.0, nan, 3.0, -inf, 5.0],
        [1.0, 2.0, inf, -1.0, 0.0],
        [-inf, -inf, -inf, -inf, -inf],
        [inf, -inf, 0.0, 0.0, 0.0],
        [-0.0, 0.0, -0.0, 0.0, -0.0],
        [-nan, nan, 0.0, 1.0, 2.0],
        [nan, nan, nan, nan, nan],
    ];
    let reference = reference();
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let array = Array::new(&[7, 5], |at| rows[at / 5][at % 5]);
            let tensor = array.upload(&gpu, dtype);
            for (view, x) in views(&tensor) {
                check(&format!("{dtype} {view}"), &reference, &x, SUMS, 0.0);
                check_arg(&format!("{dtype} {view}"), &reference, &x);
            }
            // One row at a time, because a power of another row may overflow.
            for (axis, count) in [(0, 7), (1, 5)] {
                for at in 0..count {
                    let x = tensor.select(axis, at)?;
                    let what = format!("{dtype} {at} along {axis}");
                    check(&what, &reference, &x, MOMENTS, 1e-3);
                }
            }
        }
    }
    Ok(())
}

#[test]
fn integers_wrap_and_extremes_reach_the_ends_of_the_type() -> Result<()> {
    for gpu in each() {
        let ints = [i32::MAX, 1, i32::MIN, -1, i32::MIN, 7];
        let t = gpu.tensor(&ints, &[6])?;
        let wrapped = ints.iter().fold(0_i32, |a, &b| a.wrapping_add(b));
        assert_eq!(t.sum_all()?.item::<i32>()?, wrapped);
        assert_eq!(t.max_all()?.item::<i32>()?, i32::MAX);
        assert_eq!(t.min_all()?.item::<i32>()?, i32::MIN);
        assert_eq!(t.argmin(0)?.item::<u32>()?, 2);
        let words = [u32::MAX, 0, u32::MAX, 5];
        let t = gpu.tensor(&words, &[4])?;
        assert_eq!(t.sum_all()?.item::<u32>()?, 3);
        assert_eq!(t.argmax(-1)?.item::<u32>()?, 0);
        assert_eq!(t.argmin(-1)?.item::<u32>()?, 1);
        let lowest = gpu.tensor(&[i32::MIN; 9], &[9])?;
        assert_eq!(lowest.argmax(0)?.item::<u32>()?, 0);
    }
    Ok(())
}

#[test]
fn sums_of_millions_are_accurate() -> Result<()> {
    for (name, gpu) in gpus() {
        let len = match name {
            "adapter" => 20_000_003,
            _ => 50_003,
        };
        // Nearly all ones: a running sum in f32 would stop at 2^24.
        let data: Vec<f32> = (0..len)
            .map(|at| if at % 3 == 0 { 1.0 } else { 1.1 })
            .collect();
        let exact: f64 = data.iter().map(|&v| f64::from(v)).sum();
        let t = gpu.tensor(&data, &[len])?;
        let close = |got: f32, exact: f64, what: &str| {
            let error = (f64::from(got) / exact - 1.0).abs();
            assert!(
                error < 3e-6,
                "{name} {what}: {got}, not {exact} (relative error {error:e})"
            );
        };
        close(t.sum_all()?.item()?, exact, "sum");
        close(t.mean_all()?.item()?, exact / len as f64, "mean");
        let (rows, half) = (3, len / 3);
        let by_axis = t.narrow(0, 0, rows * half)?.view_as(&[half, rows])?;
        let sums = by_axis.sum(&[0])?.to_vec::<f32>()?;
        for (column, sum) in sums.into_iter().enumerate() {
            let exact = data[..rows * half].iter().skip(column).step_by(rows);
            close(sum, exact.map(|&v| f64::from(v)).sum(), "column");
        }
        assert_eq!(t.max_all()?.item::<f32>()?, 1.1);
        assert_eq!(t.argmax(0)?.item::<u32>()?, 1);
        let ones = gpu.tensor(&vec![true; len], &[len])?;
        assert_eq!(ones.sum_all()?.item::<u32>()?, len as u32);
    }
    Ok(())
}

#[test]
fn axes_that_are_not_there_are_refused() -> Result<()> {
    for gpu in each() {
        let t = gpu.zeros(&[2, 3], DType::F32)?;
        for axes in [&[2][..], &[-3], &[0, 9], &[isize::MIN], &[isize::MAX]] {
            refused!(Axis: t.sum(axes));
        }
        refused!(Shape: t.sum(&[0, -2]));
        refused!(Axis: t.argmax(2));
        refused!(Axis: t.softmax(-3));
    }
    Ok(())
}

#[test]
fn a_spread_far_from_zero_is_as_exact_as_one_around_it() -> Result<()> {
    for gpu in each() {
        let data: Vec<f32> = (0..4000).map(|at| 1e4 + (at % 5) as f32).collect();
        let t = gpu.tensor(&data, &[4000])?;
        let got = t.var_all(0)?.item::<f32>()?;
        assert!((got - 2.0).abs() < 1e-5, "{got}");
        let got = t.std_keepdim(&[0], 1)?;
        assert_eq!(got.shape(), [1]);
        let one = t.narrow(0, 0, 1)?;
        assert!(one.var_all(1)?.item::<f32>()?.is_nan());
        assert_eq!(one.var_all(0)?.item::<f32>()?, 0.0);
        refused!(Option: t.norm_all(f32::NAN));
        refused!(Axis: t.prod(&[1]));
        refused!(Shape: t.any(&[0, -1]));
    }
    Ok(())
}

#[test]
fn any_finite_number_corrects_a_variance() -> Result<()> {
    for gpu in each() {
        let x = gpu.tensor(&[1.0_f32, 2.0, 3.0, 6.0], &[4])?;
        for (correction, expected) in [(0.5, 4.0), (-3.0, 2.0), (3.5, 28.0)] {
            let got = x.var(&[0], correction)?.item::<f32>()?;
            assert!((got - expected).abs() < 1e-5, "{correction}: {got}");
            let got = x.std_all(correction)?.item::<f32>()?;
            assert!((got - expected.sqrt()).abs() < 1e-5, "{correction}: {got}");
        }
        // As many elements as the correction, or fewer: the divisor is 0.
        for correction in [4.0, 4.5, 1000.0] {
            let got = x.var(&[0], correction)?.item::<f32>()?;
            assert_eq!(got, f32::INFINITY, "{correction}");
        }
        for correction in [-1.0, 0.0, 1.0] {
            let got = x.narrow(0, 0, 0)?.var(&[0], correction)?.item::<f32>()?;
            assert!(got.is_nan(), "{correction}: {got}");
        }
        for correction in [f64::NAN, f64::INFINITY] {
            refused!(Option: x.var(&[0], correction));
        }
    }
    Ok(())
}
