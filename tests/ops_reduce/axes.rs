//! movedim, diagonal, unfold, unflatten, unbind; extremes with their indices; linspace and the
//! cross entropy of probabilities.

use lapidary::{DType, Result, operations::Reduction};

use crate::devices::{gives, refused};

use super::model::*;

#[test]
fn axes_move_split_and_join_without_a_copy() -> Result<()> {
    for gpu in each() {
        let x = gpu.arange(0, 24, 1, DType::I32)?.reshape(&[2, 3, 4])?;
        assert_eq!(x.movedim(-1, 0)?.shape(), [4, 2, 3]);
        assert_eq!(x.movedim(0, -1)?.strides(), [4, 1, 12]);
        assert_eq!(x.unflatten(-1, &[2, 2])?.shape(), [2, 3, 2, 2]);
        let view = x.permute(&[2, 1, 0])?.unflatten(0, &[2, 2])?;
        gives!(i32: view.select(0, 1)?.select(0, 0) => [2, 14, 6, 18, 10, 22]);
        let rows = x.unbind(1)?;
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[2].to_vec::<i32>()?, [8, 9, 10, 11, 20, 21, 22, 23]);
        refused!(Shape: x.unflatten(2, &[3, 2]));
        let split = x.unflatten_infer(-1, &[2, -1])?;
        assert_eq!(split.shape(), [2, 3, 2, 2]);
        assert_eq!(split.to_vec::<i32>()?, x.to_vec::<i32>()?);
        assert_eq!(x.unflatten_infer(1, &[3])?.shape(), x.shape());
        for sizes in [&[3, -1][..], &[-1, -1], &[-2, 2], &[0, -1], &[2, 3]] {
            refused!(Shape: x.unflatten_infer(2, sizes));
        }
        refused!(Axis: x.unflatten_infer(3, &[-1]));
        refused!(Axis: x.movedim(3, 0));
        refused!(Axis: x.unbind(-4));
    }
    Ok(())
}

#[test]
fn one_size_of_a_shape_is_inferred() -> Result<()> {
    for gpu in each() {
        let x = gpu.arange(0, 24, 1, DType::I32)?.reshape(&[2, 3, 4])?;
        for (given, expected) in [
            (&[-1][..], &[24][..]),
            (&[6, -1], &[6, 4]),
            (&[-1, 2, 12], &[1, 2, 12]),
            (&[4, 6], &[4, 6]),
        ] {
            let made = x.reshape_infer(given)?;
            assert_eq!(made.shape(), expected);
            assert!(made.shares_storage_with(&x));
        }
        // A copy, in row-major order.
        let columns = x.permute(&[2, 0, 1])?.reshape_infer(&[4, -1])?;
        gives!(i32: columns.select(0, 1) => [1, 5, 9, 13, 17, 21]);
        let no_rows = gpu.zeros(&[0, 4], DType::F32)?;
        assert_eq!(no_rows.reshape_infer(&[-1, 2])?.shape(), [0, 2]);
        for (of, shape) in [
            (&x, &[-1, -1, 4][..]),
            (&x, &[-2, 12]),
            (&x, &[-1, 5]),
            (&x, &[-1, 0]),
            (&no_rows, &[-1, 0]),
            (&x, &[isize::MIN]),
            (&x, &[-1, isize::MAX, isize::MAX]),
        ] {
            refused!(Shape: of.reshape_infer(shape));
        }
        assert_eq!(x.flatten_axes(1, -1)?.shape(), [2, 12]);
        assert_eq!(x.flatten_axes(-3, 1)?.shape(), [6, 4]);
        assert_eq!(x.flatten_axes(1, 1)?.shape(), [2, 3, 4]);
        assert_eq!(x.select(0, 0)?.t()?.flatten_axes(0, 1)?.shape(), [12]);
        refused!(Shape: x.flatten_axes(2, 1));
        refused!(Axis: x.flatten_axes(0, 3));
    }
    Ok(())
}

#[test]
fn narrow_counts_negative_starts_from_the_end() -> Result<()> {
    for gpu in each() {
        let x = gpu.arange(0, 6, 1, DType::I32)?;
        gives!(i32: x.narrow(0, -2, 2) => [4, 5]);
        gives!(i32: x.narrow(0, -6, 1) => [0]);
        assert_eq!(x.narrow(0, 6, 0)?.shape(), [0]);
        for (start, len) in [(-2_i64, 3), (-7, 1), (i64::MIN, 0), (i64::MAX, 1)] {
            refused!(Shape: x.narrow(0, start, len));
        }
        assert!(x.narrow(0, u64::MAX, 1).is_err() && x.narrow(0, usize::MAX, 1).is_err());
    }
    Ok(())
}

