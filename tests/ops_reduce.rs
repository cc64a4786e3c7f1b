//! Reductions, running sums, sorting, normalization, and what moves by indices, against plain Rust
//! in f64: on the default adapter, on the simulation where that feature is on, over types, shapes
//! and views.

mod arrange;
mod axes;
mod batch_norm;
mod in_place;
mod index;
mod indexed;
mod loss;
pub(crate) mod model;
mod moments;
mod order;
mod pick;
mod reduce;
mod rows;
mod scan;
mod scatter_reduce;
