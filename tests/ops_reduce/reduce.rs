//! Sums, means, extremes and their indices.

use lapidary::{DType, Error, Tensor};

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

fn extreme(row: &[f64], least: bool) -> f64 {
    row.iter().copied().fold(
        if least {
            f64::INFINITY
        } else {
            f64::NEG_INFINITY
        },
        |a, b| match (a.is_nan() || b.is_nan(), least) {
            (true, _) => f64::NAN,
            (_, true) => a.min(b),
            (_, false) => a.max(b),
        },
    )
}

fn check_sums(what: &str, array: &Array, tensor: &Tensor) {
    let dtype = tensor.dtype();
    for (given, axes) in axis_sets(array.shape.len()) {
        let (shape, rows) = array.rows(&axes);
        let what = format!("{what} over {given:?}");
        let model = |fold: &dyn Fn(&[f64]) -> f64| Array {
            shape: shape.clone(),
            values: rows.iter().map(|row| fold(row)).collect(),
        };
        let sum = model(&|row| row.iter().sum());
        let got = tensor.sum(&given).unwrap();
        let expected_dtype = match dtype {
            DType::U8 | DType::Bool => DType::U32,
            DType::I8 => DType::I32,
            dtype => dtype,
        };
        assert_eq!(got.dtype(), expected_dtype, "{what}");
        assert_close(
            &download(&got),
            &sum,
            tolerance(dtype),
            &format!("sum {what}"),
        );
        let kept: Vec<usize> = (0..array.shape.len())
            .map(|axis| {
                if axes.contains(&axis) {
                    1
                } else {
                    array.shape[axis]
                }
            })
            .collect();
        assert_eq!(tensor.sum_keepdim(&given).unwrap().shape(), kept, "{what}");
        match dtype.is_float() {
            true => {
                let mean = model(&|row| row.iter().sum::<f64>() / row.len() as f64);
                let got = download(&tensor.mean(&given).unwrap());
                assert_close(&got, &mean, tolerance(dtype), &format!("mean {what}"));
            }
            false => assert!(matches!(tensor.mean(&given), Err(Error::DType { .. }))),
        }
        if axes.iter().any(|&axis| array.shape[axis] == 0) {
            assert!(
                matches!(tensor.max(&given), Err(Error::Shape { .. })),
                "{what}"
            );
            assert!(
                matches!(tensor.min(&given), Err(Error::Shape { .. })),
                "{what}"
            );
            continue;
        }
        for least in [false, true] {
            let got = if least {
                tensor.min(&given)
            } else {
                tensor.max(&given)
            };
            let expected = model(&|row| extreme(row, least));
            assert_close(
                &download(&got.unwrap()),
                &expected,
                0.0,
                &format!("{least} {what}"),
            );
        }
    }
}

#[test]
fn reductions_agree_with_the_model_over_every_set_of_axes() {
    for (name, gpu) in gpus() {
        for dtype in DType::ALL {
            for shape in shapes_for(dtype, SHAPES) {
                let is_small = shape.iter().product::<usize>() < 1000;
                let array = Array::new(shape, noise(dtype)).rounded(dtype);
                let tensor = array.upload(&gpu, dtype);
                if is_small && dtype == DType::F32 || shape == &[7, 5, 3] {
                    for (view, array, tensor) in views(&array, &tensor) {
                        check_sums(&format!("{name} {dtype} {shape:?} {view}"), &array, &tensor);
                    }
                } else {
                    check_sums(&format!("{name} {dtype} {shape:?}"), &array, &tensor);
                }
            }
        }
    }
}

#[test]
fn views_of_a_large_odd_tensor_reduce_as_the_model_does() {
    for (name, gpu) in gpus() {
        let array = Array::new(&[33, 65, 7], noise(DType::F32)).rounded(DType::F32);
        let tensor = array.upload(&gpu, DType::F32);
        for (view, array, tensor) in views(&array, &tensor) {
            check_sums(&format!("{name} {view}"), &array, &tensor);
        }
    }
}

#[test]
fn nan_and_infinities_propagate() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let rows = [
        [1.0, nan, 3.0, -inf, 5.0],
        [1.0, 2.0, inf, -1.0, 0.0],
        [-inf, -inf, -inf, -inf, -inf],
        [inf, -inf, 0.0, 0.0, 0.0],
        [-0.0, 0.0, -0.0, 0.0, -0.0],
        [-nan, nan, 0.0, 1.0, 2.0],
    ];
    for (name, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let array = Array::new(&[6, 5], |at| rows[at / 5][at % 5]);
            let tensor = array.upload(&gpu, dtype);
            for (view, array, tensor) in views(&array, &tensor) {
                check_sums(&format!("{name} {dtype} {view}"), &array, &tensor);
                check_arg(&format!("{name} {dtype} {view}"), &array, &tensor);
            }
        }
    }
}

