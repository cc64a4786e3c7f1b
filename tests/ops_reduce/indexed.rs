//! gather, take_along, embedding, scatter, scatter_add and index_add.

use lapidary::operations::ScatterReduce;
use lapidary::{DType, Error, Gpu, Result, Tensor};

use super::model::*;

/// Indices with a shape; a few are out of range.
pub(super) fn indices(gpu: &Gpu, shape: &[usize], size: usize, dtype: DType) -> (Array, Tensor) {
    let mut random = fastrand::Rng::with_seed(11);
    let array = Array::new(shape, |_| match (random.u32(0..8), dtype) {
        (0, DType::I32) => *random
            .choice(&[-1.0, -3.0, f64::from(i32::MIN), 1e6])
            .unwrap(),
        (0, _) => *random
            .choice(&[size as f64, 2e9, f64::from(u32::MAX)])
            .unwrap(),
        _ => random.usize(0..size.max(1)) as f64,
    });
    let tensor = array.upload(gpu, dtype);
    (array, tensor)
}

pub(super) fn is_there(index: f64, size: usize) -> bool {
    (0.0..size as f64).contains(&index)
}

fn gathered(array: &Array, axis: usize, indices: &Array) -> Array {
    Array::new(&indices.shape, |flat| {
        let mut at = indices.index(flat);
        match is_there(indices.values[flat], array.shape[axis]) {
            true => {
                at[axis] = indices.values[flat] as usize;
                array.at(&at)
            }
            false => 0.0,
        }
    })
}

