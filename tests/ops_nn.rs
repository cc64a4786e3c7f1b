//! Attention, convolution, pooling, the backward forms and einsum against plain Rust in f64. On the
//! default adapter, and on the simulation if that feature is on.

mod attention;
mod backward;
mod conv;
mod einsum;
mod pool;
