//! Products, reductions and slices, with shapes at the edges of tiles and beside them.

use lapidary::{DType, Error, Gpu, Result, Tensor};

use super::{assert_close, floats, gpu, small};

/// The product of two stacks of matrices, naively.
fn product(x: &[f32], y: &[f32], [m, n, k]: [usize; 3]) -> Vec<f32> {
    let element = |at: usize| {
        let (matrix, i, j) = (at / (m * n), at / n % m, at % n);
        let (x, y) = (&x[(matrix * m + i) * k..], &y[matrix * k * n..]);
        (0..k).map(|at| x[at] * y[at * n + j]).sum()
    };
    let matrices = x.len().checked_div(m * k).unwrap_or(1);
    (0..matrices * m * n).map(element).collect()
}

fn check_matmul(gpu: &Gpu, batch: usize, [m, n, k]: [usize; 3]) -> Result<()> {
    let (x, y) = (small(batch * m * k, m), small(batch * k * n, n));
    let expected = product(&x, &y, [m, n, k]);
    let (a, b) = (
        gpu.tensor(&x, &[batch, m, k])?,
        gpu.tensor(&y, &[batch, k, n])?,
    );
    let what = format!("{batch} x {m} x {n} x {k}");
    assert_eq!(floats(&a.matmul(&b)?), expected, "{what}");
    // The same matrices, stored in transposed order.
    let a_t = a.transpose(1, 2)?.contiguous()?.transpose(1, 2)?;
    let b_t = b.transpose(1, 2)?.contiguous()?.transpose(1, 2)?;
    assert_eq!(floats(&a_t.matmul(&b)?), expected, "{what}, A transposed");
    assert_eq!(floats(&a.matmul(&b_t)?), expected, "{what}, B transposed");
    Ok(())
}

#[test]
fn matrices_of_every_shape_are_multiplied() -> Result<()> {
    let gpu = gpu();
    for edge in [
        1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 129,
    ] {
        check_matmul(&gpu, 1, [edge, edge, edge])?;
    }
    for shape in [
        [1, 1000, 77],
        [1000, 1, 77],
        [3, 5, 1000],
        [1, 1, 5000],
        [2, 300, 1],
        [130, 66, 34],
        [64, 128, 256],
        [8, 129, 64],
    ] {
        check_matmul(&gpu, 1, shape)?;
    }
    check_matmul(&gpu, 3, [17, 9, 33])?;
    check_matmul(&gpu, 5, [32, 64, 16])
}

#[test]
fn products_of_nothing_are_empty_or_zero() -> Result<()> {
    let gpu = gpu();
    let zeros = |shape: &[usize]| gpu.zeros(shape, DType::F32);
    assert_eq!(
        zeros(&[3, 0])?.matmul(&zeros(&[0, 2])?)?.to_vec::<f32>()?,
        [0.0; 6]
    );
    let none = zeros(&[0, 4])?.matmul(&zeros(&[4, 2])?)?;
    assert_eq!((none.shape(), none.to_vec::<f32>()?), (&[0, 2][..], vec![]));
    let wrong = zeros(&[3, 4])?.matmul(&zeros(&[3, 4])?);
    assert!(matches!(wrong, Err(Error::Shape { .. })), "{wrong:?}");
    Ok(())
}

#[test]
fn one_matrix_serves_a_whole_batch_and_vectors_are_matrices() -> Result<()> {
    let gpu = gpu();
    let (x, w) = (small(4 * 6 * 10, 1), small(10 * 7, 2));
    let weight = gpu.tensor(&w, &[10, 7])?;
    let got = gpu.tensor(&x, &[4, 6, 10])?.matmul(&weight)?;
    assert_eq!(got.shape(), [4, 6, 7]);
    assert_eq!(floats(&got), product(&x, &w, [24, 7, 10]));
    let vector = gpu.tensor(&x[..10], &[10])?;
    assert_eq!(
        floats(&vector.matmul(&weight)?),
        product(&x[..10], &w, [1, 7, 10])
    );
    let dot = vector.matmul(&vector)?;
    assert_eq!(dot.rank(), 0);
    assert_eq!(
        dot.item::<f32>()?,
        x[..10].iter().map(|x| x * x).sum::<f32>()
    );
    Ok(())
}

/// Sums, means and extremes of the rows of a matrix and of its columns.
fn check_folds(gpu: &Gpu, rows: usize, columns: usize) -> Result<()> {
    let x = small(rows * columns, rows);
    let matrix = gpu.tensor(&x, &[rows, columns])?;
    let lines: Vec<Vec<f32>> = x.chunks(columns).map(<[f32]>::to_vec).collect();
    let across = |c: usize| -> Vec<f32> { lines.iter().map(|line| line[c]).collect() };
    let columns: Vec<Vec<f32>> = (0..columns).map(across).collect();
    for (axis, folded) in [(1, &lines), (0, &columns)] {
        let all = |fold: fn(&Vec<f32>) -> f32| -> Vec<f32> { folded.iter().map(fold).collect() };
        let sums = all(|line| line.iter().sum());
        let means: Vec<f32> = sums
            .iter()
            .map(|sum| sum / folded[0].len() as f32)
            .collect();
        assert_eq!(floats(&matrix.sum(&[axis])?), sums, "{matrix:?} {axis}");
        assert_close(&floats(&matrix.mean(&[axis])?), &means);
        let highest = all(|line| line.iter().copied().fold(f32::MIN, f32::max));
        let lowest = all(|line| line.iter().copied().fold(f32::MAX, f32::min));
        assert_eq!(floats(&matrix.max(&[axis])?), highest, "{matrix:?} {axis}");
        assert_eq!(floats(&matrix.min(&[axis])?), lowest, "{matrix:?} {axis}");
    }
    assert_eq!(matrix.sum_all()?.item::<f32>()?, x.iter().sum::<f32>());
    Ok(())
}

