//! Operations on tensors. There is one file for each family of kernels, named as its WGSL in
//! `shaders/`.

/// The reference kernel, if the simulated device is compiled in.
macro_rules! reference {
    ($run:path) => {{
        #[cfg(any(test, feature = "sim"))]
        const RUN: Option<fn(&mut lapidary_core::internal::ReferenceCall)> = Some($run);
        #[cfg(not(any(test, feature = "sim")))]
        const RUN: Option<fn(&mut lapidary_core::internal::ReferenceCall)> = None;
        RUN
    }};
}

mod argreduce;
mod arrange;
mod assign;
mod attention;
mod backward;
mod batch_norm;
mod binary;
mod bits;
mod blocks;
mod class_loss;
pub(crate) mod clip;
mod composed;
mod concat;
mod conv;
mod copy;
mod counted;
mod diag;
mod einsum;
pub(crate) mod elementwise;
pub(crate) mod families;
pub(crate) mod fill;
pub(crate) mod functions;
mod gather;
mod index;
mod index_select;
mod launch;
mod layer_norm;
mod layer_norm_backward;
mod like;
mod long;
mod loss;
mod mask;
mod masked_scatter;
mod matmul;
mod multinomial;
mod name;
mod normalize;
mod norms;
mod operation;
mod operators;
pub(crate) mod optim;
mod pad;
pub(crate) mod paged;
mod pool;
mod quantized;
pub(crate) mod random;
pub(crate) mod readers;
mod reduce;
mod reshape;
mod rotary;
mod rows;
mod scalar;
mod scan;
mod scatter;
mod scatter_into;
mod search_sorted;
mod select;
mod skeleton;
mod softmax;
mod sort;
mod stacked;
mod sum_to;
mod ternary;
mod text;
pub(crate) mod together;
mod unary;
mod weight;

#[cfg(test)]
#[path = "tests/check.rs"]
mod check;
#[cfg(test)]
mod tests;

pub use attention::Causal;
pub(crate) use binary::binary_table;
pub use binary::{BINARY_ROWS, BinaryRow};
pub use class_loss::ClassLoss;
pub use conv::{Conv, ConvTranspose};
pub use loss::Reduction;
pub use matmul::{Activation, Epilogue};
pub(crate) use name::name_of;
pub(crate) use operation::method_link;
pub use pad::PadMode;
pub use pool::Pool;
pub use quantized::Quantized;
#[cfg(feature = "model-files")]
pub(crate) use quantized::quantizing;
pub use scalar::{Scalar, TensorOrNumber};
pub use scatter::ScatterReduce;
pub(crate) use unary::unary_table;
pub use unary::{UNARY_ROWS, UnaryRow};
pub use weight::Weight;
