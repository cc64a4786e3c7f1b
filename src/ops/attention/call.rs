//! The arguments of a call, and their copies for the kernel.

use super::problem::{OPERATION, Shapes};
use crate::ops::normalize::check_float;
use crate::ops::operation::same_dtype;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::Dims;
use lapidary_core::{DType, Error, Result};

/// The arguments of a call.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) q: &'a Tensor,
    pub(super) k: &'a Tensor,
    pub(super) v: &'a Tensor,
    pub(super) mask: Option<&'a Tensor>,
    pub(super) is_causal: bool,
    /// The first query's position, if this is a part of a longer call.
    pub(super) first: usize,
    pub(super) scale: Option<f32>,
}

impl Call<'_> {
    /// Is the call recorded?
    pub(super) fn is_tracked(&self) -> bool {
        let operands = [Some(self.q), Some(self.k), Some(self.v), self.mask];
        operands.into_iter().flatten().any(Tensor::is_tracked)
    }

    /// Refuses operands of several devices, and types that do not match.
    #[track_caller]
    pub(super) fn check_types(&self) -> Result<()> {
        check_float(OPERATION, self.q)?;
        for other in [self.k, self.v] {
            self.q.same_engine(OPERATION, other)?;
            same_dtype(OPERATION, self.q.dtype, other.dtype)?;
        }
        let Some(mask) = self.mask else { return Ok(()) };
        self.q.same_engine(OPERATION, mask)?;
        match mask.dtype == DType::Bool || mask.dtype.is_float() {
            true => Ok(()),
            false => Err(Error::DType {
                operation: OPERATION,
                expected: "a mask of bool, f32, f16 or bf16".into(),
                got: mask.dtype,
                hint: "Cast it to bool",
                at: String::new(),
            })
            .located(),
        }
    }

    /// Copies the operands so that they have few batch dimensions.
    #[track_caller]
    pub(super) fn regular(&self, shapes: &Shapes) -> Result<Regular> {
        let outer = |tensor: &Tensor| {
            let rank = tensor.rank();
            let own = tensor.layout.shape[rank.saturating_sub(3)..]
                .iter()
                .copied();
            let missing = std::iter::repeat_n(1, 3_usize.saturating_sub(rank));
            let shape: Dims = shapes
                .outer
                .iter()
                .copied()
                .chain(missing)
                .chain(own)
                .collect();
            tensor.broadcast_to(&shape)?.contiguous()
        };
        Ok(Regular {
            q: outer(self.q)?,
            k: outer(self.k)?,
            v: outer(self.v)?,
            mask: self.mask.map(outer).transpose()?,
        })
    }
}

/// Copied operands of a call.
pub(super) struct Regular {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Option<Tensor>,
}

impl Regular {
    pub(super) fn call<'a>(&'a self, given: &Call<'_>) -> Call<'a> {
        Call {
            q: &self.q,
            k: &self.k,
            v: &self.v,
            mask: self.mask.as_ref(),
            is_causal: given.is_causal,
            first: given.first,
            scale: given.scale,
        }
    }
}
