//! Writes the elements of one tensor where a mask is true in another, without own kernels.

use super::operation::{Takes, same_dtype};
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::{Dims, broadcast_shapes};
use lapidary_core::internal::MadeFor;
use lapidary_core::{Error, Result};

const OPERATION: &str = "masked_scatter";

impl Tensor {
    /// The elements of `source`, one after the other in row-major order, where `mask`, a bool
    /// tensor, is true, else those of `self`. For every type. The shapes of mask and `self`
    /// broadcast, and `source` may have any shape.
    ///
    /// It does not wait for the device, which thus cannot report a `source` with too few elements:
    /// where they have run out, those of `self` stay.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(x: &Tensor, mask: &Tensor, values: &Tensor) -> lapidary::Result<()> {
    /// let changed = x.masked_scatter(mask, values)?; // x[mask] = values
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] if the mask holds no bools, or if the types differ. [`Error::Shape`] if the
    /// shapes do not broadcast. [`Error::Foreign`]. [`Error::NeverFits`] if the operands are too
    /// large.
    #[track_caller]
    pub fn masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
        let _method = MadeFor::method("masked_scatter");
        let shape = self.check_masked_scatter(mask, source)?;
        let mask = mask.broadcast_to(&shape)?;
        // Before the first one the place is past any source.
        let places = mask.flatten()?.cumsum(0)?.sub(1)?;
        let source = source.flatten()?;
        let values = source.index_select(0, &places)?.reshape(&shape)?;
        let is_there = places.lt(source.len() as u32)?.reshape(&shape)?;
        let is_replaced = mask.logical_and(&is_there)?;
        is_replaced.where_(&values, &self.broadcast_to(&shape)?)
    }

    /// [`masked_scatter`](Tensor::masked_scatter) in place. The mask broadcasts to the shape of
    /// `self`.
    ///
    /// # Errors
    ///
    /// Those of [`masked_scatter`](Tensor::masked_scatter) and of [`add_`](Tensor::add_).
    #[track_caller]
    pub fn masked_scatter_(&self, mask: &Tensor, source: &Tensor) -> Result<()> {
        let _method = MadeFor::method("masked_scatter_");
        const IN_PLACE: &str = "masked_scatter_";
        self.check_writable(IN_PLACE)?;
        let shape = self.check_masked_scatter(mask, source);
        if shape.called(IN_PLACE)? != self.layout.shape {
            return Err(Error::Shape {
                operation: IN_PLACE,
                reason: format!("a mask of shape {:?} for {:?}", mask.shape(), self.shape()),
            })
            .located();
        }
        if self.records_write(&[source]) {
            let made = (self.elements_before(IN_PLACE)?).masked_scatter(mask, source);
            let made = made.called(IN_PLACE)?;
            return self.assign(IN_PLACE, &made);
        }
        self.copy_(&self.masked_scatter(mask, source).called(IN_PLACE)?)
    }

    /// The shape of the result.
    #[track_caller]
    fn check_masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Result<Dims> {
        self.same_engine(OPERATION, mask)?;
        self.same_engine(OPERATION, source)?;
        Takes::Bools.check(OPERATION, mask.dtype)?;
        same_dtype(OPERATION, self.dtype, source.dtype)?;
        broadcast_shapes(OPERATION, self.shape(), mask.shape())
    }
}
