//! 0-d tensors where PyTorch takes them as tensors of one element: as what is indexed, as indices,
//! and as sources. The values are PyTorch's.

use lapidary::operations::ScatterReduce;
use lapidary::{Gpu, Result, Tensor};

use crate::devices::refused;

use super::model::each;

fn number(gpu: &Gpu, value: f32) -> Tensor {
    gpu.tensor(&[value], &[]).unwrap()
}

fn line(gpu: &Gpu, values: &[f32]) -> Tensor {
    gpu.tensor(values, &[values.len()]).unwrap()
}

fn at(gpu: &Gpu, indices: &[i32]) -> Tensor {
    gpu.tensor(indices, &[indices.len()]).unwrap()
}

#[track_caller]
fn check(made: Result<Tensor>, shape: &[usize], expected: &[f32]) {
    let made = made.unwrap();
    assert_eq!(made.shape(), shape);
    assert_eq!(made.to_vec::<f32>().unwrap(), expected);
}

#[test]
fn a_number_is_picked_from_and_picks() -> Result<()> {
    for gpu in each() {
        let (five, three) = (number(&gpu, 5.0), line(&gpu, &[1.0, 2.0, 3.0]));
        let second = gpu.tensor(&[1_i32], &[])?;
        let zero = gpu.tensor(&[0_u32], &[])?;
        for axis in [0, -1] {
            check(five.gather(axis, &at(&gpu, &[0])), &[1], &[5.0]);
            check(five.gather(axis, &at(&gpu, &[0, 0])), &[2], &[5.0; 2]);
            check(five.gather(axis, &at(&gpu, &[])), &[0], &[]);
            check(five.gather(axis, &zero), &[], &[5.0]);
            check(three.gather(axis, &second), &[], &[2.0]);
            check(three.take_along(axis, &second), &[], &[2.0]);
            check(five.take_along(axis, &at(&gpu, &[0])), &[1], &[5.0]);
            check(five.index_select(axis, &at(&gpu, &[0])), &[], &[5.0]);
            check(three.index_select(axis, &second), &[1], &[2.0]);
        }
        let matrix = gpu.tensor(&[1.0_f32, 2.0, 3.0, 4.0], &[2, 2])?;
        check(matrix.index_select(1, &second), &[2, 1], &[2.0, 4.0]);
        let wide = gpu.tensor(&[0_i32], &[1, 1])?;
        refused!(Axis: five.gather(1, &zero));
        assert!(five.gather(0, &wide).is_err() && matrix.gather(0, &zero).is_err());
    }
    Ok(())
}

#[test]
fn a_number_is_written_to_and_written() -> Result<()> {
    for gpu in each() {
        let (five, three) = (number(&gpu, 5.0), line(&gpu, &[1.0, 2.0, 3.0]));
        let (zero, zeros) = (at(&gpu, &[0]), at(&gpu, &[0, 0]));
        let second = gpu.tensor(&[1_i32], &[])?;
        let (seven, pair) = (line(&gpu, &[7.0]), line(&gpu, &[7.0, 8.0]));
        let max = ScatterReduce::Max;
        check(five.scatter(0, &zero, &seven), &[], &[7.0]);
        check(five.scatter(-1, &zeros, &pair), &[], &[8.0]);
        check(five.scatter(0, &zero, &number(&gpu, 7.0)), &[], &[7.0]);
        check(five.scatter_add(0, &zero, &seven), &[], &[12.0]);
        check(five.scatter_add(0, &zeros, &pair), &[], &[20.0]);
        check(
            five.scatter_reduce(0, &zeros, &pair, max, true),
            &[],
            &[8.0],
        );
        check(three.scatter(0, &second, &five), &[3], &[1.0, 5.0, 3.0]);
        check(three.scatter_add(0, &second, &five), &[3], &[1.0, 7.0, 3.0]);
        check(five.index_add(0, &zero, &seven), &[], &[12.0]);
        check(five.index_add(0, &zeros, &pair), &[], &[20.0]);
        check(five.index_add(0, &zero, &number(&gpu, 7.0)), &[], &[12.0]);
        check(three.index_add(-1, &second, &five), &[3], &[1.0, 7.0, 3.0]);
        let matrix = gpu.tensor(&[1.0_f32, 2.0, 3.0, 4.0], &[2, 2])?;
        let row = gpu.tensor(&[10.0_f32, 20.0], &[1, 2])?;
        let sums = [1.0, 2.0, 13.0, 24.0];
        check(matrix.index_add(0, &second, &row), &[2, 2], &sums);
        // The same in place.
        five.scatter_(0, &zeros, &pair)?;
        check(five.copy(), &[], &[8.0]);
        five.scatter_add_(0, &zero, &seven)?;
        five.index_add_(0, &zeros, &pair)?;
        check(five.copy(), &[], &[30.0]);
        five.scatter_reduce_(0, &zero, &seven, ScatterReduce::Min, true)?;
        check(five.copy(), &[], &[7.0]);
        three.scatter_(0, &second, &five)?;
        three.index_add_(0, &second, &five)?;
        check(three.copy(), &[3], &[1.0, 14.0, 3.0]);
        matrix.index_add_(0, &second, &row)?;
        check(matrix.copy(), &[2, 2], &sums);
        let wide = gpu.tensor(&[0_i32], &[1, 1])?;
        assert!(five.scatter(0, &wide, &seven).is_err());
        assert!(five.index_add_(1, &zero, &seven).is_err());
    }
    Ok(())
}

#[test]
fn numbers_that_were_picked_and_written_have_gradients() -> Result<()> {
    for gpu in each() {
        let x = number(&gpu, 5.0).requires_grad()?;
        let src = line(&gpu, &[7.0, 8.0]).requires_grad()?;
        let zeros = at(&gpu, &[0, 0]);
        let picked = x.gather(0, &zeros)?.sum_all()?;
        let added = x.index_add(0, &zeros, &src)?.square()?;
        let written = x.scatter(0, &zeros, &src)?;
        let loss = ((picked + added)? + written)?;
        let mut gradients = loss.backward()?;
        check(Ok(gradients.take(&x).unwrap()), &[], &[42.0]);
        check(Ok(gradients.take(&src).unwrap()), &[2], &[40.0, 41.0]);
    }
    Ok(())
}
