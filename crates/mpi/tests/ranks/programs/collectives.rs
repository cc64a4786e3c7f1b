//! Collective operations over ranks give what those over devices give, to the bit.

use lapidary::devices::{Group, Reduce};
use lapidary::{DType, Element, Gpu, Tensor};
use lapidary_mpi::{Ranks, Result};

use super::simulated;

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];
const WHOLE: [DType; 2] = [DType::I32, DType::U32];

/// Shapes with no elements, with fewer than ranks, with odd numbers.
const SHAPES: [&[usize]; 4] = [&[], &[0, 3], &[3], &[7, 143]];
/// It has several pieces.
const LARGE: &[usize] = &[1_300_003];

/// Small tensors of all types that have sums, and a large one.
fn kinds() -> Vec<(DType, &'static [usize])> {
    let dtypes = FLOATS.into_iter().chain(WHOLE);
    let small = dtypes.flat_map(|dtype| SHAPES.map(|shape| (dtype, shape)));
    small.chain([(DType::F32, LARGE)]).collect()
}

/// Numbers whose sum depends on its order. Odd numbers of devices get a view with gaps.
fn values(gpu: &Gpu, of: usize, shape: &[usize], dtype: DType) -> Result<Tensor> {
    let len: usize = shape.iter().product();
    let value = |at: usize| {
        let small = ((at * 7 + of * 31) % 97) as f32 / 7.0 - 5.0;
        match (at + of) % 3 {
            0 => small * 1000.0,
            _ => small,
        }
    };
    let host: Vec<f32> = (0..len).map(value).collect();
    let tensor = gpu.tensor(&host, shape)?.cast(dtype)?;
    Ok(match (of % 2, shape.len()) {
        (1, 2) => tensor.transpose(0, 1)?.contiguous()?.transpose(0, 1)?,
        _ => tensor,
    })
}

/// As many devices as there are ranks.
fn group(ranks: &Ranks) -> Result<Group> {
    let gpus: Vec<Gpu> = (0..ranks.count()).map(simulated).collect();
    Ok(Group::new(&gpus)?)
}

/// The tensor of each rank, on its device.
fn all(group: &Group, shape: &[usize], dtype: DType) -> Result<Vec<Tensor>> {
    let gpus = group.gpus().iter().enumerate();
    let tensors = gpus.map(|(of, gpu)| values(gpu, of, shape, dtype));
    tensors.collect()
}

/// The elements as bits.
pub(super) fn bits(tensor: &Tensor) -> Vec<u32> {
    match tensor.dtype() {
        DType::F32 => floats::<f32>(tensor)
            .into_iter()
            .map(f32::to_bits)
            .collect(),
        DType::U32 => floats(tensor),
        _ => {
            let wide = tensor.cast(DType::F32).expect("it is a number");
            floats::<f32>(&wide).into_iter().map(f32::to_bits).collect()
        }
    }
}

fn floats<T: Element>(tensor: &Tensor) -> Vec<T> {
    tensor.to_vec().expect("it has a value")
}

pub(crate) fn sums(ranks: &Ranks) -> Result<()> {
    let group = group(ranks)?;
    let gpu = simulated(ranks.rank());
    let reduces = |dtype: DType| match dtype.is_float() {
        true => vec![Reduce::Sum, Reduce::Mean],
        false => vec![Reduce::Sum],
    };
    for (dtype, shape) in kinds() {
        let tensors = all(&group, shape, dtype)?;
        let own = values(&gpu, ranks.rank(), shape, dtype)?;
        for reduce in reduces(dtype) {
            let context = format!("{reduce:?} of {dtype} {shape:?}");
            let expected = &group.all_reduce(&tensors, reduce)?[ranks.rank()];
            let got = ranks.all_reduce(&own, reduce)?;
            assert_eq!(got.shape(), shape, "{context}");
            assert!(bits(&got) == bits(expected), "all_reduce, {context}");
            for axis in -(shape.len() as isize)..shape.len() as isize {
                let expected = group.reduce_scatter(&tensors, axis, reduce)?;
                let got = ranks.reduce_scatter(&own, axis, reduce)?;
                let expected = &expected[ranks.rank()];
                assert_eq!(got.shape(), expected.shape(), "{context}, axis {axis}");
                assert!(bits(&got) == bits(expected), "{context}, axis {axis}");
            }
        }
        let before = &tensors[ranks.rank()];
        assert!(bits(&own) == bits(before), "an operand changed");
    }
    Ok(())
}

pub(crate) fn moves(ranks: &Ranks) -> Result<()> {
    let group = group(ranks)?;
    let gpu = simulated(ranks.rank());
    for (dtype, shape) in kinds() {
        let tensors = all(&group, shape, dtype)?;
        let own = values(&gpu, ranks.rank(), shape, dtype)?;
        for (root, expected) in tensors.iter().enumerate() {
            let got = ranks.broadcast(root, &own)?;
            assert!(bits(&got) == bits(expected), "{dtype} {shape:?} of {root}");
            assert_eq!(got.shape(), shape);
        }
    }
    check_axes_from_either_end(ranks, &gpu)?;
    // Each rank has another number of rows, one of them none.
    for dtype in [DType::F32, DType::F16, DType::Bool] {
        for (axis, columns) in [(0, 5), (1, 5), (-1, 3), (0, 200_000)] {
            let part = |of: usize| -> Result<Tensor> {
                let mut shape = [columns, columns];
                if columns > 1000 {
                    shape = [1, columns];
                }
                shape[if axis == 0 { 0 } else { 1 }] = 3 * of;
                values(&gpu, of, &shape, DType::F32)?
                    .gt(0.0)?
                    .cast(dtype)
                    .map_err(Into::into)
            };
            let got = ranks.all_gather(&part(ranks.rank())?, axis)?;
            let parts = (0..ranks.count()).map(part).collect::<Result<Vec<_>>>()?;
            let expected = Tensor::concat(&parts.iter().collect::<Vec<_>>(), axis)?;
            assert_eq!((got.dtype(), got.shape()), (dtype, expected.shape()));
            assert!(
                bits(&got) == bits(&expected),
                "{dtype}, axis {axis}, {columns}"
            );
        }
    }
    Ok(())
}

/// Ranks may count one axis from different ends.
fn check_axes_from_either_end(ranks: &Ranks, gpu: &Gpu) -> Result<()> {
    for (axis, from_end) in [(0, -3), (1, -2), (2, -1)] {
        let said = match ranks.rank().is_multiple_of(2) {
            true => axis,
            false => from_end,
        };
        let own = gpu.full(&[4, 5, 6], ranks.rank() as f32, DType::F32)?;
        let mut shape = [4, 5, 6];
        shape[axis as usize] *= ranks.count();
        assert_eq!(ranks.all_gather(&own, said)?.shape(), shape);
        let part = ranks.reduce_scatter(&own, said, Reduce::Sum)?;
        let sum = (0..ranks.count()).sum::<usize>() as f32;
        let values = floats::<f32>(&part);
        assert!(values.iter().all(|value| *value == sum), "axis {said}");
    }
    for axis in [3, -4, isize::MIN, isize::MAX] {
        let own = gpu.ones(&[4, 5, 6], DType::F32)?;
        assert!(ranks.all_gather(&own, axis).is_err());
        assert!(ranks.reduce_scatter(&own, axis, Reduce::Sum).is_err());
    }
    Ok(())
}
