//! One call of each kind of operation against PyTorch's values. On the default adapter and on the
//! simulation.
//!
//! `tests/data/torch/values.py` computes the values with PyTorch and writes a file for each group
//! of cases. To add a case, add a line there and a call in the group's table here, and run the
//! script.

mod cases;
mod elementwise;
mod folds;
mod gradients;
mod indexing;
mod layers;
mod losses;
mod networks;
mod reductions;
mod rows;
mod shapes;
mod slopes;
