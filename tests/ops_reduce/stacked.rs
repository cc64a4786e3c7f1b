//! hstack, vstack, tensor_split; diag, outer and matrices with ones on a diagonal.

use lapidary::{DType, Error, Result, Tensor};

use crate::devices::{gives, refused};

use super::model::*;

#[test]
fn tensors_are_joined_side_by_side_and_one_below_the_other() -> Result<()> {
    for gpu in each() {
        let x = gpu.arange(0, 6, 1, DType::I32)?.reshape(&[2, 3])?;
        let (row, number) = (x.select(0, 1)?, gpu.scalar(7_i32)?);
        gives!(i32: Tensor::hstack(&[&x, &x.narrow(1, 1, 1)?]) => [0, 1, 2, 1, 3, 4, 5, 4]);
        gives!(i32: Tensor::hstack(&[&number, &row, &number]) => [7, 3, 4, 5, 7]);
        gives!(i32: Tensor::vstack(&[&row, &x.flip(&[0])?]) => [3, 4, 5, 3, 4, 5, 0, 1, 2]);
        assert_eq!(Tensor::vstack(&[&number, &number])?.shape(), [2, 1]);
        let cube = x.unsqueeze(0)?;
        assert_eq!(Tensor::hstack(&[&cube, &cube])?.shape(), [1, 4, 3]);
        assert_eq!(Tensor::vstack(&[&cube, &cube])?.shape(), [2, 2, 3]);
        let refusals = [
            (Tensor::hstack(&[]), "hstack"),
            (Tensor::vstack(&[]), "vstack"),
            (Tensor::hstack(&[&x, &row]), "hstack"),
            (Tensor::vstack(&[&x, &number]), "vstack"),
        ];
        for (refused, operation) in refusals {
            let error = refused.unwrap_err();
            assert!(matches!(error, Error::Shape { .. }), "{error}");
            assert!(error.to_string().contains(operation), "{error}");
        }
    }
    Ok(())
}

#[test]
fn pieces_differ_by_one_at_most_or_end_where_indices_say() -> Result<()> {
    let (_, gpu) = gpus().remove(0);
    let x = gpu.arange(0, 7, 1, DType::I32)?;
    let sizes = |pieces: Vec<Tensor>| pieces.iter().map(Tensor::len).collect::<Vec<_>>();
    assert_eq!(sizes(x.tensor_split(3, 0)?), [3, 2, 2]);
    assert_eq!(sizes(x.tensor_split(9, -1)?), [1, 1, 1, 1, 1, 1, 1, 0, 0]);
    assert_eq!(sizes(x.tensor_split_at(&[2, -3], 0)?), [2, 2, 3]);
    assert_eq!(sizes(x.tensor_split_at(&[], 0)?), [7]);
    // Indices may descend or be outside.
    assert_eq!(sizes(x.tensor_split_at(&[5, 2, 99], 0)?), [5, 0, 5, 0]);
    for count in [0, usize::MAX] {
        refused!(Shape: x.tensor_split(count, 0));
    }
    refused!(Axis: x.tensor_split(2, 1));
    refused!(Axis: gpu.scalar(1)?.tensor_split_at(&[1], 0));
    Ok(())
}

#[test]
fn vectors_make_matrices() -> Result<()> {
    for gpu in each() {
        for dtype in DType::ALL {
            let array = Array::new(&[4], |at| (at % 2 + 1) as f64).rounded(dtype);
            let x = array.upload(&gpu, dtype);
            for offset in [-2, 0, 1] {
                let matrix = x.flip(&[0])?.diag(offset)?;
                let side = 4 + offset.unsigned_abs();
                assert_eq!(matrix.shape(), [side, side], "{dtype}");
                let back = matrix.diag(offset)?;
                assert!(!back.shares_storage_with(&matrix), "{dtype}");
                let what = format!("{dtype} {offset}");
                assert_close(&download(&back), &download(&x.flip(&[0])?), 0.0, &what);
                let others = matrix.count_nonzero_all()?.item::<u32>()?;
                assert_eq!(others, x.count_nonzero_all()?.item::<u32>()?, "{what}");
            }
            let shape = [2, 5];
            let eye = gpu.eye_with(2, 5, dtype)?;
            let expected = Array::new(&shape, |at| f64::from(u8::from(at % 5 == at / 5)));
            assert_close(&download(&eye), &expected, 0.0, &format!("{dtype}"));
            assert_eq!(gpu.eye_with(5, 0, dtype)?.shape(), [5, 0]);
            assert_eq!(gpu.eye_with(0, 5, dtype)?.shape(), [0, 5]);
        }
        let tall = gpu.eye_with(3, 2, DType::I32)?;
        assert_eq!(tall.to_vec::<i32>()?, [1, 0, 0, 1, 0, 0]);
        let x = gpu.tensor(&[2, 3], &[2])?;
        let got = x.outer(&gpu.tensor(&[1, 10, 100], &[3])?)?;
        assert_eq!(got.to_vec::<i32>()?, [2, 20, 200, 3, 30, 300]);
        let empty = gpu.zeros(&[0], DType::I32)?;
        assert_eq!(empty.outer(&x)?.shape(), [0, 2]);
        gives!(i32: empty.diag(3) => [0; 9]);
        for refused in [
            gpu.scalar(1)?.diag(0),
            got.outer(&x),
            x.outer(&gpu.scalar(1)?),
        ] {
            refused!(Shape: refused);
        }
        refused!(DType: x.outer(&x.cast(DType::F32)?));
        assert!(x.diag(isize::MIN).is_err() && x.diag(isize::MAX).is_err());
    }
    Ok(())
}
