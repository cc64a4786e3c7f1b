//! Other shapes for the same elements: views where strides can say it, else copies.

use crate::tensor::Tensor;
use crate::tensor::layout::{Dims, axis, axis_or_number};
use lapidary_core::{Error, Result};

impl Tensor {
    /// The elements, in row-major order, under another shape: a view if strides can say it, else
    /// a copy.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let rows = x.reshape(&[4, 6])?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the shape holds another number of elements.
    #[track_caller]
    pub fn reshape(&self, shape: &[usize]) -> Result<Tensor> {
        if let Some(layout) = self.layout.reshape(shape)? {
            return Ok(self.view(layout));
        }
        let copy = self.copy()?;
        let layout = copy.layout.reshape(shape)?;
        let layout = layout.expect("a row-major tensor takes any shape of its length");
        Ok(copy.view(layout))
    }

    /// All elements along one axis, in row-major order: a view if strides can say it, else a copy.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
    /// assert_eq!(x.flatten()?.shape(), [x.len()]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of making a tensor.
    #[track_caller]
    pub fn flatten(&self) -> Result<Tensor> {
        self.reshape(&[self.len()])
    }

    /// Axes `first` to `last`, both included, as one, in row-major order: a view if strides can
    /// say it, else a copy. Negative axes count from the last. A 0-d tensor becomes one element.
    ///
    /// ```
    /// # fn demo(image: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let features = image.flatten_axes(1, -1)?; // [batch, 3, 8, 8] becomes [batch, 192]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Axis`] for an axis that is not there, [`Error::Shape`] if `first` comes after
    /// `last`; those of making a tensor.
    #[track_caller]
    pub fn flatten_axes(&self, first: isize, last: isize) -> Result<Tensor> {
        const OPERATION: &str = "flatten_axes";
        let from = axis_or_number(OPERATION, first, self.rank())?;
        let to = axis_or_number(OPERATION, last, self.rank())?;
        if from > to {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!("axis {first} comes after axis {last} of {:?}", self.shape()),
            });
        }
        let Some(joined) = self.shape().get(from..=to) else {
            return self.reshape(&[1]);
        };
        let mut shape = Dims::from_slice(&self.shape()[..from]);
        shape.push(joined.iter().product());
        shape.extend_from_slice(&self.shape()[to + 1..]);
        self.reshape(&shape)
    }

    /// As [`reshape`](Tensor::reshape), with −1 for one size that the others leave no choice for.
    ///
    /// ```
    /// # fn demo(tokens: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let rows = tokens.reshape_infer(&[-1, 64])?; // [batch, length, 64] becomes [rows, 64]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] for a second −1, another negative size, and where no size fits or any
    /// does, because another is 0; those of making a tensor.
    #[track_caller]
    pub fn reshape_infer(&self, shape: &[isize]) -> Result<Tensor> {
        let sizes = inferred("reshape_infer", self.shape(), self.len(), shape)?;
        self.reshape(&sizes)
    }

    /// As [`unflatten`](Tensor::unflatten), with −1 for one size that the others leave no choice
    /// for.
    ///
    /// ```
    /// # fn demo(tokens: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let heads = tokens.unflatten_infer(-1, &[-1, 64])?; // [length, 512] becomes [length, 8, 64]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Axis`] for an axis that is not there, [`Error::Shape`] for a second −1, another
    /// negative size, and where no size fits or any does, because another is 0, and beyond 8
    /// dimensions.
    pub fn unflatten_infer(&self, along: isize, sizes: &[isize]) -> Result<Tensor> {
        const OPERATION: &str = "unflatten_infer";
        let dim = self.shape()[axis(OPERATION, along, self.rank())?];
        let sizes = inferred(OPERATION, &[dim], dim, sizes)?;
        self.unflatten(along, &sizes)
    }
}

/// These sizes of so many elements, with the one that is −1.
fn inferred(operation: &'static str, from: &[usize], len: usize, shape: &[isize]) -> Result<Dims> {
    let refuse = |reason: String| Error::Shape { operation, reason };
    let mut sizes = Dims::new();
    let mut inferred = None;
    for (at, &size) in shape.iter().enumerate() {
        match usize::try_from(size) {
            Ok(size) => sizes.push(size),
            Err(_) if size == -1 && inferred.is_none() => {
                inferred = Some(at);
                sizes.push(1);
            }
            Err(_) => return Err(refuse(format!("{size} at {at} of {shape:?} is no size"))),
        }
    }
    if let Some(at) = inferred {
        let others = sizes
            .iter()
            .try_fold(1, |len: usize, &size| len.checked_mul(size));
        let fits = others.filter(|&others| others > 0 && len.is_multiple_of(others));
        let others = fits.ok_or_else(|| {
            refuse(format!(
                "{len} elements of {from:?} say no size for −1 of {shape:?}"
            ))
        })?;
        sizes[at] = len / others;
    }
    Ok(sizes)
}
