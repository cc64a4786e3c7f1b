//! Running sums, products, extremes and logarithms of sums.

use lapidary::{DType, Error, Result, Tensor};

use super::model::*;

/// A name, the method, and the function that joins two elements.
type Case = (&'static str, Method, fn(f64, f64) -> f64);
type Method = fn(&Tensor, isize) -> Result<Tensor>;

fn check(what: &str, array: &Array, tensor: &Tensor) {
    let dtype = tensor.dtype();
    let out = match dtype {
        DType::U8 | DType::Bool => DType::U32,
        DType::I8 => DType::I32,
        dtype => dtype,
    };
    let wrapped = |value: f64| match out {
        DType::I32 => f64::from(value as i64 as i32),
        DType::U32 => f64::from(value as i64 as u32),
        _ => value,
    };
    let cases: [Case; 2] = [
        ("cumsum", Tensor::cumsum, |a, b| a + b),
        ("cumprod", Tensor::cumprod, |a, b| a * b),
    ];
    for axis in 0..array.shape.len() {
        for (name, method, fold) in cases {
            let step: usize = array.shape[axis + 1..].iter().product();
            let mut expected = array.clone();
            for at in 0..expected.values.len() {
                if !(at / step).is_multiple_of(array.shape[axis]) {
                    let before = expected.values[at - step];
                    expected.values[at] = wrapped(fold(before, expected.values[at]));
                }
            }
            let along = axis as isize - array.shape.len() as isize;
            let got = method(tensor, along).unwrap();
            assert_eq!(got.dtype(), out);
            // Terms are rounded at the size of the largest total.
            let largest = expected.values.iter().fold(1.0, |a: f64, b| a.max(b.abs()));
            let expected = expected.rounded(out);
            let what = format!("{name} of {what} along {axis}");
            assert_close(
                &download(&got),
                &expected,
                tolerance(dtype) * largest,
                &what,
            );
        }
    }
}

/// Running extremes and their indices. The last of equal elements counts, and NaN wins.
fn check_extremes(what: &str, array: &Array, tensor: &Tensor) {
    type Extremes = fn(&Tensor, isize) -> Result<(Tensor, Tensor)>;
    type Wins = fn(f64, f64) -> bool;
    let cases: [(&str, Extremes, Wins); 2] = [
        ("cummax", Tensor::cummax, |a, b| a >= b),
        ("cummin", Tensor::cummin, |a, b| a <= b),
    ];
    for axis in 0..array.shape.len() {
        for (name, method, wins) in cases {
            let step: usize = array.shape[axis + 1..].iter().product();
            let mut expected = array.clone();
            let mut places = Array::new(&array.shape, |_| 0.0);
            for at in 0..expected.values.len() {
                let place = at / step % array.shape[axis];
                let own = expected.values[at];
                let before = if place == 0 {
                    own
                } else {
                    expected.values[at - step]
                };
                if own.is_nan() || wins(own, before) {
                    places.values[at] = place as f64;
                } else {
                    expected.values[at] = before;
                    places.values[at] = places.values[at - step];
                }
            }
            let (values, found) = method(tensor, axis as isize).unwrap();
            assert_eq!(
                (values.dtype(), found.dtype()),
                (tensor.dtype(), DType::U32)
            );
            let what = format!("{name} of {what} along {axis}");
            assert_close(&download(&values), &expected, 0.0, &what);
            assert_close(&download(&found), &places, 0.0, &format!("{what}, places"));
        }
    }
}

#[test]
fn running_extremes_agree_with_the_model_along_every_axis_of_every_view() {
    for (name, gpu) in gpus() {
        for dtype in DType::ALL {
            for shape in shapes_for(dtype, &[&[7, 5, 3], &[3, 9001], &[0]]) {
                let mut noise = noise(dtype);
                // Many equal elements, infinities, and a NaN.
                let mut array = Array::new(shape, |at| (noise(at) * 2.0).trunc());
                if dtype.is_float() && array.values.len() > 30 {
                    let far = array.values.len() * 2 / 3;
                    array.values[..4].fill(f64::NEG_INFINITY);
                    array.values[5] = f64::INFINITY;
                    array.values[far] = f64::NAN;
                }
                let array = array.rounded(dtype);
                let tensor = array.upload(&gpu, dtype);
                let what = format!("{name} {dtype} {shape:?}");
                if dtype == DType::F16 && shape.len() == 3 {
                    for (view, array, tensor) in views(&array, &tensor) {
                        check_extremes(&format!("{what} {view}"), &array, &tensor);
                    }
                } else {
                    check_extremes(&what, &array, &tensor);
                }
            }
        }
    }
}

const SHAPES: &[&[usize]] = &[
    &[0],
    &[1],
    &[3, 0, 2],
    &[13],
    &[7, 5, 3],
    &[4, 8],
    &[3, 9001],
    &[5001, 2],
    &[40_000],
];

#[test]
fn running_totals_agree_with_the_model_along_every_axis_of_every_view() {
    for (name, gpu) in gpus() {
        for dtype in DType::ALL {
            for shape in shapes_for(dtype, SHAPES) {
                let mut noise = noise(dtype);
                let array = Array::new(shape, |at| match dtype {
                    // The values are small, because f64 represents only small products exactly.
                    DType::I32 | DType::I8 => noise(at) % 3.0,
                    DType::U32 | DType::U8 => noise(at) % 2.0,
                    _ => noise(at),
                });
                let array = array.rounded(dtype);
                let tensor = array.upload(&gpu, dtype);
                let what = format!("{name} {dtype} {shape:?}");
                if shape.iter().product::<usize>() < 1000 {
                    for (view, array, tensor) in views(&array, &tensor) {
                        check(&format!("{what} {view}"), &array, &tensor);
                    }
                } else {
                    check(&what, &array, &tensor);
                }
            }
        }
    }
}

#[test]
fn totals_wrap_and_nan_stays_from_where_it_is() {
    for (name, gpu) in gpus() {
        let t = gpu.tensor(&[i32::MAX, 1, 5], &[3]).unwrap();
        let got = t.cumsum(0).unwrap().to_vec::<i32>().unwrap();
        assert_eq!(got, [i32::MAX, i32::MIN, i32::MIN + 5], "{name}");
        let t = gpu.tensor(&[1.0, f32::NAN, 2.0], &[3]).unwrap();
        let got = t.cumprod(0).unwrap().to_vec::<f32>().unwrap();
        assert!(
            got[0] == 1.0 && got[1].is_nan() && got[2].is_nan(),
            "{name}"
        );
        assert!(matches!(t.cumsum(1), Err(Error::Axis { .. })));
        // Nearly all ones: a running sum in f32 would stop growing.
        let len = if name == "adapter" { 3_000_000 } else { 30_000 };
        let t = gpu.full(&[len], 1.1_f32, DType::F32).unwrap();
        let got = t.cumsum(0).unwrap().to_vec::<f32>().unwrap();
        for (at, got) in got.into_iter().enumerate() {
            let exact = (at + 1) as f64 * f64::from(1.1_f32);
            let error = (f64::from(got) / exact - 1.0).abs();
            assert!(error < 4e-5, "{name} {at}: {got}, not {exact}");
        }
    }
}

#[test]
fn running_logarithms_of_sums_lose_nothing_after_a_large_element() -> Result<()> {
    for (name, gpu) in gpus() {
        for count in [1, 2, 3, 8, 13, 1000] {
            let values: Vec<f32> = (0..count)
                .map(|at| ((at * 37 % 41) as f32) * 8.0 - 300.0)
                .collect();
            let mut total = f64::NEG_INFINITY;
            let expected = values.iter().map(|&x| {
                let (low, high) = (total.min(x.into()), total.max(x.into()));
                total = high + (low - high).exp().ln_1p();
                total
            });
            let expected: Vec<f64> = expected.collect();
            let x = gpu.tensor(&values, &[count])?;
            let flat = x.logcumsumexp(0)?;
            assert!(!flat.shares_storage_with(&x), "{name} {count}");
            let wide = x
                .unsqueeze(1)?
                .broadcast_to(&[count, 3])?
                .t()?
                .logcumsumexp(1)?;
            for got in [flat, wide.select(0, 2)?] {
                for (got, expected) in got.to_vec::<f32>()?.into_iter().zip(&expected) {
                    let off = (f64::from(got) - expected).abs();
                    assert!(off < 1e-4, "{name} {count}: {got} for {expected}");
                }
            }
        }
        let inf = f32::INFINITY;
        let odd = gpu.tensor(&[-inf, -inf, 0.0, inf, 1.0, f32::NAN, 0.0], &[7])?;
        let got = odd.logcumsumexp(0)?.to_vec::<f32>()?;
        assert_eq!(got[..5], [-inf, -inf, 0.0, inf, inf], "{name}");
        assert!(got[5].is_nan() && got[6].is_nan(), "{name}: {got:?}");
        let half = gpu.full(&[2049], 1.0, DType::F16)?.logcumsumexp(0)?;
        let last = half.narrow(0, -1, 1)?.cast(DType::F32)?.item::<f32>()?;
        assert!((last - 8.625).abs() < 0.01, "{name}: {last}");
        assert_eq!(gpu.scalar(2.5_f32)?.logcumsumexp(0)?.item::<f32>()?, 2.5);
        assert_eq!(
            gpu.zeros(&[3, 0], DType::F32)?.logcumsumexp(0)?.shape(),
            [3, 0]
        );
        let ints = gpu.zeros(&[3], DType::I32)?;
        assert!(matches!(ints.logcumsumexp(0), Err(Error::DType { .. })));
        assert!(matches!(odd.logcumsumexp(1), Err(Error::Axis { .. })));
    }
    Ok(())
}
