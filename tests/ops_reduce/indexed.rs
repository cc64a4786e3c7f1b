//! gather, take_along, embedding, scatter, scatter_add and index_add.

use lapidary::operations::ScatterReduce;
use lapidary::{DType, Gpu, Result, Tensor};

use crate::devices::{gives, reference, refused};

use super::model::*;

/// Indices with a shape; a few are out of range.
pub(super) fn indices(gpu: &Gpu, shape: &[usize], size: usize, dtype: DType) -> Tensor {
    let mut random = fastrand::Rng::with_seed(11);
    let beyond = match dtype {
        DType::I32 => [-1.0, -3.0, f64::from(i32::MIN), 1e6],
        _ => [size as f64, 2e9, f64::from(u32::MAX), 1e6],
    };
    let index = |_| match random.u32(0..8) {
        0 => beyond[random.usize(..4)],
        _ => random.usize(0..size.max(1)) as f64,
    };
    Array::new(shape, index).upload(gpu, dtype)
}

/// Small integers, whose sums are exact.
fn number(at: usize) -> f64 {
    ((at * 7919) % 13) as f64
}

/// A tensor of every type on every device, in every view.
fn each_view(check: impl Fn(&str, &Gpu, &Tensor)) {
    for gpu in each() {
        for dtype in DType::ALL {
            let array = Array::new(&[5, 6, 7], number).rounded(dtype);
            for (view, x) in views(&array.upload(&gpu, dtype)) {
                check(&format!("{dtype} {view}"), &gpu, &x);
            }
        }
    }
}

#[test]
fn gather_picks_an_element_for_every_index_of_every_view() {
    let reference = reference();
    each_view(|what, gpu, x| {
        for index in [DType::I32, DType::U32] {
            for axis in 0..x.rank() {
                // Smaller along the other axes, larger along this axis.
                let mut shape: Vec<usize> = x.shape().iter().map(|dim| dim - 1).collect();
                shape[axis] = 9;
                let given = indices(gpu, &shape, x.shape()[axis], index);
                let what = format!("{what} {index} along {axis}");
                let gather = |t: &[Tensor]| t[0].gather(axis as isize, &t[1]);
                same(&what, &reference, &[x, &given], 0.0, gather);
            }
        }
    });
}

#[test]
fn indices_of_any_view_are_taken_and_broadcast_along_the_other_axes() -> Result<()> {
    let reference = reference();
    for gpu in each() {
        let x = gpu.arange(0, 24, 1, DType::F32)?.reshape(&[4, 6])?;
        let given = Array::new(&[4, 3], |at| (at * 5 % 7) as f64 - 1.0);
        for (view, given) in views(&given.upload(&gpu, DType::I32)) {
            if given.rank() == 2 && given.shape()[1] <= 6 {
                same(view, &reference, &[&x, &given], 0.0, |t| {
                    t[0].gather(0, &t[1])
                });
            }
        }
        let is = |got: Tensor, shape: &[usize], value: &dyn Fn(usize) -> f64| {
            assert_eq!(download(&got), Array::new(shape, value));
        };
        let row = gpu.tensor(&[3, 0, 3, -1, 4], &[5, 1])?;
        let at = |at: usize| [18.0, 0.0, 18.0, -99.0, -99.0][at / 6] + (at % 6) as f64;
        is(x.take_along(0, &row)?, &[5, 6], &|flat| at(flat).max(0.0));
        let columns = gpu.tensor(&[5_u32, 1], &[1, 2])?;
        is(x.take_along(-1, &columns)?, &[4, 2], &|at| {
            (at / 2 * 6 + [5, 1][at % 2]) as f64
        });
        let tokens = gpu.tensor(&[1, 9, 0, 3, 3, -1], &[2, 3])?;
        let row = |at: usize| [6.0, -99.0, 0.0, 18.0, 18.0, -99.0][at / 6] + (at % 6) as f64;
        is(x.embedding(&tokens)?, &[2, 3, 6], &|at| row(at).max(0.0));
    }
    Ok(())
}

