//! concat and index_select.

use lapidary::{DType, Result, Tensor};

use crate::devices::{reference, refused};

use super::model::*;

fn concat_model(parts: &[Array], axis: usize) -> Array {
    let mut shape = parts[0].shape.clone();
    shape[axis] = parts.iter().map(|part| part.shape[axis]).sum();
    let target = Array::new(&shape, |_| 0.0);
    Array::new(&shape, |flat| {
        let mut index = target.index(flat);
        for part in parts {
            match index[axis].checked_sub(part.shape[axis]) {
                Some(left) => index[axis] = left,
                None => return part.at(&index),
            }
        }
        unreachable!("the index is inside")
    })
}

#[test]
fn concat_agrees_with_the_model_for_any_number_of_any_sizes() -> Result<()> {
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
    for gpu in each() {
        for dtype in DType::ALL {
            for (sizes, others) in cases {
                for axis in 0..=others.len() {
                    let parts: Vec<Array> = sizes
                        .iter()
                        .enumerate()
                        .map(|(number, &size)| {
                            let mut shape = others.to_vec();
                            shape.insert(axis, size);
                            let start = 31 * number;
                            Array::new(&shape, |at| (start + at) as f64 % 251.0).rounded(dtype)
                        })
                        .collect();
                    let tensors: Vec<Tensor> =
                        parts.iter().map(|part| part.upload(&gpu, dtype)).collect();
                    let given: Vec<&Tensor> = tensors.iter().collect();
                    let along = axis as isize - others.len() as isize - 1;
                    let got = Tensor::concat(&given, along)?;
                    let what = format!("{dtype} {sizes:?} {others:?} axis {axis}");
                    assert_close(&download(&got), &concat_model(&parts, axis), 0.0, &what);
                }
            }
        }
    }
    Ok(())
}

#[test]
fn concat_takes_views_the_same_tensor_twice_and_refuses_what_does_not_fit() -> Result<()> {
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::U8, DType::Bf16, DType::I8] {
            let array = Array::new(&[6, 7], |at| at as f64).rounded(dtype);
            let tensor = array.upload(&gpu, dtype);
            for (view, array, tensor) in views(&array, &tensor) {
                let parts = [array.clone(), array.clone(), array];
                let got = Tensor::concat(&[&tensor, &tensor, &tensor], 1)?;
                let what = format!("{dtype} {view}");
                assert_close(&download(&got), &concat_model(&parts, 1), 0.0, &what);
            }
        }
        let t = gpu.zeros(&[2, 3], DType::F32)?;
        let flat = gpu.zeros(&[6], DType::F32)?;
        let ints = gpu.zeros(&[2, 3], DType::I32)?;
        refused!(Shape: Tensor::concat(&[], 0));
        refused!(Shape: Tensor::concat(&[&t, &flat], 0));
        refused!(DType: Tensor::concat(&[&t, &ints], 0));
        refused!(Axis: Tensor::concat(&[&t], 2));
        let other = reference();
        let foreign = other.zeros(&[2, 3], DType::F32)?;
        refused!(Foreign: Tensor::concat(&[&t, &foreign], 0));
    }
    Ok(())
}

fn check_select(what: &str, array: &Array, tensor: &Tensor, indices: &Array, given: &Tensor) {
    for axis in 0..array.shape.len() {
        let mut shape = array.shape.clone();
        shape[axis] = indices.values.len();
        let target = Array::new(&shape, |_| 0.0);
        let expected = Array::new(&shape, |flat| {
            let mut at = target.index(flat);
            let index = indices.values[at[axis]];
            if !(0.0..array.shape[axis] as f64).contains(&index) {
                return 0.0;
            }
            at[axis] = index as usize;
            array.at(&at)
        });
        let got = tensor.index_select(axis as isize, given).unwrap();
        assert_close(
            &download(&got),
            &expected,
            0.0,
            &format!("{what} axis {axis}"),
        );
    }
}

#[test]
fn index_select_picks_slices_and_gives_zeros_for_indices_that_are_not_there() -> Result<()> {
    for gpu in each() {
        for dtype in DType::ALL {
            for index in [DType::I32, DType::U32] {
                let list = match index {
                    DType::I32 => vec![2.0, 0.0, -1.0, 1.0, 1.0, 99.0, i32::MIN.into(), 3.0, 0.0],
                    _ => vec![0.0, 3.0, u32::MAX.into(), 4.0, 1.0, 0.0, 2e9, 2.0, 5.0],
                };
                let indices = Array::new(&[9], |at| list[at]);
                let given = indices.upload(&gpu, index);
                for shape in [&[5][..], &[4, 6], &[5, 8], &[3, 4, 8], &[7, 5, 3], &[0, 4]] {
                    let array = Array::new(shape, noise(dtype)).rounded(dtype);
                    let tensor = array.upload(&gpu, dtype);
                    for (view, array, tensor) in views(&array, &tensor) {
                        let what = format!("{dtype} {index} {shape:?} {view}");
                        check_select(&what, &array, &tensor, &indices, &given);
                    }
                }
            }
        }
        let array = Array::new(&[6, 4], |at| at as f64);
        let tensor = array.upload(&gpu, DType::F32);
        let indices = Array::new(&[5], |at| at as f64);
        for (view, indices, given) in views(&indices, &indices.upload(&gpu, DType::U32)) {
            if view != "broadcast" {
                check_select(view, &array, &tensor, &indices, &given);
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
