//! The second operand: a tensor, and what groups of its elements are multiplied by as they are
//! loaded.

use crate::tensor::Tensor;
use lapidary_core::{DType, Result};

/// The scales of a matrix B that is contiguous along k.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Groups<'a> {
    /// `[n, ⌈k / group⌉]`, of floats.
    pub(in crate::ops) scales: &'a Tensor,
    /// How many elements along k share one, as a power of two: 3 to 12, that is 8 to 4096.
    pub(in crate::ops) log2: u8,
}

/// The second operand of a product.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Right<'a> {
    pub(super) tensor: &'a Tensor,
    /// Only beside a matrix, not a batch of them.
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

    /// The types that a product of an `a` by this into a `c` computes with: elements with scales
    /// are f32 when they are multiplied.
    pub(super) fn dtypes(self, a: DType, c: DType) -> [DType; 3] {
        let b = match self.groups {
            Some(_) => DType::F32,
            None => self.tensor.dtype,
        };
        [a, b, c]
    }

    /// The scales of the groups that a slice along k has, which starts where one does.
    pub(super) fn scales_of(self, start: usize, len: usize) -> Result<Option<Tensor>> {
        let Some(Groups { scales, log2 }) = self.groups else {
            return Ok(None);
        };
        let count = len.div_ceil(1 << log2);
        scales.narrow(1, start >> log2, count).map(Some)
    }
}
