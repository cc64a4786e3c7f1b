//! Reductions, running sums, sorting, normalization, and what moves by indices, against plain Rust
//! in f64: on the default adapter, on the simulation where that feature is on, over types, shapes
//! and views.

mod common;

#[path = "ops_reduce/arrange.rs"]
mod arrange;
#[path = "ops_reduce/axes.rs"]
mod axes;
#[path = "ops_reduce/batch_norm.rs"]
mod batch_norm;
#[path = "ops_reduce/in_place.rs"]
mod in_place;
#[path = "ops_reduce/index.rs"]
mod index;
#[path = "ops_reduce/indexed.rs"]
mod indexed;
#[path = "ops_reduce/loss.rs"]
mod loss;
#[path = "ops_reduce/model.rs"]
mod model;
#[path = "ops_reduce/moments.rs"]
mod moments;
#[path = "ops_reduce/order.rs"]
mod order;
#[path = "ops_reduce/pick.rs"]
mod pick;
#[path = "ops_reduce/reduce.rs"]
mod reduce;
#[path = "ops_reduce/rows.rs"]
mod rows;
#[path = "ops_reduce/scan.rs"]
mod scan;
#[path = "ops_reduce/scatter_reduce.rs"]
mod scatter_reduce;
