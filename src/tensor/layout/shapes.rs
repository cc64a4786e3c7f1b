//! The rules of shapes: limits, broadcasting, and counting of axes.

use super::{Dims, MAX_ELEMENTS, MAX_RANK};
use crate::tensor::called::Called;
use lapidary_core::{DType, Error, Result};

/// Number of elements and bytes of a new tensor of this shape.
///
/// Dimensions of 0 are allowed, but the product of the others may not exceed [`MAX_ELEMENTS`]
/// either. So strides never overflow, also not in views of an empty tensor.
///
/// # Errors
///
/// `Shape` for more than [`MAX_RANK`] dimensions, `NeverFits` for more than [`MAX_ELEMENTS`]
/// elements, `Overflow` if the number of bytes exceeds 64 bits.
#[track_caller]
pub(crate) fn checked(shape: &[usize], dtype: DType) -> Result<(usize, u64)> {
    check_rank("shape", shape)?;
    let (mut extent, mut is_empty) = (1_u64, false);
    for &dim in shape {
        is_empty |= dim == 0;
        extent = extent.saturating_mul(dim.max(1) as u64);
    }
    if extent > MAX_ELEMENTS {
        return Err(too_many_elements(shape, dtype));
    }
    match is_empty {
        true => Ok((0, 0)),
        false => Ok((extent as usize, extent * dtype.size_bytes())),
    }
}

#[cold]
fn too_many_elements(shape: &[usize], dtype: DType) -> Error {
    match extent(shape).and_then(|extent| extent.checked_mul(dtype.size_bytes())) {
        Some(requested_bytes) => Error::NeverFits {
            what: "a tensor",
            requested_bytes,
            limit_bytes: MAX_ELEMENTS * dtype.size_bytes(),
            hint: "Kernels count elements in 32 bits: split it into several tensors",
            by: String::new(),
        },
        None => Error::Overflow {
            shape: shape.to_vec(),
            dtype,
        },
    }
}

/// The product of the dimensions that are not 0.
fn extent(shape: &[usize]) -> Option<u64> {
    shape
        .iter()
        .filter(|&&dim| dim != 0)
        .try_fold(1_u64, |product, &dim| product.checked_mul(dim as u64))
}

/// Refuses a view's shape that no tensor can have.
#[track_caller]
pub(super) fn check_view(operation: &'static str, shape: &[usize]) -> Result<()> {
    check_rank(operation, shape)?;
    match extent(shape) {
        Some(elements) if elements <= MAX_ELEMENTS => Ok(()),
        elements => Err(Error::NeverFits {
            what: "a view with elements of a byte",
            requested_bytes: elements.unwrap_or(u64::MAX),
            limit_bytes: MAX_ELEMENTS,
            hint: "Kernels count elements in 32 bits: work on slices",
            by: String::new(),
        }),
    }
}

#[inline]
#[track_caller]
fn check_rank(operation: &'static str, shape: &[usize]) -> Result<()> {
    match shape.len() <= MAX_RANK {
        true => Ok(()),
        false => Err(too_many_axes(operation, shape.len())).located(),
    }
}

#[cold]
fn too_many_axes(operation: &'static str, rank: usize) -> Error {
    Error::Shape {
        operation,
        reason: format!("a tensor has at most {MAX_RANK} dimensions, not {rank}"),
    }
}

/// Converts an axis to one from the front: −1 is the last of `rank` axes.
#[track_caller]
pub(crate) fn axis(operation: &'static str, axis: isize, rank: usize) -> Result<usize> {
    axis_among(operation, axis, rank, rank)
}

/// As [`axis`], but a 0-d tensor has an axis 0: it counts as one element along it.
#[track_caller]
pub(crate) fn axis_or_number(operation: &'static str, axis: isize, rank: usize) -> Result<usize> {
    axis_among(operation, axis, rank, rank.max(1))
}

/// The position of an axis among `axes`, for a tensor with `rank` dimensions.
#[track_caller]
fn axis_among(operation: &'static str, axis: isize, rank: usize, axes: usize) -> Result<usize> {
    position(axis, axes)
        .ok_or(Error::Axis {
            operation,
            axis,
            rank,
            at: String::new(),
        })
        .located()
}

/// Converts an index to one from the front: −1 is the last of `len`.
pub(super) fn position(index: isize, len: usize) -> Option<usize> {
    let from_front = if index < 0 {
        len.checked_sub(index.unsigned_abs())?
    } else {
        index.unsigned_abs()
    };
    (from_front < len).then_some(from_front)
}

/// The shape that two shapes broadcast to. They are aligned at their last dimensions. A dimension
/// of 1, or a missing one, takes the other's size.
#[track_caller]
pub(crate) fn broadcast_shapes(operation: &'static str, a: &[usize], b: &[usize]) -> Result<Dims> {
    if a == b {
        return Ok(Dims::from_slice(a));
    }
    let rank = a.len().max(b.len());
    let aligned = |shape: &[usize], axis: usize| match (axis + shape.len()).checked_sub(rank) {
        Some(own) => shape[own],
        None => 1,
    };
    (0..rank)
        .map(|axis| match (aligned(a, axis), aligned(b, axis)) {
            (a, b) if a == b => Ok(a),
            (1, b) => Ok(b),
            (a, 1) => Ok(a),
            (in_a, in_b) => Err(Error::Shape {
                operation,
                reason: format!(
                    "shapes {a:?} and {b:?} do not broadcast: dimension −{} is {in_a} in one and \
                     {in_b} in the other",
                    rank - axis
                ),
            }),
        })
        .collect::<Result<Dims>>()
        .located()
}
