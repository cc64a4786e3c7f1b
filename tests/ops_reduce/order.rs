//! sort, argsort and top_k.

use lapidary::{DType, Gpu, Result, Tensor};

use crate::devices::{reference, refused};

use super::model::*;

fn check(what: &str, reference: &Gpu, x: &Tensor) {
    for axis in 0..x.rank() {
        let (size, along) = (x.shape()[axis], axis as isize - x.rank() as isize);
        for descending in [false, true] {
            let what = format!("{what} along {axis} descending {descending}");
            all_same(&what, reference, &[x], 0.0, |t| {
                let (values, indices) = t[0].sort(along, descending)?;
                assert_eq!(indices.dtype(), DType::U32);
                Ok([values, indices])
            });
            for keep in [0, 1, 2, 7, 9, 100]
                .into_iter()
                .filter(|&keep| keep <= size)
            {
                let what = format!("the first {keep} of {what}");
                all_same(&what, reference, &[x], 0.0, |t| {
                    let (values, indices) = t[0].top_k(keep, along, descending)?;
                    Ok([values, indices])
                });
            }
        }
        same(what, reference, &[x], 0.0, |t| {
            t[0].argsort(axis as isize, false)
        });
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
    let reference = reference();
    for gpu in each() {
        for dtype in DType::ALL {
            for shape in shapes_for(dtype, SHAPES) {
                let mut views = views(&made(&gpu, shape, dtype));
                views.truncate(match dtype {
                    DType::F32 => views.len(),
                    _ if shape.len() == 3 => views.len(),
                    _ => 1,
                });
                for (view, x) in views {
                    check(&format!("{dtype} {shape:?} {view}"), &reference, &x);
                }
            }
        }
    }
}

#[test]
fn nan_is_the_largest_and_the_zeros_are_equal() -> Result<()> {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let values = [
        1.0, nan, -0.0, inf, 0.0, -1e-40, -inf, -nan, -2.0, 1e-40, -0.0,
    ];
    let reference = reference();
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let array = Array::new(&[11], |at| values[at]).rounded(dtype);
            check(&format!("{dtype}"), &reference, &array.upload(&gpu, dtype));
        }
        let floats = gpu.tensor(&values.map(|value| value as f32), &[11])?;
        let signed = gpu.tensor(&[i32::MIN, 0, i32::MAX, -1], &[4])?;
        let unsigned = gpu.tensor(&[u32::MAX, 0, 1 << 31], &[3])?;
        // Equal elements stay in order.
        for (x, descending, expected) in [
            (&floats, false, &[6, 8, 5, 2, 4, 10, 9, 0, 3, 1, 7][..]),
            (&floats, true, &[1, 7, 3, 0, 9, 2, 4, 10, 5, 8, 6]),
            (&signed, true, &[2, 1, 3, 0]),
            (&unsigned, false, &[1, 2, 0]),
        ] {
            for x in [x, &x.to(&reference)?] {
                assert_eq!(x.argsort(0, descending)?.to_vec::<u32>()?, expected);
            }
        }
        refused!(Shape: unsigned.top_k(4, 0, true));
        refused!(Axis: unsigned.sort(1, true));
    }
    Ok(())
}

#[test]
fn long_rows_are_merged_from_many_runs() {
    let reference = reference();
    for (name, gpu) in gpus() {
        let shape = if name == "adapter" {
            [3, 200_003]
        } else {
            [2, 5003]
        };
        let mut random = fastrand::Rng::with_seed(5);
        let array = Array::new(&shape, |_| f64::from(random.i32(-5000..5000)));
        let x = array.upload(&gpu, DType::F32);
        for descending in [false, true] {
            all_same(name, &reference, &[&x], 0.0, |t| {
                Ok([
                    t[0].argsort(1, descending)?,
                    t[0].top_k(300, 1, descending)?.1,
                ])
            });
        }
    }
}
