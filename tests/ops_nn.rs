//! Attention, convolution, pooling, the backward forms and einsum against plain Rust in f64. On the
//! default adapter and on the simulation.

mod attention;
mod backward;
mod conv;
mod conv_transpose;
mod einsum;
mod limits;
mod pool;
