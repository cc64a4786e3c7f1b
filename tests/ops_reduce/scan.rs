//! Running sums, products, extremes and logarithms of sums.

use lapidary::{DType, Gpu, Result, Tensor};

use crate::devices::{reference, refused};

use super::model::*;

type Method = fn(&Tensor, isize) -> Result<Tensor>;

/// Running totals are rounded at the size of the largest one.
const TOTALS: &[(&str, Method)] = &[("cumsum", Tensor::cumsum), ("cumprod", Tensor::cumprod)];

const EXTREMES: &[(&str, Method)] = &[
    ("cummax", |x, axis| Ok(x.cummax(axis)?.0)),
    ("cummax, places", |x, axis| Ok(x.cummax(axis)?.1)),
    ("cummin", |x, axis| Ok(x.cummin(axis)?.0)),
    ("cummin, places", |x, axis| Ok(x.cummin(axis)?.1)),
];

fn check(what: &str, reference: &Gpu, x: &Tensor, methods: &[(&str, Method)], error: f64) {
    let (dtype, far) = (x.dtype(), x.to(reference).unwrap());
    for axis in 0..x.rank() {
        for &(name, method) in methods {
            let what = format!("{name} of {what} along {axis}");
            let along = axis as isize - x.rank() as isize;
            let (got, wanted) = (method(x, along).unwrap(), method(&far, along).unwrap());
            let out = match dtype {
                _ if name.ends_with("places") => DType::U32,
                DType::U8 | DType::Bool if !name.starts_with("cumm") => DType::U32,
                DType::I8 if !name.starts_with("cumm") => DType::I32,
                dtype => dtype,
            };
            assert_eq!((got.dtype(), wanted.dtype()), (out, out), "{what}");
            let wanted = download(&wanted);
            let finite = wanted.values.iter().filter(|total| total.is_finite());
            let largest = finite.fold(1.0, |most: f64, total| most.max(total.abs()));
            assert_within(&download(&got), &wanted, |_| error * largest, &what);
        }
    }
}

#[test]
fn running_extremes_are_found_along_every_axis_of_every_view() {
    let reference = reference();
    for gpu in each() {
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
                let all = views(&array.upload(&gpu, dtype));
                let is_seen = dtype == DType::F16 && shape.len() == 3;
                for (view, x) in &all[..if is_seen { all.len() } else { 1 }] {
                    let what = format!("{dtype} {shape:?} {view}");
                    check(&what, &reference, x, EXTREMES, 0.0);
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
fn running_totals_are_right_along_every_axis_of_every_view() {
    let reference = reference();
    for gpu in each() {
        for dtype in DType::ALL {
            for &shape in shapes_for(dtype, SHAPES) {
                let all = views(&made(&gpu, shape, dtype));
                let is_small = all[0].1.len() < 1000;
                for (view, x) in &all[..if is_small { all.len() } else { 1 }] {
                    let what = format!("{dtype} {shape:?} {view}");
                    check(&what, &reference, x, TOTALS, tolerance(dtype));
                }
            }
        }
    }
}

#[test]
fn totals_wrap_and_nan_stays_from_where_it_is() -> Result<()> {
    for (name, gpu) in gpus() {
        let t = gpu.tensor(&[i32::MAX, 1, 5], &[3])?;
        let got = t.cumsum(0)?.to_vec::<i32>()?;
        assert_eq!(got, [i32::MAX, i32::MIN, i32::MIN + 5], "{name}");
        let t = gpu.tensor(&[1.0, f32::NAN, 2.0], &[3])?;
        let got = t.cumprod(0)?.to_vec::<f32>()?;
        assert!(
            got[0] == 1.0 && got[1..].iter().all(|x| x.is_nan()),
            "{name}"
        );
        refused!(Axis: t.cumsum(1));
        // Nearly all ones: a running sum in f32 would stop growing.
        let len = if name == "adapter" { 3_000_000 } else { 30_000 };
        let t = gpu.full(&[len], 1.1_f32, DType::F32)?;
        let got = t.cumsum(0)?.to_vec::<f32>()?;
        for (at, got) in got.into_iter().enumerate() {
            let exact = (at + 1) as f64 * f64::from(1.1_f32);
            let error = (f64::from(got) / exact - 1.0).abs();
            assert!(error < 4e-5, "{name} {at}: {got}, not {exact}");
        }
    }
    Ok(())
}

#[test]
fn running_logarithms_of_sums_lose_nothing_after_a_large_element() -> Result<()> {
    for gpu in each() {
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
            assert!(!flat.shares_storage_with(&x), "{count}");
            let wide = x.unsqueeze(1)?.broadcast_to(&[count, 3])?;
            let wide = wide.t()?.logcumsumexp(1)?;
            for got in [flat, wide.select(0, 2)?] {
                for (got, expected) in got.to_vec::<f32>()?.into_iter().zip(&expected) {
                    let off = (f64::from(got) - expected).abs();
                    assert!(off < 1e-4, "{count}: {got} for {expected}");
                }
            }
        }
        let inf = f32::INFINITY;
        let odd = gpu.tensor(&[-inf, -inf, 0.0, inf, 1.0, f32::NAN, 0.0], &[7])?;
        let got = odd.logcumsumexp(0)?.to_vec::<f32>()?;
        assert_eq!(got[..5], [-inf, -inf, 0.0, inf, inf]);
        assert!(got[5].is_nan() && got[6].is_nan(), "{got:?}");
        let half = gpu.full(&[2049], 1.0, DType::F16)?.logcumsumexp(0)?;
        let last = half.narrow(0, -1, 1)?.cast(DType::F32)?.item::<f32>()?;
        assert!((last - 8.625).abs() < 0.01, "{last}");
        assert_eq!(gpu.scalar(2.5_f32)?.logcumsumexp(0)?.item::<f32>()?, 2.5);
        let none = gpu.zeros(&[3, 0], DType::F32)?;
        assert_eq!(none.logcumsumexp(0)?.shape(), [3, 0]);
        let ints = gpu.zeros(&[3], DType::I32)?;
        refused!(DType: ints.logcumsumexp(0));
        refused!(Axis: odd.logcumsumexp(1));
    }
    Ok(())
}

#[test]
fn a_running_product_is_finite_where_it_is_in_order() {
    for gpu in each() {
        let mut after_zero = vec![10.0_f32; 5000];
        after_zero[0] = 0.0;
        let mut after_small = vec![0.5_f32; 64];
        after_small.extend([100.0; 20]);
        for elements in [after_zero, after_small] {
            let x = gpu.tensor(&elements, &[elements.len()]).unwrap();
            let found = x.cumprod(0).unwrap().to_vec::<f32>().unwrap();
            let mut product = 1.0_f64;
            for (at, (found, element)) in found.into_iter().zip(&elements).enumerate() {
                product *= f64::from(*element);
                let error = (f64::from(found) - product).abs();
                assert!(error <= 1e-5 * product, "{at}: {found} for {product}");
            }
        }
    }
}
