//! Where a product goes, and what it ends with.

use super::form::End;
use crate::tensor::Tensor;

/// Elements of C between its rows, and what they end with.
pub(super) struct Output<'a> {
    pub(super) c: &'a Tensor,
    pub(super) c_row: u32,
    /// Those of B's groups, or of C's columns.
    pub(super) scales: Option<Tensor>,
    pub(super) group_log2: u8,
    pub(super) bias: Option<Tensor>,
    pub(super) residual: Option<Tensor>,
    pub(super) end: End,
    /// What the end needs of the parameters.
    pub(super) more: [u32; 4],
}
