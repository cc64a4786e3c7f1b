//! The second operand: a tensor, and the scales of groups of its elements.

use crate::tensor::Tensor;
use lapidary_core::{DType, Result};

/// The scales of a matrix B that is contiguous along k.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Groups<'a> {
    /// `[n, ⌈k / group⌉]`, of floats.
    pub(in crate::ops) scales: &'a Tensor,
    /// The number of elements along k that share a scale, as a power of two: 3 to 12, that is 8 to
    /// 4096.
    pub(in crate::ops) log2: u8,
}

/// The second operand of a product.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Right<'a> {
    pub(super) tensor: &'a Tensor,
    /// Only with a single matrix, not with a batch.
    pub(super) groups: Option<Groups<'a>>,
}

impl<'a> From<&'a Tensor> for Right<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        let groups = None;
        Right { tensor, groups }
    }
}

impl<'a> Right<'a> {
    pub(in crate::ops) fn grouped(tensor: &'a Tensor, groups: Option<Groups<'a>>) -> Self {
        Right { tensor, groups }
    }

    pub(super) fn group_log2(self) -> u8 {
        self.groups.map_or(0, |groups| groups.log2)
    }

    /// The types that tiles are chosen by, for an `a` times this into a `c`. Elements with scales
    /// count as f32, because they are multiplied as f32.
    pub(super) fn dtypes(self, a: DType, c: DType) -> [DType; 3] {
        let b = match self.groups {
            Some(_) => DType::F32,
            None => self.tensor.dtype,
        };
        [a, b, c]
    }

    /// The scales of a slice along k, which must start where a group does.
    #[track_caller]
    pub(super) fn scales_of(self, start: usize, len: usize) -> Result<Option<Tensor>> {
        let Some(Groups { scales, log2 }) = self.groups else {
            return Ok(None);
        };
        let count = len.div_ceil(1 << log2);
        scales.narrow(1, start >> log2, count).map(Some)
    }
}