#[test]
fn gather_picks_an_element_for_every_index_of_every_view() {
    for (name, gpu) in gpus() {
        for dtype in DType::ALL {
            for index in [DType::I32, DType::U32] {
                let array = Array::new(&[5, 6, 7], noise(dtype)).rounded(dtype);
                let tensor = array.upload(&gpu, dtype);
                for (view, array, tensor) in views(&array, &tensor) {
                    for axis in 0..array.shape.len() {
                        // Smaller along the other axes, larger along this axis.
                        let mut shape: Vec<usize> = array.shape.iter().map(|dim| dim - 1).collect();
                        shape[axis] = 9;
                        let (given, of_given) = indices(&gpu, &shape, array.shape[axis], index);
                        let got = tensor.gather(axis as isize, &of_given).unwrap();
                        assert_eq!(got.dtype(), dtype);
                        let what = format!("{name} {dtype} {index} {view} along {axis}");
                        let expected = gathered(&array, axis, &given);
                        assert_close(&download(&got), &expected, 0.0, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn indices_of_any_view_are_taken_and_broadcast_along_the_other_axes() {
    for (name, gpu) in gpus() {
        let array = Array::new(&[4, 6], |at| at as f64);
        let tensor = array.upload(&gpu, DType::F32);
        let (given, of_given) = indices(&gpu, &[4, 3], 4, DType::I32);
        for (view, given, of_given) in views(&given, &of_given) {
            if given.shape.len() == 2 && given.shape[1] <= 6 {
                let got = tensor.gather(0, &of_given).unwrap();
                let expected = gathered(&array, 0, &given);
                assert_close(&download(&got), &expected, 0.0, &format!("{name} {view}"));
            }
        }
        let row = gpu.tensor(&[3, 0, 3], &[3, 1]).unwrap();
        let got = tensor.take_along(0, &row).unwrap();
        let expected = Array::new(&[3, 6], |at| array.at(&[[3, 0, 3][at / 6], at % 6]));
        assert_close(&download(&got), &expected, 0.0, name);
        let columns = gpu.tensor(&[5_u32, 1], &[1, 2]).unwrap();
        let got = tensor.take_along(-1, &columns).unwrap();
        let expected = Array::new(&[4, 2], |at| array.at(&[at / 2, [5, 1][at % 2]]));
        assert_close(&download(&got), &expected, 0.0, name);
        let tokens = gpu.tensor(&[1, 9, 0, 3, 3, -1], &[2, 3]).unwrap();
        let got = tensor.embedding(&tokens).unwrap();
        let row = |at: usize| [1, 9, 0, 3, 3, 9][at / 6];
        let expected = Array::new(&[2, 3, 6], |at| match row(at) {
            9 => 0.0,
            row => array.at(&[row, at % 6]),
        });
        assert_close(&download(&got), &expected, 0.0, name);
    }
}

/// The model of scatter and scatter_add, in the order of the indices along the axis.
fn scattered(array: &Array, axis: usize, indices: &Array, src: &Array, add: bool) -> Array {
    let mut result = array.clone();
    for (flat, &index) in indices.values.iter().enumerate() {
        let mut at = indices.index(flat);
        if is_there(index, array.shape[axis]) {
            let value = src.at(&at);
            at[axis] = index as usize;
            let to = (at.iter().zip(&array.shape)).fold(0, |to, (at, dim)| to * dim + at);
            result.values[to] = if add {
                result.values[to] + value
            } else {
                value
            };
        }
    }
    result
}

#[test]
fn scatter_keeps_the_last_and_scatter_add_adds_all_whatever_the_views() {
    for (name, gpu) in gpus() {
        for dtype in DType::ALL {
            // Small integers, whose sums are exact.
            let number = |at: usize| ((at * 7919) % 13) as f64;
            let array = Array::new(&[5, 6, 7], number).rounded(dtype);
            let tensor = array.upload(&gpu, dtype);
            for (view, array, tensor) in views(&array, &tensor) {
                for axis in 0..array.shape.len() {
                    for less in [0, 1] {
                        let mut shape: Vec<usize> =
                            array.shape.iter().map(|dim| dim - less).collect();
                        shape[axis] = 9;
                        let (given, of_given) =
                            indices(&gpu, &shape, array.shape[axis], DType::I32);
                        let mut wider = shape.clone();
                        wider[0] += 1;
                        let src = Array::new(&wider, |at| number(at + 5)).rounded(dtype);
                        let of_src = src.upload(&gpu, dtype);
                        let what = format!("{name} {dtype} {view} along {axis} less {less}");
                        let got = tensor.scatter(axis as isize, &of_given, &of_src).unwrap();
                        let expected = scattered(&array, axis, &given, &src, false);
                        assert_close(&download(&got), &expected, 0.0, &what);
                        let own = tensor.copy().unwrap();
                        own.scatter_(axis as isize, &of_given, &of_src).unwrap();
                        assert_close(&download(&own), &expected, 0.0, &what);
                        let got = tensor.scatter_add(axis as isize, &of_given, &of_src);
                        // For bools, any true value makes the element true.
                        let expected = scattered(&array, axis, &given, &src, true).rounded(dtype);
                        assert_close(&download(&got.unwrap()), &expected, 0.0, &what);
                        let own = tensor.copy().unwrap();
                        own.scatter_add_(axis as isize, &of_given, &of_src).unwrap();
                        assert_close(&download(&own), &expected, 0.0, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn index_add_adds_slices_and_the_forms_in_place_write_through_views() {
    for (name, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16, DType::U32, DType::Bf16] {
            let number = |at: usize| ((at * 7919) % 13) as f64;
            let array = Array::new(&[5, 6, 7], number);
            for axis in 0..3 {
                let tensor = array.upload(&gpu, dtype);
                let (given, of_given) = indices(&gpu, &[40], array.shape[axis], DType::U32);
                let mut shape = array.shape.clone();
                shape[axis] = 40;
                let src = Array::new(&shape, |at| number(at + 5));
                let of_src = src.upload(&gpu, dtype);
                let wide = src.remap(&shape, |at| at.to_vec());
                let wide = Array::new(&shape, |flat| given.values[wide.index(flat)[axis]]);
                let expected = scattered(&array, axis, &wide, &src, true);
                let got = tensor.index_add(axis as isize, &of_given, &of_src).unwrap();
                let what = format!("{name} {dtype} along {axis}");
                assert_close(&download(&got), &expected, 0.0, &what);
                tensor
                    .index_add_(axis as isize, &of_given, &of_src)
                    .unwrap();
                assert_close(&download(&tensor), &expected, 0.0, &what);
            }
        }
        let t = gpu.zeros(&[3, 8], DType::I32).unwrap();
        let part = t.narrow(1, 2, 3).unwrap();
        let at = gpu.tensor(&[2, 2, 0], &[1, 3]).unwrap();
        let ones = gpu.ones(&[1, 3], DType::I32).unwrap();
        part.scatter_add_(1, &at, &ones).unwrap();
        part.scatter_(0, &at, &ones).unwrap();
        let got = t.to_vec::<i32>().unwrap();
        let mut wanted = [0; 24];
        // Added: 1 and 2 in row 0. Written: rows 2, 2 and 0 of the three columns.
        (wanted[2], wanted[4]) = (1, 2);
        (wanted[18], wanted[19], wanted[4]) = (1, 1, 1);
        assert_eq!(got, wanted, "{name}");
    }
}

#[test]
fn many_sources_of_one_element_are_added_in_order() {
    for (name, gpu) in gpus() {
        let len = 3001;
        let sources: Vec<f32> = (0..len).map(|at| 0.1 * at as f32).collect();
        let indices: Vec<u32> = (0..len).map(|at| at % 3).collect();
        let x = gpu.zeros(&[4], DType::F32).unwrap();
        let i = gpu.tensor(&indices, &[len as usize]).unwrap();
        let s = gpu.tensor(&sources, &[len as usize]).unwrap();
        let got = x.scatter_add(0, &i, &s).unwrap().to_vec::<f32>().unwrap();
        let mut wanted = [0.0_f32; 4];
        for (index, source) in indices.iter().zip(&sources) {
            wanted[*index as usize] += source;
        }
        assert_eq!(got, wanted, "{name}");
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    for (_, gpu) in gpus() {
        let x = gpu.zeros(&[2, 3], DType::F32).unwrap();
        let i = gpu.zeros(&[2, 3], DType::U32).unwrap();
        let flat = gpu.zeros(&[3], DType::U32).unwrap();
        let tall = gpu.zeros(&[3, 3], DType::U32).unwrap();
        assert!(matches!(x.gather(2, &i), Err(Error::Axis { .. })));
        assert!(matches!(x.gather(0, &x), Err(Error::DType { .. })));
        assert!(matches!(x.gather(0, &flat), Err(Error::Shape { .. })));
        assert!(matches!(x.gather(1, &tall), Err(Error::Shape { .. })));
        assert!(matches!(x.take_along(1, &tall), Err(Error::Shape { .. })));
        assert!(matches!(x.scatter(0, &tall, &x), Err(Error::Shape { .. })));
        assert!(matches!(x.scatter(0, &i, &i), Err(Error::DType { .. })));
        assert!(matches!(x.index_add(1, &i, &x), Err(Error::Shape { .. })));
        assert!(matches!(
            x.index_add(1, &flat, &x.t().unwrap()),
            Err(Error::Shape { .. })
        ));
        let one = gpu.scalar(1.0_f32).unwrap();
        assert!(matches!(one.embedding(&i), Err(Error::Axis { .. })));
        let (_, other) = gpus().swap_remove(0);
        let foreign = other.zeros(&[2, 3], DType::U32).unwrap();
        assert!(matches!(x.gather(0, &foreign), Err(Error::Foreign { .. })));
        let repeated = flat.broadcast_to(&[2, 3]).unwrap();
        let ones = gpu.ones(&[2, 3], DType::U32).unwrap();
        assert!(matches!(
            repeated.scatter_(0, &i, &ones),
            Err(Error::Shape { .. })
        ));
    }
}

#[test]
fn without_an_index_all_shapes_fit() -> Result<()> {
    for (name, gpu) in gpus() {
        let x = gpu.arange(0, 6, 1, DType::F32)?.reshape(&[2, 3])?;
        let src = gpu.ones(&[5], DType::F32)?;
        let number = gpu.scalar(7.0_f32)?;
        let values = x.to_vec::<f32>()?;
        for shape in [&[0][..], &[0, 9], &[4, 0, 2]] {
            let none = gpu.zeros(shape, DType::U32)?;
            for made in [
                x.scatter(1, &none, &src)?,
                x.scatter_add(-1, &none, &src)?,
                x.scatter_reduce(0, &none, &src, ScatterReduce::Mean, false)?,
            ] {
                assert_eq!(made.shape(), [2, 3], "{name}");
                assert_eq!(made.to_vec::<f32>()?, values, "{name}");
            }
            x.t()?.scatter_add_(0, &none, &src)?;
            assert_eq!(x.to_vec::<f32>()?, values, "{name}");
            assert_eq!(
                number.scatter(0, &none, &src)?.item::<f32>()?,
                7.0,
                "{name}"
            );
            assert_eq!(x.gather(1, &none)?.shape(), shape, "{name}");
            assert_eq!(number.gather(0, &none)?.shape(), shape, "{name}");
            // The gradients: all of the old elements stay, and nothing of the others came.
            let [x, src] = [x.detach().requires_grad()?, src.detach().requires_grad()?];
            let sum = x.scatter(0, &none, &src)?.sum_all()?;
            let sum = sum.add(&x.gather(1, &none)?.sum_all()?)?;
            let gradients = sum.backward()?;
            let of = |tensor: &Tensor| gradients.get(tensor).expect("a gradient").to_vec::<f32>();
            assert_eq!((of(&x)?, of(&src)?), (vec![1.0; 6], vec![0.0; 5]), "{name}");
        }
        let none = gpu.zeros(&[0], DType::U32)?;
        assert!(matches!(x.scatter(2, &none, &src), Err(Error::Axis { .. })));
        assert!(matches!(x.gather(2, &none), Err(Error::Axis { .. })));
        let wrong = x.scatter(0, &none, &none);
        assert!(matches!(wrong, Err(Error::DType { .. })), "{wrong:?}");
        assert!(matches!(
            x.gather(0, &src.narrow(0, 0, 0)?),
            Err(Error::DType { .. })
        ));
    }
    Ok(())
}

#[test]
fn very_many_that_name_one_element_are_all_added() {
    const COUNT: usize = 70_001;
    for (name, gpu) in gpus() {
        let x = gpu.zeros(&[3], DType::U32).unwrap();
        let indices = gpu.full(&[COUNT], 1, DType::U32).unwrap();
        let ones = gpu.ones(&[COUNT], DType::U32).unwrap();
        for sum in [
            x.index_add(0, &indices, &ones),
            x.scatter_add(0, &indices, &ones),
        ] {
            assert_eq!(
                sum.unwrap().to_vec::<u32>().unwrap(),
                [0, COUNT as u32, 0],
                "{name}"
            );
        }
    }
}

#[test]
fn a_row_of_padding_does_not_learn() -> Result<()> {
    for (name, gpu) in gpus() {
        let table = gpu.ones(&[3, 2], DType::F32)?.requires_grad()?;
        let tokens = gpu.tensor(&[2_i32, 0, 2, -1], &[2, 2])?;
        for (padding, expected) in [
            (2, [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]),
            (-3, [0.0, 0.0, 0.0, 0.0, 2.0, 2.0]),
        ] {
            let picked = table.embedding_with(&tokens, padding)?;
            assert_eq!(picked.shape(), [2, 2, 2], "{name}");
            let same = table.detach().embedding_with(&tokens, padding)?;
            assert_eq!(picked.to_vec::<f32>()?, same.to_vec::<f32>()?, "{name}");
            let gradients = picked.sum_all()?.backward()?;
            let gradient = gradients.get(&table).expect("a gradient");
            assert_eq!(gradient.to_vec::<f32>()?, expected, "{name}");
        }
        for row in [3, -4] {
            let refused = table.embedding_with(&tokens, row);
            assert!(matches!(refused, Err(Error::Shape { .. })), "{refused:?}");
        }
    }
    Ok(())
}
