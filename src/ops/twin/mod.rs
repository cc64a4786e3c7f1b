//! The kernels' twins: the same work, naively, on the host.

pub(crate) mod argreduce;
pub(crate) mod concat;
pub(crate) mod index_select;
pub(crate) mod layer_norm;
mod normalize;
pub(crate) mod reduce;
pub(crate) mod rows;
pub(crate) mod softmax;
