//! Tensors on their way into a file: their elements in parts, and whether somebody writes to them
//! meanwhile.

use std::collections::VecDeque;

use crate::gpu::Gpu;
use crate::tensor::Tensor;
use crate::tensor::layout::{Dims, Layout, Strides};
use lapidary_core::internal::{BoxFuture, block_on};
use lapidary_core::units::MIB;
use lapidary_core::{DType, Element, Error, Result};

/// Most bytes of a part. Tensors pass through the host in parts.
pub(super) const PART_BYTES: u64 = 8 * MIB;

/// Most parts, and bytes of parts, under way at once: the device copies while the disk writes.
const PARTS_UNDER_WAY: usize = 64;
const BYTES_UNDER_WAY: u64 = 2 * PART_BYTES;

/// The device gathers a view whose lowest and highest elements are further apart than this.
const FAR_BYTES: u64 = 4 * PART_BYTES;

/// The versions of tensors before they are saved. Refuses tensors of another `Gpu`.
pub(super) fn versions(
    gpu: &Gpu,
    tensors: &[&Tensor],
    operation: &'static str,
) -> Result<Vec<Option<u64>>> {
    if !tensors
        .iter()
        .all(|tensor| gpu.engine().may_read(&tensor.engine, &tensor.storage))
    {
        return Err(Error::Foreign { operation });
    }
    let version = |tensor: &&Tensor| {
        let version = tensor.version();
        (!tensor.storage.here().is_half_written()).then_some(version)
    };
    Ok(tensors.iter().map(version).collect())
}

/// The first tensor that was written to since it had this version.
pub(super) fn changed(tensors: &[&Tensor], versions: &[Option<u64>]) -> Option<usize> {
    let mut pairs = tensors.iter().zip(versions);
    pairs.position(|(tensor, version)| Some(tensor.version()) != *version)
}

/// Passes the elements of tensors on, one tensor after the other, in parts.
#[track_caller]
pub(super) fn stream(
    operation: &'static str,
    tensors: &[&Tensor],
    mut append: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut parts = tensors.iter().flat_map(|tensor| parts(tensor));
    let (mut under_way, mut bytes_under_way) = (VecDeque::new(), 0);
    loop {
        while under_way.len() < PARTS_UNDER_WAY && bytes_under_way < BYTES_UNDER_WAY {
            let Some(part) = parts.next() else { break };
            bytes_under_way += part.size_bytes();
            under_way.push_back((part.size_bytes(), start(&part)?));
        }
        let Some((part_bytes, reading)) = under_way.pop_front() else {
            return Ok(());
        };
        append(&block_on(operation, reading)?)?;
        bytes_under_way -= part_bytes;
    }
}

/// Starts to read a part.
#[track_caller]
fn start(part: &Tensor) -> Result<BoxFuture<'static, Result<Vec<u8>>>> {
    let far = part.layout.span().is_some_and(|(lowest, highest)| {
        (highest - lowest) as u64 * part.dtype().size_bytes() > FAR_BYTES
    });
    let gathered;
    let part = if far {
        gathered = part.contiguous()?;
        &gathered
    } else {
        part
    };
    Ok(match part.dtype() {
        DType::F32 => start_typed::<f32>(part),
        DType::F16 => start_typed::<half::f16>(part),
        DType::I32 => start_typed::<i32>(part),
        DType::U32 => start_typed::<u32>(part),
        DType::U8 => start_typed::<u8>(part),
        DType::Bool => start_typed::<bool>(part),
        DType::Bf16 => start_typed::<half::bf16>(part),
        DType::I8 => start_typed::<i8>(part),
    })
}

#[track_caller]
fn start_typed<T: Element>(part: &Tensor) -> BoxFuture<'static, Result<Vec<u8>>> {
    let reading = part.to_vec_async::<T>();
    Box::pin(async move { Ok(T::bytes_of(&reading.await?).to_vec()) })
}

/// A tensor in parts of at most [`PART_BYTES`], in row-major order.
fn parts(tensor: &Tensor) -> impl Iterator<Item = Tensor> {
    let most = (PART_BYTES / tensor.dtype().size_bytes()) as usize;
    layouts(&tensor.layout, most).map(|layout| tensor.view(layout))
}

/// A layout in parts of at most `most` elements. A part is a run along the first axis whose steps
/// are no larger than that, for each index of the axes before it.
fn layouts(layout: &Layout, most: usize) -> impl Iterator<Item = Layout> + use<> {
    let mut whole = layout.clone();
    if whole.is_contiguous() {
        whole.shape = Dims::from_slice(&[layout.len()]);
        whole.strides = Strides::from_slice(&[1]);
    }
    let (mut axis, mut step_len) = (0, whole.len());
    for (at, &dim) in whole.shape.iter().enumerate() {
        axis = at;
        step_len = step_len.checked_div(dim).unwrap_or(0);
        if step_len <= most {
            break;
        }
    }
    let dim = whole.shape[axis];
    let run = most.checked_div(step_len).unwrap_or(1).clamp(1, dim.max(1));
    let runs = dim.div_ceil(run);
    let outer: usize = match whole.len() {
        0 => 0,
        _ => whole.shape[..axis].iter().product(),
    };
    (0..outer * runs).map(move |number| {
        let (mut rest, first) = (number / runs, number % runs * run);
        let mut offset = whole.offset as isize + first as isize * whole.strides[axis];
        for at in (0..axis).rev() {
            offset += (rest % whole.shape[at]) as isize * whole.strides[at];
            rest /= whole.shape[at];
        }
        let mut shape = Dims::from_slice(&whole.shape[axis..]);
        shape[0] = run.min(dim - first);
        Layout {
            shape,
            strides: Strides::from_slice(&whole.strides[axis..]),
            offset: offset as usize,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(layout: &Layout) {
        for most in [1, 2, 3, 7, 24, 1000] {
            let all: Vec<usize> = layout.elements().collect();
            let mut seen = Vec::new();
            for part in layouts(layout, most) {
                assert!((1..=most).contains(&part.len()), "{part:?}");
                seen.extend(part.elements());
            }
            assert_eq!(seen, all, "{layout:?} in parts of {most}");
        }
    }

    #[test]
    fn parts_are_all_elements_in_order_and_none_is_too_large() {
        let base = Layout::contiguous(&[3, 4, 5]);
        check(&base);
        check(&base.permute(&[2, 0, 1]).unwrap());
        check(&base.flip(&[0, 2]).unwrap());
        check(&base.slice(1, Some(1), None, 2).unwrap());
        check(&base.select(2, 3).unwrap());
        check(
            &Layout::contiguous(&[1, 5, 1])
                .broadcast_to(&[6, 5, 4])
                .unwrap(),
        );
        check(&Layout::contiguous(&[]));
        check(&Layout::contiguous(&[4, 0, 3]));
        check(&Layout::contiguous(&[4, 0, 3]).permute(&[2, 1, 0]).unwrap());
    }
}
