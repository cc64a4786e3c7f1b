//! Views that move, split or join axes. Like all views they share their elements.

use super::Tensor;
use crate::tensor::called::Called;
use lapidary_core::Result;

impl Tensor {
    /// A 0-d tensor as one element along an axis, for operations along an axis.
    pub(crate) fn as_axis(&self) -> Option<Tensor> {
        (self.rank() == 0).then(|| self.view(self.layout.with_one_axis()))
    }

    /// The operands of an operation along an axis, each with one axis. `None` if all have one, or
    /// if one has several.
    pub(crate) fn as_axes<const N: usize>(operands: [&Tensor; N]) -> Option<[Tensor; N]> {
        let is_number = operands.iter().any(|operand| operand.rank() == 0);
        let are_lines = operands.iter().all(|operand| operand.rank() <= 1);
        let with_axis = |operand: &Tensor| operand.as_axis().unwrap_or_else(|| operand.clone());
        (is_number && are_lines).then(|| operands.map(with_axis))
    }

    /// A tensor of one element as a 0-d tensor: the reverse of [`as_axis`](Self::as_axis).
    pub(crate) fn into_number(self) -> Tensor {
        let layout = self.layout.with_no_axis();
        Tensor { layout, ..self }
    }

    /// The result of operands that became [`as_axes`](Self::as_axes), for one of these: a number
    /// if that was one.
    pub(crate) fn with_rank_of(self, operand: &Tensor) -> Tensor {
        match operand.rank() {
            0 => self.into_number(),
            _ => self,
        }
    }

    /// Moves axis `from` to position `to` of the result; the others keep their order. Negative axes
    /// count from the last.
    ///
    /// ```
    /// # fn demo(image: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let planes = image.movedim(-1, 0)?; // [height, width, 3] becomes [3, height, width]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Axis`](crate::Error::Axis) for an axis that does not exist.
    #[track_caller]
    pub fn movedim(&self, from: isize, to: isize) -> Result<Tensor> {
        Ok(self.view(self.layout.movedim(from, to).called("movedim")?))
    }

    /// The diagonals of the matrices that axes `rows` and `columns` span. Both axes are removed,
    /// and the diagonal becomes the last axis. An `offset` above 0 starts that many columns to the
    /// right, one below 0 that many rows down. A diagonal outside the matrix is empty.
    ///
    /// ```
    /// # fn demo(matrix: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let trace = matrix.diagonal(0, 0, 1)?.sum_all()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Axis`](crate::Error::Axis) for an axis that does not exist, [`Shape`](crate::Error::Shape)
    /// if both are the same.
    #[track_caller]
    pub fn diagonal(&self, offset: isize, rows: isize, columns: isize) -> Result<Tensor> {
        Ok(self.view(
            self.layout
                .diagonal(offset, rows, columns)
                .called("diagonal")?,
        ))
    }

    /// The windows of `size` elements along `axis`, which start `step` elements apart. The axis
    /// then counts windows, and a new last axis runs through a window. Overlapping windows can be
    /// read, but not written.
    ///
    /// ```
    /// # fn demo(signal: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let moving_mean = signal.unfold(0, 5, 1)?.mean(&[-1])?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Axis`](crate::Error::Axis) for an axis that does not exist. [`Shape`](crate::Error::Shape)
    /// for a step of 0, for a window larger than the axis, and for more than 8 dimensions.
    #[track_caller]
    pub fn unfold(&self, axis: isize, size: usize, step: usize) -> Result<Tensor> {
        Ok(self.view(self.layout.unfold(axis, size, step).called("unfold")?))
    }

    /// Splits one axis into several of these sizes, in row-major order.
    ///
    /// ```
    /// # fn demo(tokens: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let heads = tokens.unflatten(-1, &[8, 64])?; // [length, 512] becomes [length, 8, 64]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Axis`](crate::Error::Axis) for an axis that does not exist. [`Shape`](crate::Error::Shape)
    /// unless the product of the sizes is the axis' size, and for more than 8 dimensions.
    #[track_caller]
    pub fn unflatten(&self, axis: isize, sizes: &[usize]) -> Result<Tensor> {
        Ok(self.view(self.layout.unflatten(axis, sizes).called("unflatten")?))
    }

    /// A view of every index along `axis`, without that axis.
    ///
    /// ```
    /// # fn demo(batch: &lapidary::Tensor) -> lapidary::Result<()> {
    /// for sample in batch.unbind(0)? {
    ///     println!("{}", sample.sum_all()?.item::<f32>()?);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Axis`](crate::Error::Axis) for an axis that does not exist.
    #[track_caller]
    pub fn unbind(&self, axis: isize) -> Result<Vec<Tensor>> {
        let at = super::layout::axis("unbind", axis, self.rank())?;
        (0..self.shape()[at])
            .map(|index| self.select(axis, index as isize))
            .collect()
    }
}
