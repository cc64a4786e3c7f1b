//! Padding by copies, without own kernels.

mod gradient;

use super::fill;
use super::scalar::Scalar;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::{Dims, checked};
use lapidary_core::internal::MadeFor;
use lapidary_core::{Error, Result};

/// The modes of [`Tensor::pad_with`]: those of PyTorch's `F.pad` except `constant`, which is
/// [`Tensor::pad`].
///
/// ```
/// # fn demo(row: &lapidary::Tensor) -> lapidary::Result<()> {
/// use lapidary::operations::PadMode;
///
/// // With two before and two after, `a b c d` is:
/// let mirrored = row.pad_with(&[(2, 2)], PadMode::Reflect)?; //   c b a b c d c b
/// let prolonged = row.pad_with(&[(2, 2)], PadMode::Replicate)?; // a a a b c d d d
/// let closed = row.pad_with(&[(2, 2)], PadMode::Circular)?; //    c d a b c d a b
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PadMode {
    /// Mirrors at the first and the last element, which are not repeated.
    Reflect,
    /// Repeats the first and the last element.
    Replicate,
    /// Continues from the other end, as if the axis were a circle.
    Circular,
}

impl Tensor {
    /// Pads the tensor with `value`. `widths` gives for every axis, outermost first, the number of
    /// elements before and after it.
    ///
    /// ```
    /// # fn demo(image: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let framed = image.pad(&[(1, 1), (2, 2)], 0.0)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] unless there is a pair for every axis, [`Error::DType`] if the tensor's
    /// type cannot hold `value`, and those of creating a tensor.
    #[track_caller]
    pub fn pad(&self, widths: &[(usize, usize)], value: impl Into<Scalar>) -> Result<Tensor> {
        let _method = MadeFor::method("pad");
        let value = value.into();
        if self.is_tracked() {
            return self.pad_recorded(widths, value);
        }
        let shape = self.wider("pad", widths)?;
        let result = fill::full(&self.engine, &shape, value, self.dtype).called("pad")?;
        let before: Dims = widths.iter().map(|&(before, _)| before).collect();
        result.inside(&before, self.shape())?.copy_(self)?;
        Ok(result)
    }

    /// Pads the tensor with its own elements, for every type. `widths` gives for every axis,
    /// outermost first, the number of elements before and after it. `mode` says which elements.
    ///
    /// ```
    /// # use lapidary::{Tensor, operations::PadMode};
    /// # fn demo(image: &Tensor) -> lapidary::Result<()> {
    /// let framed = image.pad_with(&[(0, 0), (1, 1), (2, 2)], PadMode::Reflect)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] unless there is a pair for every axis, and for a width that an axis cannot
    /// provide. [`Reflect`](PadMode::Reflect) takes at most one less than its size,
    /// [`Circular`](PadMode::Circular) at most its size, [`Replicate`](PadMode::Replicate) any
    /// number unless the axis is empty. Those of creating a tensor.
    #[track_caller]
    pub fn pad_with(&self, widths: &[(usize, usize)], mode: PadMode) -> Result<Tensor> {
        const OPERATION: &str = "pad_with";
        let _method = MadeFor::method(OPERATION);
        checked(&self.wider(OPERATION, widths)?, self.dtype).called(OPERATION)?;
        for (at, (&size, &(before, after))) in self.shape().iter().zip(widths).enumerate() {
            let most = match mode {
                PadMode::Reflect => size.saturating_sub(1),
                PadMode::Replicate if size > 0 => usize::MAX,
                PadMode::Replicate => 0,
                PadMode::Circular => size,
            };
            if before.max(after) > most {
                return Err(Error::Shape {
                    operation: OPERATION,
                    reason: format!(
                        "{before} before and {after} after axis {at} of {:?}: {mode:?} takes at \
                         most {most} from {size} elements",
                        self.shape()
                    ),
                })
                .located();
            }
        }
        let mut made = self.clone();
        for (at, &(before, after)) in widths.iter().enumerate() {
            let first = made.edge(at, before, mode, true)?;
            let last = made.edge(at, after, mode, false)?;
            let pieces = [first.as_ref(), Some(&made), last.as_ref()];
            let pieces: Vec<&Tensor> = pieces.into_iter().flatten().collect();
            if pieces.len() > 1 {
                made = Tensor::concat(&pieces, at as isize).called(OPERATION)?;
            }
        }
        made.apart_from(self).called(OPERATION)
    }

    /// The part of this shape, which begins after `before` elements of each axis.
    #[track_caller]
    fn inside(&self, before: &[usize], shape: &[usize]) -> Result<Tensor> {
        let mut part = self.clone();
        for (axis, (&before, &dim)) in before.iter().zip(shape).enumerate() {
            part = part.narrow(axis as isize, before, dim)?;
        }
        Ok(part)
    }

    /// The shape with these widths before and after each axis.
    #[track_caller]
    fn wider(&self, operation: &'static str, widths: &[(usize, usize)]) -> Result<Dims> {
        let old = &self.layout.shape;
        if widths.len() != old.len() {
            return Err(Error::Shape {
                operation,
                reason: format!("{} pairs for the axes of {old:?}", widths.len()),
            })
            .located();
        }
        let wider = |(&dim, &(before, after)): (&usize, &(usize, usize))| {
            dim.saturating_add(before).saturating_add(after)
        };
        Ok(old.iter().zip(widths).map(wider).collect())
    }

    /// The elements before an axis, or after it: a view of `count` elements, or `None` if it is 0.
    #[track_caller]
    fn edge(
        &self,
        at: usize,
        count: usize,
        mode: PadMode,
        is_before: bool,
    ) -> Result<Option<Tensor>> {
        if count == 0 {
            return Ok(None);
        }
        let (axis, size) = (at as isize, self.layout.shape[at]);
        let start = match (mode, is_before) {
            (PadMode::Reflect, true) => 1,
            (PadMode::Reflect, false) => size - 1 - count,
            (PadMode::Replicate, true) | (PadMode::Circular, false) => 0,
            (PadMode::Replicate, false) => size - 1,
            (PadMode::Circular, true) => size - count,
        };
        let edge = match mode {
            PadMode::Reflect => self.narrow(axis, start, count)?.flip(&[axis])?,
            PadMode::Circular => self.narrow(axis, start, count)?,
            PadMode::Replicate => {
                let mut shape = self.layout.shape.clone();
                shape[at] = count;
                self.narrow(axis, start, 1)?.broadcast_to(&shape)?
            }
        };
        Ok(Some(edge))
    }
}