#[test]
fn integers_wrap_and_extremes_reach_the_ends_of_the_type() {
    for (name, gpu) in gpus() {
        let ints = [i32::MAX, 1, i32::MIN, -1, i32::MIN, 7];
        let t = gpu.tensor(&ints, &[6]).unwrap();
        let wrapped = ints.iter().fold(0_i32, |a, &b| a.wrapping_add(b));
        assert_eq!(
            t.sum_all().unwrap().item::<i32>().unwrap(),
            wrapped,
            "{name}"
        );
        assert_eq!(
            t.max_all().unwrap().item::<i32>().unwrap(),
            i32::MAX,
            "{name}"
        );
        assert_eq!(
            t.min_all().unwrap().item::<i32>().unwrap(),
            i32::MIN,
            "{name}"
        );
        assert_eq!(t.argmin(0).unwrap().item::<u32>().unwrap(), 2, "{name}");
        let words = [u32::MAX, 0, u32::MAX, 5];
        let t = gpu.tensor(&words, &[4]).unwrap();
        assert_eq!(t.sum_all().unwrap().item::<u32>().unwrap(), 3, "{name}");
        assert_eq!(t.argmax(-1).unwrap().item::<u32>().unwrap(), 0, "{name}");
        assert_eq!(t.argmin(-1).unwrap().item::<u32>().unwrap(), 1, "{name}");
        let lowest = gpu.tensor(&[i32::MIN; 9], &[9]).unwrap();
        assert_eq!(
            lowest.argmax(0).unwrap().item::<u32>().unwrap(),
            0,
            "{name}"
        );
    }
}

fn check_arg(what: &str, array: &Array, tensor: &Tensor) {
    for axis in 0..array.shape.len() {
        if array.shape[axis] == 0 {
            assert!(matches!(
                tensor.argmax(axis as isize),
                Err(Error::Shape { .. })
            ));
            continue;
        }
        let (shape, rows) = array.rows(&[axis]);
        for least in [false, true] {
            let position = |row: &Vec<f64>| {
                let beats = |b: f64, a: f64| match b.is_nan() {
                    true => !a.is_nan(),
                    false if least => b < a,
                    false => b > a,
                };
                let best = (1..row.len())
                    .fold(0, |best, k| if beats(row[k], row[best]) { k } else { best });
                best as f64
            };
            let expected = Array {
                shape: shape.clone(),
                values: rows.iter().map(position).collect(),
            };
            let along = axis as isize - array.shape.len() as isize;
            let got = if least {
                tensor.argmin(along)
            } else {
                tensor.argmax(along)
            };
            let got = got.unwrap();
            assert_eq!(got.dtype(), DType::U32);
            assert_close(
                &download(&got),
                &expected,
                0.0,
                &format!("arg {least} {what} axis {axis}"),
            );
        }
    }
}

#[test]
fn argmax_and_argmin_find_the_first_extreme_along_every_axis() {
    for (name, gpu) in gpus() {
        for dtype in DType::ALL {
            for shape in shapes_for(dtype, &SHAPES[1..]) {
                let array = Array::new(shape, noise(dtype)).rounded(dtype);
                let tensor = array.upload(&gpu, dtype);
                if dtype == DType::F32 || *shape == [7, 5, 3] {
                    for (view, array, tensor) in views(&array, &tensor) {
                        check_arg(&format!("{name} {dtype} {shape:?} {view}"), &array, &tensor);
                    }
                } else {
                    check_arg(&format!("{name} {dtype} {shape:?}"), &array, &tensor);
                }
            }
        }
    }
}

#[test]
fn sums_of_millions_are_accurate() {
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
        let t = gpu.tensor(&data, &[len]).unwrap();
        let close = |got: f32, exact: f64, what: &str| {
            let error = (f64::from(got) / exact - 1.0).abs();
            assert!(
                error < 3e-6,
                "{name} {what}: {got}, not {exact} (relative error {error:e})"
            );
        };
        close(t.sum_all().unwrap().item().unwrap(), exact, "sum");
        close(
            t.mean_all().unwrap().item().unwrap(),
            exact / len as f64,
            "mean",
        );
        let (rows, half) = (3, len / 3);
        let by_axis = t
            .narrow(0, 0, rows * half)
            .unwrap()
            .view_as(&[half, rows])
            .unwrap();
        let sums = by_axis.sum(&[0]).unwrap().to_vec::<f32>().unwrap();
        for (column, sum) in sums.into_iter().enumerate() {
            let exact = data[..rows * half].iter().skip(column).step_by(rows);
            close(sum, exact.map(|&v| f64::from(v)).sum(), "column");
        }
        assert_eq!(t.max_all().unwrap().item::<f32>().unwrap(), 1.1);
        assert_eq!(t.argmax(0).unwrap().item::<u32>().unwrap(), 1);
        let ones = gpu.tensor(&vec![true; len], &[len]).unwrap();
        assert_eq!(ones.sum_all().unwrap().item::<u32>().unwrap(), len as u32);
    }
}

#[test]
fn axes_that_are_not_there_are_refused() {
    for (_, gpu) in gpus() {
        let t = gpu.zeros(&[2, 3], DType::F32).unwrap();
        for axes in [&[2][..], &[-3], &[0, 9], &[isize::MIN], &[isize::MAX]] {
            assert!(matches!(t.sum(axes), Err(Error::Axis { .. })), "{axes:?}");
        }
        assert!(matches!(t.sum(&[0, -2]), Err(Error::Shape { .. })));
        assert!(matches!(t.argmax(2), Err(Error::Axis { .. })));
        assert!(matches!(t.softmax(-3), Err(Error::Axis { .. })));
    }
}