#[test]
fn rows_and_columns_of_every_length_are_folded() -> Result<()> {
    let gpu = gpu();
    for (rows, columns) in [
        (1, 1),
        (1, 7),
        (7, 1),
        (3, 5),
        (2, 1023),
        (1025, 3),
        (65, 64),
        (1, 100_003),
        (100_003, 1),
        (300, 301),
    ] {
        check_folds(&gpu, rows, columns)?;
    }
    Ok(())
}

#[test]
fn several_axes_of_a_view_are_folded_at_once() -> Result<()> {
    let gpu = gpu();
    let x = small(2 * 3 * 4 * 5, 3);
    let tensor = gpu.tensor(&x, &[2, 3, 4, 5])?;
    let mut expected = vec![0.0; 12];
    for (at, x) in x.iter().enumerate() {
        expected[at / 20 % 3 * 4 + at / 5 % 4] += x;
    }
    assert_eq!(floats(&tensor.sum(&[0, -1])?), expected);
    let kept = tensor.permute(&[3, 1, 2, 0])?.sum_keepdim(&[0, 3])?;
    assert_eq!(kept.shape(), [1, 3, 4, 1]);
    assert_eq!(floats(&kept), expected);
    assert!(matches!(tensor.sum(&[4]), Err(Error::Axis { .. })));
    Ok(())
}

#[test]
fn softmax_of_large_numbers_is_finite_and_sums_to_one() -> Result<()> {
    let gpu = gpu();
    for (rows, columns) in [(1, 1), (3, 5), (4, 64), (2, 1000), (1, 40_000)] {
        let x: Vec<f32> = small(rows * columns, columns)
            .iter()
            .map(|x| x * 100.0)
            .collect();
        let x = gpu.tensor(&x, &[rows, columns])?;
        let ones = floats(&x.softmax(1)?.sum(&[1])?);
        assert_close(&ones, &vec![1.0; rows]);
        assert_close(
            &floats(&x.log_softmax(1)?.exp()?.sum(&[1])?),
            &vec![1.0; rows],
        );
        let by_column = x.t()?.softmax(0)?;
        assert_close(&floats(&by_column), &floats(&x.softmax(1)?.t()?));
    }
    Ok(())
}

#[test]
fn normalized_rows_have_mean_zero_and_variance_one() -> Result<()> {
    let gpu = gpu();
    for (rows, columns) in [(3, 5), (2, 768), (65, 33), (1, 40_001)] {
        let x = gpu.tensor(&small(rows * columns, 1), &[rows, columns])?;
        let y = (&x + 1000.0)?.layer_norm(&[columns], None, None, 1e-5)?;
        let means = floats(&y.mean(&[1])?);
        let squares = floats(&y.square()?.mean(&[1])?);
        assert!(means.iter().all(|mean| mean.abs() < 1e-3), "{means:?}");
        assert!(
            squares.iter().all(|square| (square - 1.0).abs() < 1e-3),
            "{squares:?}"
        );
    }
    Ok(())
}

#[test]
fn many_tensors_are_joined_along_any_axis() -> Result<()> {
    let gpu = gpu();
    let parts: Vec<Tensor> = (0..9)
        .map(|i| gpu.full(&[2, i % 4, 3], i as f32, DType::F32))
        .collect::<Result<_>>()?;
    let joined = Tensor::concat(&parts.iter().collect::<Vec<_>>(), 1)?;
    let half: Vec<f32> = (0..9).flat_map(|i| vec![i as f32; i % 4 * 3]).collect();
    assert_eq!(joined.shape(), [2, half.len() / 3, 3]);
    assert_eq!(floats(&joined), [half.clone(), half].concat());
    let bytes = gpu.tensor(&[1_u8, 2, 3], &[3])?;
    let more = gpu.tensor(&[4_u8, 5], &[2])?;
    let all = Tensor::concat(&[&bytes, &more, &bytes.flip(&[0])?], 0)?;
    assert_eq!(all.to_vec::<u8>()?, [1, 2, 3, 4, 5, 3, 2, 1]);
    assert!(Tensor::concat(&[], 0).is_err());
    Ok(())
}

#[test]
fn slices_are_picked_by_index_and_those_that_are_not_there_are_zeros() -> Result<()> {
    let gpu = gpu();
    let x = gpu.tensor(&small(35, 0), &[5, 7])?;
    let picked = x.index_select(0, &gpu.tensor(&[4_u32, 0, 4, 7], &[4])?)?;
    let rows = small(35, 0);
    let expected = [&rows[28..], &rows[..7], &rows[28..], &[0.0; 7]].concat();
    assert_eq!(floats(&picked), expected);
    let columns = x.index_select(1, &gpu.tensor(&[6_i32, -1], &[2])?)?;
    let expected: Vec<f32> = (0..5).flat_map(|row| [rows[row * 7 + 6], 0.0]).collect();
    assert_eq!(floats(&columns), expected);
    Ok(())
}