#[test]
fn a_number_is_one_element_along_axis_0() -> Result<()> {
    for gpu in each() {
        let (x, at) = (gpu.scalar(2.5_f32)?, gpu.scalar(0_u32)?);
        for axis in [0, -1] {
            let gives = |made: lapidary::Tensor, value: f32| -> Result<()> {
                assert_eq!(made.shape(), [0; 0]);
                assert_eq!(made.item::<f32>()?, value);
                Ok(())
            };
            gives(x.sum(&[axis])?, 2.5)?;
            gives(x.sum_keepdim(&[axis])?, 2.5)?;
            gives(x.mean(&[axis])?, 2.5)?;
            gives(x.max(&[axis])?, 2.5)?;
            gives(x.var(&[axis], 0)?, 0.0)?;
            gives(x.logsumexp(&[axis])?, 2.5)?;
            gives(x.softmax(axis)?, 1.0)?;
            gives(x.softmax_backward(&x.softmax(axis)?, axis)?, 0.0)?;
            gives(x.log_softmax(axis)?, 0.0)?;
            gives(x.cumsum(axis)?, 2.5)?;
            gives(x.cumprod(axis)?, 2.5)?;
            gives(x.gather(axis, &at)?, 2.5)?;
            gives(x.scatter(axis, &at, &x.neg()?)?, -2.5)?;
            gives(x.scatter_add(axis, &at, &x)?, 5.0)?;
            gives(x.index_add(axis, &at, &x)?, 5.0)?;
            gives(x.index_select(axis, &at)?, 2.5)?;
            gives(x.flip(&[axis])?, 2.5)?;
            gives(x.movedim(axis, 0)?, 2.5)?;
            gives(x.transpose(axis, 0)?, 2.5)?;
            gives(x.squeeze_axis(axis)?, 2.5)?;
            for (values, indices) in [
                x.max_with_indices(axis)?,
                x.sort(axis, true)?,
                x.top_k(1, axis, true)?,
            ] {
                gives(values, 2.5)?;
                assert_eq!((indices.shape(), indices.item::<u32>()?), (&[][..], 0));
            }
            assert_eq!(x.argmax(axis)?.item::<u32>()?, 0);
            assert_eq!(x.argsort(axis, false)?.item::<u32>()?, 0);
            assert_eq!(x.flatten_axes(axis, 0)?.shape(), [1]);
            gives!(f32: x.unfold(axis, 1, 1) => [2.5]);
        }
        // As in PyTorch, a 0-d tensor cannot be narrowed.
        refused!(Axis: x.narrow(0, 0, 1));
        refused!(Axis: x.select(0, 0));
        refused!(Axis: x.sum(&[1]));
        refused!(Axis: x.softmax(-2));
        refused!(Shape: x.sum(&[0, -1]));
    }
    Ok(())
}

#[test]
fn a_diagonal_shares_its_elements_with_the_matrix() -> Result<()> {
    for gpu in each() {
        let x = gpu.arange(0, 12, 1, DType::I32)?.reshape(&[3, 4])?;
        for (offset, expected) in [
            (0, &[0, 5, 10][..]),
            (1, &[1, 6, 11]),
            (3, &[3]),
            (4, &[]),
            (-2, &[8]),
            (isize::MIN, &[]),
        ] {
            gives!(i32: x.diagonal(offset, 0, 1) => expected);
        }
        gives!(i32: x.diagonal(1, 1, 0) => [4, 9]);
        let stack = gpu.arange(0, 12, 1, DType::I32)?.reshape(&[2, 3, 2])?;
        gives!(i32: stack.diagonal(0, 0, 2) => [0, 7, 2, 9, 4, 11]);
        x.diagonal(0, 0, -1)?
            .copy_(&gpu.full(&[3], -1, DType::I32)?)?;
        assert_eq!(x.to_vec::<i32>()?, [-1, 1, 2, 3, 4, -1, 6, 7, 8, 9, -1, 11]);
        refused!(Shape: x.diagonal(0, 1, -1));
    }
    Ok(())
}

#[test]
fn windows_that_overlap_are_read_and_not_written() -> Result<()> {
    for gpu in each() {
        let x = gpu.arange(0, 7, 1, DType::I32)?;
        let windows = x.unfold(0, 3, 2)?;
        assert_eq!(windows.to_vec::<i32>()?, [0, 1, 2, 2, 3, 4, 4, 5, 6]);
        gives!(i32: windows.sum(&[1]) => [3, 9, 15]);
        refused!(Shape: windows.add_(&windows));
        x.unfold(0, 2, 3)?.copy_(&gpu.zeros(&[2, 2], DType::I32)?)?;
        assert_eq!(x.to_vec::<i32>()?, [0, 0, 2, 0, 0, 5, 6]);
        refused!(Shape: x.unfold(0, 8, 1));
        refused!(Shape: x.unfold(0, 2, 0));
    }
    Ok(())
}

