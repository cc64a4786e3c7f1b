//! Matrices made of vectors.

use super::fill;
use super::operation::{Takes, same_dtype};
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::history::grads;
use crate::tensor::layout::checked;
use lapidary_core::internal::MadeFor;
use lapidary_core::{Error, Result};

impl Tensor {
    /// The matrix with the vector `self` on a diagonal and zeros elsewhere, for every type. Or a
    /// copy of a diagonal of the matrix `self`. An `offset` above 0 means a diagonal that many
    /// columns to the right, one below 0 that many rows down.
    ///
    /// ```
    /// # fn demo(scales: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let matrix = scales.diag(0)?; // [n] → [n, n]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] unless there are one or two dimensions; those of creating a tensor.
    #[track_caller]
    pub fn diag(&self, offset: isize) -> Result<Tensor> {
        const OPERATION: &str = "diag";
        let _method = MadeFor::method(OPERATION);
        let len = match self.shape() {
            [len] => *len,
            [_, _] => return self.diagonal(offset, 0, 1)?.copy().called(OPERATION),
            shape => {
                return Err(Error::Shape {
                    operation: OPERATION,
                    reason: format!("{shape:?} is neither a vector nor a matrix"),
                })
                .located();
            }
        };
        if self.is_tracked() {
            let y = self.untracked().diag(offset)?;
            return Ok(y.recorded_as(
                OPERATION,
                &[self],
                &[],
                move |b| grads![b; b.grad.diagonal(offset, 0, 1)?.contiguous()?],
            ));
        }
        let side = len.saturating_add(offset.unsigned_abs());
        checked(&[side, side], self.dtype).called(OPERATION)?;
        let zero = fill::zero_of(self.dtype);
        let matrix = fill::full(&self.engine, &[side, side], zero, self.dtype).called(OPERATION)?;
        matrix.diagonal(offset, 0, 1)?.copy_(self)?;
        Ok(matrix)
    }

    /// The product of each element of the vector `self` with each of the vector `other`, for all
    /// numbers: a matrix with a row for each element of `self`.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(a: &Tensor, b: &Tensor) -> lapidary::Result<()> {
    /// let products = a.outer(b)?; // [n] and [m] → [n, m]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] unless both have one dimension; [`Error::DType`] for bools and for types
    /// that differ; [`Error::Foreign`] for a tensor of another `Gpu`.
    #[track_caller]
    pub fn outer(&self, other: &Tensor) -> Result<Tensor> {
        const OPERATION: &str = "outer";
        let _method = MadeFor::method(OPERATION);
        self.same_engine(OPERATION, other)?;
        Takes::Numbers.check(OPERATION, self.dtype)?;
        same_dtype(OPERATION, self.dtype, other.dtype)?;
        if [self, other].iter().any(|vector| vector.rank() != 1) {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!(
                    "{:?} and {:?} are not two vectors",
                    self.shape(),
                    other.shape()
                ),
            })
            .located();
        }
        (self.unsqueeze(1)?.mul(&other.unsqueeze(0)?)).called(OPERATION)
    }
}
