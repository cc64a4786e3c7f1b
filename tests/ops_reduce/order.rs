//! sort, argsort and top_k.

use std::cmp::Ordering;

use lapidary::{DType, Result, Tensor};

use crate::devices::refused;

use super::model::*;

/// NaN comes last, and both zeros are equal.
fn compare(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b)
        .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// The first `keep` indices of every row in sorted order, in the array's shape.
fn order(array: &Array, axis: usize, descending: bool, keep: usize) -> Array {
    let (_, rows) = array.rows(&[axis]);
    let sorted: Vec<Vec<usize>> = (rows.iter())
        .map(|row| {
            let mut order: Vec<usize> = (0..row.len()).collect();
            order.sort_by(|&a, &b| match descending {
                true => compare(row[b], row[a]),
                false => compare(row[a], row[b]),
            });
            order
        })
        .collect();
    let mut shape = array.shape.clone();
    shape[axis] = keep;
    let target = Array::new(&shape, |_| 0.0);
    Array::new(&shape, |flat| {
        let index = target.index(flat);
        let kept = (0..index.len()).filter(|&d| d != axis);
        let row = kept.fold(0, |row, d| row * array.shape[d] + index[d]);
        sorted[row][index[axis]] as f64
    })
}

fn check(what: &str, array: &Array, tensor: &Tensor) {
    for axis in 0..array.shape.len() {
        let size = array.shape[axis];
        let along = axis as isize - array.shape.len() as isize;
        for descending in [false, true] {
            let what = format!("{what} along {axis} descending {descending}");
            let expected = order(array, axis, descending, size);
            let picked = |order: &Array| {
                Array::new(&order.shape, |flat| {
                    let mut index = order.index(flat);
                    index[axis] = order.values[flat] as usize;
                    array.at(&index)
                })
            };
            let (values, indices) = tensor.sort(along, descending).unwrap();
            assert_eq!(
                (values.dtype(), indices.dtype()),
                (tensor.dtype(), DType::U32)
            );
            assert_close(&download(&indices), &expected, 0.0, &what);
            assert_close(&download(&values), &picked(&expected), 0.0, &what);
            for keep in [0, 1, 2, 7, 9, 100]
                .into_iter()
                .filter(|&keep| keep <= size)
            {
                let expected = order(array, axis, descending, keep);
                let (values, indices) = tensor.top_k(keep, along, descending).unwrap();
                let what = format!("the first {keep} of {what}");
                assert_close(&download(&indices), &expected, 0.0, &what);
                assert_close(&download(&values), &picked(&expected), 0.0, &what);
            }
        }
        let got = tensor.argsort(axis as isize, false).unwrap();
        assert_close(&download(&got), &order(array, axis, false, size), 0.0, what);
    }
}

const SHAPES: &[&[usize]] = &[
    &[1],
    &[8],
    &[9],
    &[3, 0, 2],
    &[7, 5, 3],
    &[2, 33, 4],
    &[1000],
];

#[test]
fn sorting_is_stable_along_every_axis_of_every_view_of_every_type() {
    for gpu in each() {
        for dtype in DType::ALL {
            for shape in shapes_for(dtype, SHAPES) {
                let array = Array::new(shape, noise(dtype)).rounded(dtype);
                let tensor = array.upload(&gpu, dtype);
                let what = format!("{dtype} {shape:?}");
                if dtype == DType::F32 || shape.len() == 3 {
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
fn nan_is_the_largest_and_the_zeros_are_equal() -> Result<()> {
    let values = [
        1.0,
        f64::NAN,
        -0.0,
        f64::INFINITY,
        0.0,
        -1e-40,
        f64::NEG_INFINITY,
        -f64::NAN,
        -2.0,
        1e-40,
        -0.0,
    ];
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let array = Array::new(&[11], |at| values[at]).rounded(dtype);
            check(&format!("{dtype}"), &array, &array.upload(&gpu, dtype));
        }
        let t = gpu.tensor(&[i32::MIN, 0, i32::MAX, -1], &[4])?;
        let got = t.argsort(0, true)?.to_vec::<u32>()?;
        assert_eq!(got, [2, 1, 3, 0]);
        let t = gpu.tensor(&[u32::MAX, 0, 1 << 31], &[3])?;
        let got = t.argsort(0, false)?.to_vec::<u32>()?;
        assert_eq!(got, [1, 2, 0]);
        refused!(Shape: t.top_k(4, 0, true));
        refused!(Axis: t.sort(1, true));
    }
    Ok(())
}

#[test]
fn long_rows_are_merged_from_many_runs() -> Result<()> {
    for (name, gpu) in gpus() {
        let shape = if name == "adapter" {
            [3, 200_003]
        } else {
            [2, 5003]
        };
        let mut random = fastrand::Rng::with_seed(5);
        let array = Array::new(&shape, |_| f64::from(random.i32(-5000..5000)));
        let tensor = array.upload(&gpu, DType::F32);
        for descending in [false, true] {
            let expected = order(&array, 1, descending, shape[1]);
            let got = tensor.argsort(1, descending)?;
            assert_close(&download(&got), &expected, 0.0, name);
            let expected = order(&array, 1, descending, 300);
            let (_, got) = tensor.top_k(300, 1, descending)?;
            assert_close(&download(&got), &expected, 0.0, name);
        }
    }
    Ok(())
}
