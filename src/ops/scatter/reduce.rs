//! Folds elements at indices.

use super::settle::{How, Settle};
use crate::ops::operation::Takes;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::Result;
use lapidary_core::internal::MadeFor;

/// How [`Tensor::scatter_reduce`] folds elements with the same index: PyTorch's `sum`, `prod`,
/// `mean`, `amax` and `amin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScatterReduce {
    /// Integers wrap; for bools, whether any is true.
    Sum,
    /// Integers wrap; for bools, whether all are true.
    Prod,
    /// The sum, in 32 bits, divided by the number of elements. Integers are rounded down. Takes no
    /// bools.
    Mean,
    /// The largest; NaN wins.
    Max,
    /// The smallest; NaN wins.
    Min,
}

const OPERATION: &str = "scatter_reduce";

impl Tensor {
    /// A copy in which each element that `indices` names along `axis` is folded with those of `src`
    /// that name it, as PyTorch's `scatter_reduce`. Shapes and indices are as in
    /// [`scatter`](Tensor::scatter). With `include_self` the old element takes part; without it, it
    /// stays only if nothing names it.
    ///
    /// Elements with the same index are folded in their order along `axis`, in f32 for f16 and
    /// bf16. So the result is the same in every run. The time for an element grows with the number
    /// of those that name it.
    ///
    /// ```
    /// # use lapidary::{Tensor, operations::ScatterReduce};
    /// # fn demo(zeros: &Tensor, groups: &Tensor, x: &Tensor) -> lapidary::Result<()> {
    /// let highest = zeros.scatter_reduce(0, groups, x, ScatterReduce::Max, false)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`scatter`](Tensor::scatter). [`Error::DType`](crate::Error::DType) also for the
    /// mean of bools.
    #[track_caller]
    pub fn scatter_reduce(
        &self,
        axis: isize,
        indices: &Tensor,
        src: &Tensor,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> Result<Tensor> {
        let _method = MadeFor::method("scatter_reduce");
        let settle = self.settle_of(reduce, include_self)?;
        self.scattered(OPERATION, axis, indices, src, settle)
    }

    /// [`scatter_reduce`](Tensor::scatter_reduce) in place, as [`scatter_`](Tensor::scatter_).
    ///
    /// # Errors
    ///
    /// Those of [`scatter_reduce`](Tensor::scatter_reduce) and of [`add_`](Tensor::add_).
    #[track_caller]
    pub fn scatter_reduce_(
        &self,
        axis: isize,
        indices: &Tensor,
        src: &Tensor,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> Result<()> {
        let _method = MadeFor::method("scatter_reduce_");
        self.check_writable("scatter_reduce_")?;
        let settle = (self.settle_of(reduce, include_self)).called("scatter_reduce_")?;
        let written = self.scatter_within(OPERATION, axis, indices, src, settle);
        written.called("scatter_reduce_")
    }

    #[track_caller]
    fn settle_of(&self, reduce: ScatterReduce, include_self: bool) -> Result<Settle> {
        if reduce == ScatterReduce::Mean {
            Takes::Numbers.check(OPERATION, self.dtype)?;
        }
        let how = match reduce {
            ScatterReduce::Sum => How::Sum,
            ScatterReduce::Prod => How::Product,
            ScatterReduce::Mean => How::Mean,
            ScatterReduce::Max => How::Max,
            ScatterReduce::Min => How::Min,
        };
        Ok(Settle {
            how,
            is_alone: !include_self,
        })
    }
}
