//! Reductions, running sums, sorting, normalization and indexing, over types, shapes and views. On
//! the default adapter and on the simulation, against plain Rust in f64, or against the references,
//! which `tests/torch/rows.rs` compares with PyTorch.

mod arrange;
mod axes;
mod batch_norm;
mod counted;
mod far;
mod in_place;
mod index;
mod indexed;
mod loss;
pub(crate) mod model;
mod numbers;
mod order;
mod pick;
mod products;
pub(crate) mod reduce;
mod rows;
mod scan;
mod scatter_reduce;
mod stacked;
