//! Other shapes for the same elements: views if strides can express them, else copies.

use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::{Dims, axis, axis_or_number};
use lapidary_core::internal::MadeFor;
use lapidary_core::{Error, Result};

impl Tensor {
    /// The elements in row-major order under another shape: a view if strides can express it, else
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
        let _method = MadeFor::method("reshape");
        if let Some(layout) = self.layout.reshape(shape).called("reshape")? {
            return Ok(self.view(layout));
        }
        let copy = self.copy().called("reshape")?;
        let layout = copy.layout.reshape(shape)?;
        let layout = layout.expect("a row-major tensor takes any shape of its length");
        Ok(copy.view(layout))
    }

    /// All elements along one axis, in row-major order: a view if strides can express it, else a
    /// copy.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
    /// assert_eq!(x.flatten()?.shape(), [x.len()]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of creating a tensor.
    #[track_caller]
    pub fn flatten(&self) -> Result<Tensor> {
        let _method = MadeFor::method("flatten");
        self.reshape(&[self.len()]).called("flatten")
    }

    /// Joins axes `first` to `last`, both included, in row-major order: a view if strides can
    /// express it, else a copy. Negative axes count from the last. A 0-d tensor becomes one
    /// element.
    ///
    /// ```
    /// # fn demo(image: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let features = image.flatten_axes(1, -1)?; // [batch, 3, 8, 8] becomes [batch, 192]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Axis`] for an axis that does not exist, [`Error::Shape`] if `first` comes after
    /// `last`; those of creating a tensor.
    #[track_caller]
    pub fn flatten_axes(&self, first: isize, last: isize) -> Result<Tensor> {
        const OPERATION: &str = "flatten_axes";
        let _method = MadeFor::method(OPERATION);
        let from = axis_or_number(OPERATION, first, self.rank())?;
        let to = axis_or_number(OPERATION, last, self.rank())?;
        if from > to {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!("axis {first} comes after axis {last} of {:?}", self.shape()),
            })
            .located();
        }
        let Some(joined) = self.shape().get(from..=to) else {
            return self.reshape(&[1]);
        };
        let mut shape = Dims::from_slice(&self.shape()[..from]);
        shape.push(joined.iter().product());
        shape.extend_from_slice(&self.shape()[to + 1..]);
        self.reshape(&shape)
    }

    /// As [`reshape`](Tensor::reshape). One size may be −1, and is computed from the others.
    ///
    /// ```
    /// # fn demo(tokens: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let rows = tokens.reshape_infer(&[-1, 64])?; // [batch, length, 64] becomes [rows, 64]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] for a second −1 or another negative size, and if no size fits, or any size
    /// because another is 0. Those of creating a tensor.
    #[track_caller]
    pub fn reshape_infer(&self, shape: &[isize]) -> Result<Tensor> {
        let _method = MadeFor::method("reshape_infer");
        let sizes = inferred("reshape_infer", self.shape(), self.len(), shape).located()?;
        self.reshape(&sizes).called("reshape_infer")
    }

    /// As [`unflatten`](Tensor::unflatten). One size may be −1, and is computed from the others.
    ///
    /// ```
    /// # fn demo(tokens: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let heads = tokens.unflatten_infer(-1, &[-1, 64])?; // [length, 512] becomes [length, 8, 64]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Axis`] for an axis that does not exist. [`Error::Shape`] for a second −1 or another
    /// negative size, and for more than 8 dimensions. Also if no size fits, or any size because
    /// another is 0.
    #[track_caller]
    pub fn unflatten_infer(&self, along: isize, sizes: &[isize]) -> Result<Tensor> {
        const OPERATION: &str = "unflatten_infer";
        let _method = MadeFor::method(OPERATION);
        let dim = self.shape()[axis(OPERATION, along, self.rank())?];
        let sizes = inferred(OPERATION, &[dim], dim, sizes).located()?;
        self.unflatten(along, &sizes).called(OPERATION)
    }
}

/// The sizes for `len` elements, with −1 replaced.
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
            Err(_) => {
                return Err(refuse(format!("{size} at {at} of {shape:?} is not a size")));
            }
        }
    }
    if let Some(at) = inferred {
        let others = sizes
            .iter()
            .try_fold(1, |len: usize, &size| len.checked_mul(size));
        let fits = others.filter(|&others| others > 0 && len.is_multiple_of(others));
        let refused = || {
            refuse(format!(
                "{len} elements of {from:?} determine no size for −1 in {shape:?}"
            ))
        };
        sizes[at] = len / fits.ok_or_else(refused)?;
    }
    Ok(sizes)
}
