//! Attention, convolution, pooling, the backward forms and einsum against plain Rust in f64: on the
//! default adapter, and on the simulation where that feature is on.

mod attention;
mod backward;
mod conv;
mod einsum;
mod pool;
