//! The kernels' twins: the same work, naively, on the host.

pub(crate) mod argreduce;
pub(crate) mod attention;
pub(crate) mod binary;
pub(crate) mod concat;
pub(crate) mod conv;
pub(crate) mod copy;
pub(crate) mod elementwise;
pub(crate) mod fill;
pub(crate) mod gather;
pub(crate) mod index_select;
pub(crate) mod layer_norm;
pub(crate) mod loss;
pub(crate) mod mask;
pub(crate) mod matmul;
mod normalize;
pub(crate) mod pool;
pub(crate) mod probe;
pub(crate) mod random;
pub(crate) mod reduce;
pub(crate) mod rotary;
pub(crate) mod rows;
pub(crate) mod scan;
pub(crate) mod scatter;
pub(crate) mod select;
pub(crate) mod softmax;
pub(crate) mod sort;
pub(crate) mod unary;
