//! Joining and cutting tensors as NumPy does, by views and by `concat`.

use super::concat::concat_as;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::axis;
use lapidary_core::internal::MadeFor;
use lapidary_core::{Error, Result};

/// Most pieces of an axis with fewer elements. All others are empty.
const MOST_PIECES: usize = 1 << 16;

impl Tensor {
    /// Concatenates tensors side by side: along axis 1, or along axis 0 if the first one has fewer
    /// dimensions than two. Numbers count as tensors of one element.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(left: &Tensor, right: &Tensor) -> lapidary::Result<()> {
    /// let wide = Tensor::hstack(&[left, right])?; // [n, a] and [n, b] → [n, a + b]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`concat`](Tensor::concat).
    #[track_caller]
    pub fn hstack(tensors: &[&Tensor]) -> Result<Tensor> {
        let _method = MadeFor::method("hstack");
        let axis = tensors.first().map_or(0, |first| first.rank().min(2));
        joined("hstack", tensors, 1, axis.saturating_sub(1) as isize)
    }

    /// Concatenates tensors one below the other, along axis 0. Numbers and vectors count as
    /// matrices of one row.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(rows: &Tensor, row: &Tensor) -> lapidary::Result<()> {
    /// let longer = Tensor::vstack(&[rows, row])?; // [n, a] and [a] → [n + 1, a]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`concat`](Tensor::concat).
    #[track_caller]
    pub fn vstack(tensors: &[&Tensor]) -> Result<Tensor> {
        let _method = MadeFor::method("vstack");
        joined("vstack", tensors, 2, 0)
    }

    /// `count` views along `axis`, as PyTorch's `tensor_split`. Their sizes differ by at most 1,
    /// and the larger ones come first. Unlike [`chunk`](Tensor::chunk) there are always `count`;
    /// some may be empty.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let pieces = x.tensor_split(3, 0)?; // [7] → [3], [2], [2]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Axis`] if there is no such axis. [`Error::Shape`] if `count` is 0, or more than
    /// 65,536 and than the axis has elements.
    #[track_caller]
    pub fn tensor_split(&self, count: usize, axis: isize) -> Result<Vec<Tensor>> {
        const OPERATION: &str = "tensor_split";
        let size = self.shape()[self::axis(OPERATION, axis, self.rank())?];
        if count == 0 || count > size.max(MOST_PIECES) {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!("{size} elements in {count} pieces"),
            })
            .located();
        }
        let mut start = 0;
        let piece = |number: usize| {
            let len = size / count + usize::from(number < size % count);
            start += len;
            self.narrow(axis, start - len, len)
        };
        (0..count).map(piece).collect()
    }

    /// The views of `axis` before, between and after these indices, as PyTorch's `tensor_split` by
    /// indices. Negative indices count from the end, and those outside of the axis are clamped.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let pieces = x.tensor_split_at(&[1, -2], 0)?; // [7] → [1], [4], [2]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Axis`] if there is no such axis.
    #[track_caller]
    pub fn tensor_split_at(&self, indices: &[isize], axis: isize) -> Result<Vec<Tensor>> {
        self::axis("tensor_split_at", axis, self.rank())?;
        let starts = [None].into_iter().chain(indices.iter().copied().map(Some));
        let ends = indices.iter().copied().map(Some).chain([None]);
        starts
            .zip(ends)
            .map(|(start, end)| self.slice(axis, start, end, 1))
            .collect()
    }
}

/// Concatenates tensors of at least `rank` dimensions, at most two. Others get dimensions in front.
#[track_caller]
fn joined(
    operation: &'static str,
    tensors: &[&Tensor],
    rank: usize,
    axis: isize,
) -> Result<Tensor> {
    let views = tensors.iter().map(|tensor| {
        let mut view = (*tensor).clone();
        while view.rank() < rank {
            view = view.unsqueeze(0)?;
        }
        Ok(view)
    });
    let views = views.collect::<Result<Vec<Tensor>>>()?;
    concat_as(operation, &views.iter().collect::<Vec<_>>(), axis).called(operation)
}
