//! concat and index_select.

use lapidary::{DType, Result, Tensor};

use crate::devices::{reference, refused};

use super::model::*;

#[test]
fn any_number_of_any_sizes_is_joined() {
    // Sizes along the axis, and the other dimensions.
    let cases: &[(&[usize], &[usize])] = &[
        (&[3], &[]),
        (&[4, 8], &[]),
        (&[1, 1, 1, 1, 1, 1, 1, 1, 1, 1], &[]),
        (&[3, 5, 0, 2], &[7]),
        (&[4, 8, 4], &[3, 4]),
        (&[1, 2, 3, 4, 5, 6, 7], &[5, 3]),
        (&[4, 4, 4, 4, 4, 4, 4, 4, 4], &[2, 4]),
        (&[2, 6, 4], &[3]),
        (&[0, 0], &[2]),
        (&[64, 3, 61], &[33]),
    ];
    let reference = reference();
    for gpu in each() {
        for dtype in DType::ALL {
            for (sizes, others) in cases {
                for axis in 0..=others.len() {
                    let part = |(number, &size): (usize, &usize)| {
                        let mut shape = others.to_vec();
                        shape.insert(axis, size);
                        let value = |at: usize| (31 * number + at) as f64 % 251.0;
                        Array::new(&shape, value).rounded(dtype).upload(&gpu, dtype)
                    };
                    let parts: Vec<Tensor> = sizes.iter().enumerate().map(part).collect();
                    let along = axis as isize - others.len() as isize - 1;
                    let what = format!("{dtype} {sizes:?} {others:?} axis {axis}");
                    let parts: Vec<&Tensor> = parts.iter().collect();
                    same(&what, &reference, &parts, 0.0, |t| {
                        Tensor::concat(&t.iter().collect::<Vec<_>>(), along)
                    });
                }
            }
        }
    }
}

#[test]
fn concat_takes_views_the_same_tensor_twice_and_refuses_what_does_not_fit() -> Result<()> {
    let reference = reference();
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::U8, DType::Bf16, DType::I8] {
            let array = Array::new(&[6, 7], |at| at as f64).rounded(dtype);
            for (view, x) in views(&array.upload(&gpu, dtype)) {
                let what = format!("{dtype} {view}");
                same(&what, &reference, &[&x], 0.0, |t| {
                    Tensor::concat(&[&t[0], &t[0], &t[0]], 1)
                });
            }
        }
        let t = gpu.zeros(&[2, 3], DType::F32)?;
        let flat = gpu.zeros(&[6], DType::F32)?;
        let ints = gpu.zeros(&[2, 3], DType::I32)?;
        refused!(Shape: Tensor::concat(&[], 0));
        refused!(Shape: Tensor::concat(&[&t, &flat], 0));
        refused!(DType: Tensor::concat(&[&t, &ints], 0));
        refused!(Axis: Tensor::concat(&[&t], 2));
        let foreign = reference.zeros(&[2, 3], DType::F32)?;
        refused!(Foreign: Tensor::concat(&[&t, &foreign], 0));
    }
    Ok(())
}

#[test]
fn index_select_picks_slices_and_gives_zeros_for_indices_that_are_not_there() -> Result<()> {
    let reference = reference();
    let check = |what: &str, x: &Tensor, given: &Tensor| {
        for axis in 0..x.rank() {
            let what = format!("{what} axis {axis}");
            same(&what, &reference, &[x, given], 0.0, |t| {
                t[0].index_select(axis as isize, &t[1])
            });
        }
    };
    for gpu in each() {
        let [least, most] = [f64::from(i32::MIN), f64::from(u32::MAX)];
        for (index, list) in [
            (
                DType::I32,
                [2.0, 0.0, -1.0, 1.0, 1.0, 99.0, least, 3.0, 0.0],
            ),
            (DType::U32, [0.0, 3.0, most, 4.0, 1.0, 0.0, 2e9, 2.0, 5.0]),
        ] {
            let given = Array::new(&[9], |at| list[at]).upload(&gpu, index);
            for dtype in DType::ALL {
                for shape in [&[5][..], &[4, 6], &[5, 8], &[3, 4, 8], &[7, 5, 3], &[0, 4]] {
                    for (view, x) in views(&made(&gpu, shape, dtype)) {
                        check(&format!("{dtype} {index} {shape:?} {view}"), &x, &given);
                    }
                }
            }
            let line = gpu.tensor(&[7_u32, 8, 9], &[3])?;
            let far = line.to(&reference)?.index_select(0, &given.to(&reference)?);
            for got in [line.index_select(0, &given), far] {
                let there = |at: f64| {
                    if (0.0..3.0).contains(&at) {
                        7 + at as u32
                    } else {
                        0
                    }
                };
                assert_eq!(got?.to_vec::<u32>()?, list.map(there));
            }
        }
        let tensor = Array::new(&[6, 4], |at| at as f64).upload(&gpu, DType::F32);
        let indices = Array::new(&[5], |at| at as f64).upload(&gpu, DType::U32);
        for (view, given) in views(&indices) {
            if view != "broadcast" {
                check(view, &tensor, &given);
            }
        }
        let none = gpu.tensor::<u32>(&[], &[0])?;
        assert_eq!(tensor.index_select(0, &none)?.shape(), [0, 4]);
        let matrix = gpu.zeros(&[2, 2], DType::U32)?;
        refused!(Shape: tensor.index_select(0, &matrix));
        let floats = gpu.zeros(&[2], DType::F32)?;
        refused!(DType: tensor.index_select(0, &floats));
        refused!(Axis: tensor.index_select(2, &none));
    }
    Ok(())
}
