//! Reductions, running sums, sorting, normalization and indexing against plain Rust in f64, over
//! types, shapes and views. On the default adapter and on the simulation.

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
mod moments;
mod numbers;
mod order;
mod pick;
mod reduce;
mod rows;
mod scan;
mod scatter_reduce;
mod stacked;
