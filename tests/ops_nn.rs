//! Attention, convolution, pooling, the backward forms and einsum against plain Rust in f64: on the
//! default adapter, on the simulation where that feature is on.

#[path = "ops_nn/attention.rs"]
mod attention;
#[path = "ops_nn/backward.rs"]
mod backward;
#[path = "ops_nn/conv.rs"]
mod conv;
#[allow(
    dead_code,
    reason = "the model is that of the reductions, which use more of it"
)]
#[path = "ops_reduce/model.rs"]
mod model;
