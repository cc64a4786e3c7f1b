//! One call of each kind of operation against the values that PyTorch gives: on the default
//! adapter, and on the simulation where that feature is on.
//!
//! `tests/data/torch/values.py` asks PyTorch and writes a file for each group of cases. A new case
//! takes a line there, a call in the group's table here, and a run of that script.

mod cases;
mod folds;
mod indexing;
mod layers;
mod losses;
mod reductions;
mod shapes;