#[test]
fn extremes_come_with_their_indices() -> Result<()> {
    for gpu in each() {
        let x = gpu.tensor(&[1.0_f32, 5.0, 5.0, -2.0, f32::NAN, 0.0], &[2, 3])?;
        let (values, indices) = x.max_with_indices(-1)?;
        let values = values.to_vec::<f32>()?;
        assert!(values[0] == 5.0 && values[1].is_nan(), "{values:?}");
        assert_eq!(indices.to_vec::<u32>()?, [1, 1]);
        let (values, indices) = x.narrow(1, 0, 1)?.min_with_indices(0)?;
        assert_eq!(values.to_vec::<f32>()?, [-2.0]);
        assert_eq!(indices.to_vec::<u32>()?, [1]);
        assert!(x.max_with_indices(2).is_err());
    }
    Ok(())
}

#[test]
fn linspace_has_both_ends() -> Result<()> {
    for gpu in each() {
        let x = gpu.linspace(-1.0, 2.0, 7, DType::F32)?;
        assert_eq!(x.to_vec::<f32>()?, [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0]);
        let x = gpu.linspace(0.1, 0.7, 1001, DType::F32)?.to_vec::<f32>()?;
        assert_eq!((x[0], x[1000]), (0.1, 0.7));
        gives!(f32: gpu.linspace(3.0, 9.0, 1, DType::F32) => [3.0]);
        assert_eq!(gpu.linspace(3.0, 9.0, 0, DType::F32)?.shape(), [0]);
        refused!(DType: gpu.linspace(0.0, 1.0, 3, DType::I32));
    }
    Ok(())
}

#[test]
fn the_cross_entropy_of_probabilities_is_finite() -> Result<()> {
    for gpu in each() {
        let x = gpu.tensor(&[0.25_f32, 0.5, 0.0, 1.0, 1.0], &[5])?;
        let t = gpu.tensor(&[1.0_f32, 0.5, 1.0, 1.0, 0.0], &[5])?;
        let losses = x
            .binary_cross_entropy(&t, Reduction::None)?
            .to_vec::<f32>()?;
        let ln2 = std::f32::consts::LN_2;
        let expected = [2.0 * ln2, ln2, 100.0, 0.0, 100.0];
        for (got, want) in losses.iter().zip(expected) {
            assert!((got - want).abs() <= 1e-5 * want.abs(), "{losses:?}");
        }
        let sum = x.binary_cross_entropy(&t, Reduction::Sum)?.item::<f32>()?;
        assert!((sum - 202.079_44).abs() < 1e-3, "{sum}");
    }
    Ok(())
}

#[test]
fn extremes_keep_their_axis_or_fold_everything() -> Result<()> {
    for gpu in each() {
        let x = gpu.tensor(&[3.0_f32, 9.0, -1.0, 9.0, f32::NAN, 0.0], &[2, 3])?;
        assert_eq!(x.argmax_keepdim(0)?.shape(), [1, 3]);
        gives!(u32: x.argmin_keepdim(-1) => [2, 1]);
        assert_eq!(x.argmax_all()?.item::<u32>()?, 4);
        assert_eq!(x.t()?.argmin_all()?.item::<u32>()?, 3);
        let (least, place) = x.narrow(1, 0, 1)?.min_with_indices_all()?;
        assert_eq!((least.item::<f32>()?, place.item::<u32>()?), (3.0, 0));
        let (most, places) = x.max_with_indices_keepdim(-2)?;
        assert_eq!((most.shape(), places.shape()), (&[1, 3][..], &[1, 3][..]));
        // A number is kept as it is.
        let number = gpu.scalar(2.5_f32)?;
        assert_eq!(number.argmax_keepdim(0)?.shape(), [0; 0]);
        let (value, place) = number.max_with_indices_keepdim(-1)?;
        assert_eq!((value.item::<f32>()?, place.item::<u32>()?), (2.5, 0));
        assert_eq!(number.argmin_all()?.shape(), [0; 0]);
        let empty = x.narrow(0, 0, 0)?;
        refused!(Shape: empty.argmax_all());
        refused!(Shape: empty.min_with_indices_all());
        refused!(Axis: x.argmax_keepdim(2));
    }
    Ok(())
}
