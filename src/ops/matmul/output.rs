//! The output of a product, and the operands of its epilogue.

use super::form::End;
use crate::tensor::Tensor;

/// A result, the elements between starts of its rows (`c_row`), and its epilogue.
pub(super) struct Output<'a> {
    pub(super) c: &'a Tensor,
    pub(super) c_row: u32,
    /// The scales of B's groups, or of C's columns.
    pub(super) scales: Option<Tensor>,
    pub(super) group_log2: u8,
    pub(super) bias: Option<Tensor>,
    pub(super) residual: Option<Tensor>,
    pub(super) end: End,
    /// The epilogue's part of the parameters.
    pub(super) more: [u32; 4],
}
