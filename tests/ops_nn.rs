//! Attention, convolution, pooling, the backward forms and einsum against plain Rust in f64: on the
//! default adapter, and on the simulation where that feature is on.

mod common;

#[path = "ops_nn/attention.rs"]
mod attention;
#[path = "ops_nn/backward.rs"]
mod backward;
#[path = "ops_nn/conv.rs"]
mod conv;
#[path = "ops_nn/einsum.rs"]
mod einsum;
#[path = "ops_reduce/model.rs"]
#[allow(
    dead_code,
    reason = "the model is that of the reductions, which use more of it"
)]
mod model;
#[path = "ops_nn/pool.rs"]
mod pool;
