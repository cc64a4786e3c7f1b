//! The kernels' twins: the same work, naively, on the host.

pub(crate) mod matmul;