#[test]
fn scatter_keeps_the_last_and_scatter_add_adds_all_whatever_the_views() {
    let reference = reference();
    each_view(|what, gpu, x| {
        for axis in 0..x.rank() {
            for less in [0, 1] {
                let mut shape: Vec<usize> = x.shape().iter().map(|dim| dim - less).collect();
                shape[axis] = 9;
                let given = indices(gpu, &shape, x.shape()[axis], DType::I32);
                shape[0] += 1;
                let src = Array::new(&shape, |at| number(at + 5)).rounded(x.dtype());
                let (src, along) = (src.upload(gpu, x.dtype()), axis as isize);
                let what = format!("{what} along {axis} less {less}");
                let same = |f: fn(&[Tensor], isize) -> Result<Tensor>| {
                    same(&what, &reference, &[x, &given, &src], 0.0, |t| f(t, along));
                };
                same(|t, axis| t[0].scatter(axis, &t[1], &t[2]));
                same(|t, axis| t[0].scatter_add(axis, &t[1], &t[2]));
                same(|t, axis| {
                    let own = t[0].copy()?;
                    own.scatter_(axis, &t[1], &t[2]).map(|()| own)
                });
                same(|t, axis| {
                    let own = t[0].copy()?;
                    own.scatter_add_(axis, &t[1], &t[2]).map(|()| own)
                });
            }
        }
    });
}

#[test]
fn index_add_adds_slices_and_the_forms_in_place_write_through_views() -> Result<()> {
    let reference = reference();
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::U32, DType::Bf16] {
            for axis in 0..3 {
                let x = Array::new(&[5, 6, 7], number).upload(&gpu, dtype);
                let given = indices(&gpu, &[40], x.shape()[axis], DType::U32);
                let mut shape = x.shape().to_vec();
                shape[axis] = 40;
                let src = Array::new(&shape, |at| number(at + 5)).upload(&gpu, dtype);
                let what = format!("{dtype} along {axis}");
                let add = |t: &[Tensor]| t[0].index_add(axis as isize, &t[1], &t[2]);
                same(&what, &reference, &[&x, &given, &src], 0.0, add);
                let expected = x.index_add(axis as isize, &given, &src)?;
                x.index_add_(axis as isize, &given, &src)?;
                assert_eq!(download(&x), download(&expected), "{what}");
            }
        }
        let t = gpu.zeros(&[3, 8], DType::I32)?;
        let part = t.narrow(1, 2, 3)?;
        let at = gpu.tensor(&[2, 2, 0, -1, 3], &[1, 5])?;
        let ones = gpu.ones(&[1, 5], DType::I32)?;
        part.scatter_add_(1, &at, &ones)?;
        part.scatter_(0, &at.narrow(1, 0, 3)?, &ones)?;
        part.scatter_(0, &at.narrow(1, 2, 3)?, &(&ones + 1)?)?;
        let mut wanted = [0; 24];
        // Added: 1 and 2 in row 0. Written: rows 2, 2 and 0 of the three columns; then row 0 of the
        // first one, and rows that are not there.
        (wanted[2], wanted[4]) = (2, 1);
        (wanted[18], wanted[19]) = (1, 1);
        assert_eq!(t.to_vec::<i32>()?, wanted);
    }
    Ok(())
}

#[test]
fn many_sources_of_one_element_are_added_in_order() -> Result<()> {
    for gpu in each() {
        let len = 3001;
        let sources: Vec<f32> = (0..len).map(|at| 0.1 * at as f32).collect();
        let indices: Vec<u32> = (0..len).map(|at| at % 3).collect();
        let x = gpu.zeros(&[4], DType::F32)?;
        let i = gpu.tensor(&indices, &[len as usize])?;
        let s = gpu.tensor(&sources, &[len as usize])?;
        let got = x.scatter_add(0, &i, &s)?.to_vec::<f32>()?;
        let mut wanted = [0.0_f32; 4];
        for (index, source) in indices.iter().zip(&sources) {
            wanted[*index as usize] += source;
        }
        assert_eq!(got, wanted);
    }
    Ok(())
}

