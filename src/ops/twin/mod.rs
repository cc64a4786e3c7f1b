//! The kernels' twins: the same work, naively, on the host.

pub(crate) mod binary;
pub(crate) mod copy;
pub(crate) mod elementwise;
pub(crate) mod fill;
pub(crate) mod random;
pub(crate) mod select;
pub(crate) mod unary;
