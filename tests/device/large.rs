//! Tensors larger than one binding of 128 MiB, the limit of software adapters and browsers, with
//! one case for each family. On other devices they are just large.

use lapidary::{DType, Result, Tensor};

use super::{floats, gpu};

/// As f32, the second window begins inside row 4092 and holds 56 KiB. Neither is even.
const ROWS: usize = 4099;
const COLUMNS: usize = 8191;
const LEN: usize = ROWS * COLUMNS;

/// The first element of the second window.
const EDGE: usize = (128 << 20) / 4;

const _: () = assert!(LEN > EDGE, "one window is not enough");

/// Places to compare: both ends, and both sides of the edge.
const SPOTS: [usize; 6] = [0, 3, EDGE - 9, EDGE - 1, EDGE + 5, LEN - 8];

/// Compares eight elements from each place on.
#[track_caller]
fn check_spots(tensor: &Tensor, spots: &[usize], expected: impl Fn(usize) -> i32) -> Result<()> {
    let line = tensor.view_as(&[tensor.len()])?;
    for &spot in spots {
        let len = 8.min(tensor.len() - spot);
        let got = line.narrow(0, spot, len)?.to_vec::<i32>()?;
        let expected: Vec<i32> = (spot..spot + len).map(&expected).collect();
        assert_eq!(got, expected, "from {spot} on of {tensor}");
    }
    Ok(())
}

fn counted(gpu: &lapidary::Gpu) -> Result<Tensor> {
    let line = gpu.arange(0, LEN as i64, 1, DType::I32)?;
    line.reshape(&[ROWS, COLUMNS])
}

#[test]
fn a_large_tensor_goes_up_and_comes_back() -> Result<()> {
    let gpu = gpu();
    let data: Vec<u32> = (0..LEN as u32)
        .map(|i| i.wrapping_mul(2_654_435_761))
        .collect();
    let tensor = gpu.tensor(&data, &[LEN])?;
    assert!(tensor.to_vec::<u32>()? == data, "other bytes came back");
    Ok(())
}

#[test]
fn a_large_tensor_is_computed_with_element_by_element() -> Result<()> {
    let gpu = gpu();
    let x = counted(&gpu)?;
    let row = gpu.arange(0, COLUMNS as i64, 1, DType::I32)?;
    let sum = (&(&x + &x)? + &row)?;
    check_spots(&sum, &SPOTS, |i| (2 * i + i % COLUMNS) as i32)?;
    x.narrow(0, ROWS - 8, 8)?.mul_(-1)?;
    let negative = (ROWS - 8) * COLUMNS;
    check_spots(&x, &[EDGE - 4, negative - 4, LEN - 8], |i| {
        if i < negative { i as i32 } else { -(i as i32) }
    })
}

#[test]
fn a_large_tensor_is_copied_and_converted() -> Result<()> {
    let gpu = gpu();
    let x = counted(&gpu)?;
    let turned = x.t()?.contiguous()?;
    check_spots(&turned, &SPOTS, |i| (i % ROWS * COLUMNS + i / ROWS) as i32)?;
    drop(turned);
    let bytes = x.cast(DType::U8)?;
    drop(x);
    let wide = bytes.flip(&[0, 1])?.cast(DType::I32)?;
    check_spots(&wide, &SPOTS, |i| ((LEN - 1 - i) % 256) as i32)
}

#[test]
fn a_large_tensor_is_folded() -> Result<()> {
    let gpu = gpu();
    let x = counted(&gpu)?;
    let all = (0..LEN as i32).fold(0_i32, i32::wrapping_add);
    assert_eq!(x.sum_all()?.item::<i32>()?, all);
    assert_eq!(x.max_all()?.item::<i32>()?, LEN as i32 - 1);
    let sum_of = |start: usize, step: usize, len: usize| -> i32 {
        let element = |i: usize| (start + i * step) as i32;
        (0..len).map(element).fold(0, i32::wrapping_add)
    };
    let by_row: Vec<i32> = (0..ROWS)
        .map(|row| sum_of(row * COLUMNS, 1, COLUMNS))
        .collect();
    assert_eq!(x.sum(&[1])?.to_vec::<i32>()?, by_row);
    let by_column: Vec<i32> = (0..COLUMNS)
        .map(|column| sum_of(column, COLUMNS, ROWS))
        .collect();
    assert_eq!(x.sum(&[0])?.to_vec::<i32>()?, by_column);
    let last = vec![ROWS as u32 - 1; COLUMNS];
    assert_eq!(x.argmax(0)?.to_vec::<u32>()?, last);
    Ok(())
}

#[test]
fn the_rows_of_a_large_tensor_are_normalized() -> Result<()> {
    let gpu = gpu();
    let x = gpu.rand_uniform(&[ROWS, COLUMNS], -1.0, 1.0, 3, DType::F32)?;
    let sums = floats(&x.softmax(1)?.sum(&[1])?);
    assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-4), "{sums:?}");
    let squares = floats(
        &x.layer_norm(&[COLUMNS], None, None, 1e-5)?
            .square()?
            .mean(&[1])?,
    );
    assert!(
        squares.iter().all(|square| (square - 1.0).abs() < 1e-3),
        "{squares:?}"
    );
    Ok(())
}

#[test]
fn a_large_matrix_is_multiplied() -> Result<()> {
    let gpu = gpu();
    // All elements of row r are r % 7.
    let rows: Vec<f32> = (0..ROWS).map(|row| (row % 7) as f32).collect();
    let column = gpu.tensor(&rows, &[ROWS, 1])?;
    let x = column.broadcast_to(&[ROWS, COLUMNS])?.contiguous()?;
    let w = gpu.full(&[COLUMNS, 3], 2.0, DType::F32)?;
    let expected: Vec<f32> = rows
        .iter()
        .flat_map(|row| [row * 2.0 * COLUMNS as f32; 3])
        .collect();
    assert_eq!(floats(&x.matmul(&w)?), expected);
    Ok(())
}

#[test]
fn large_tensors_are_joined_and_picked_from() -> Result<()> {
    let gpu = gpu();
    let half = gpu.arange(0, (LEN / 2) as i64, 1, DType::I32)?;
    let other = half.neg()?;
    let joined = Tensor::concat(&[&half, &other], 0)?;
    let middle = LEN / 2;
    check_spots(&joined, &[0, middle - 4, EDGE - 4, 2 * middle - 8], |i| {
        if i < middle {
            i as i32
        } else {
            -((i - middle) as i32)
        }
    })?;
    drop((half, other, joined));
    let x = counted(&gpu)?;
    let rows = [ROWS as u32 - 1, 0, 4095, 4096];
    let picked = x.index_select(0, &gpu.tensor(&rows, &[4])?)?;
    check_spots(
        &picked,
        &[0, COLUMNS, 2 * COLUMNS - 4, 4 * COLUMNS - 8],
        |i| (rows[i / COLUMNS] as usize * COLUMNS + i % COLUMNS) as i32,
    )
}