#[test]
fn what_does_not_go_together_is_refused() -> Result<()> {
    for gpu in each() {
        let x = gpu.zeros(&[2, 3], DType::F32)?;
        let i = gpu.zeros(&[2, 3], DType::U32)?;
        let flat = gpu.zeros(&[3], DType::U32)?;
        let tall = gpu.zeros(&[3, 3], DType::U32)?;
        refused!(Axis: x.gather(2, &i));
        refused!(DType: x.gather(0, &x));
        refused!(Shape: x.gather(0, &flat));
        refused!(Shape: x.gather(1, &tall));
        refused!(Shape: x.take_along(1, &tall));
        refused!(Shape: x.scatter(0, &tall, &x));
        refused!(DType: x.scatter(0, &i, &i));
        refused!(Shape: x.index_add(1, &i, &x));
        refused!(Shape: x.index_add(1, &flat, &x.t()?));
        let one = gpu.scalar(1.0_f32)?;
        refused!(Axis: one.embedding(&i));
        let other = reference();
        let foreign = other.zeros(&[2, 3], DType::U32)?;
        refused!(Foreign: x.gather(0, &foreign));
        let repeated = flat.broadcast_to(&[2, 3])?;
        let ones = gpu.ones(&[2, 3], DType::U32)?;
        refused!(Shape: repeated.scatter_(0, &i, &ones));
    }
    Ok(())
}

#[test]
fn without_an_index_all_shapes_fit() -> Result<()> {
    for gpu in each() {
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
                assert_eq!(made.shape(), [2, 3]);
                assert_eq!(made.to_vec::<f32>()?, values);
            }
            x.t()?.scatter_add_(0, &none, &src)?;
            assert_eq!(x.to_vec::<f32>()?, values);
            assert_eq!(number.scatter(0, &none, &src)?.item::<f32>()?, 7.0);
            assert_eq!(x.gather(1, &none)?.shape(), shape);
            assert_eq!(number.gather(0, &none)?.shape(), shape);
            // The gradients: all of the old elements stay, and nothing of the others came.
            let [x, src] = [x.detach().requires_grad()?, src.detach().requires_grad()?];
            let sum = x.scatter(0, &none, &src)?.sum_all()?;
            let sum = sum.add(&x.gather(1, &none)?.sum_all()?)?;
            let gradients = sum.backward()?;
            let of = |tensor: &Tensor| gradients.get(tensor).expect("a gradient").to_vec::<f32>();
            assert_eq!((of(&x)?, of(&src)?), (vec![1.0; 6], vec![0.0; 5]));
        }
        let none = gpu.zeros(&[0], DType::U32)?;
        refused!(Axis: x.scatter(2, &none, &src));
        refused!(Axis: x.gather(2, &none));
        refused!(DType: x.scatter(0, &none, &none));
        refused!(DType: x.gather(0, &src.narrow(0, 0, 0)?));
    }
    Ok(())
}

#[test]
fn very_many_that_name_one_element_are_all_added() -> Result<()> {
    const COUNT: usize = 70_001;
    for gpu in each() {
        let x = gpu.zeros(&[3], DType::U32)?;
        let indices = gpu.full(&[COUNT], 1, DType::U32)?;
        let ones = gpu.ones(&[COUNT], DType::U32)?;
        for sum in [
            x.index_add(0, &indices, &ones),
            x.scatter_add(0, &indices, &ones),
        ] {
            gives!(u32: sum => [0, COUNT as u32, 0]);
        }
    }
    Ok(())
}

#[test]
fn a_row_of_padding_does_not_learn() -> Result<()> {
    for gpu in each() {
        let table = gpu.ones(&[3, 2], DType::F32)?.requires_grad()?;
        let tokens = gpu.tensor(&[2_i32, 0, 2, -1], &[2, 2])?;
        for (padding, expected) in [
            (2, [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]),
            (-3, [0.0, 0.0, 0.0, 0.0, 2.0, 2.0]),
        ] {
            let picked = table.embedding_with(&tokens, padding)?;
            assert_eq!(picked.shape(), [2, 2, 2]);
            let same = table.detach().embedding_with(&tokens, padding)?;
            assert_eq!(picked.to_vec::<f32>()?, same.to_vec::<f32>()?);
            let gradients = picked.sum_all()?.backward()?;
            let gradient = gradients.get(&table).expect("a gradient");
            assert_eq!(gradient.to_vec::<f32>()?, expected);
        }
        for row in [3, -4] {
            refused!(Shape: table.embedding_with(&tokens, row));
        }
    }
    Ok(())
}
