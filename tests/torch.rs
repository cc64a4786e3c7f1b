//! One call of each kind of operation against the values that PyTorch gives: on the default
//! adapter, and on the simulation where that feature is on.
//!
//! `tests/data/torch/values.py` asks PyTorch and writes a file for each group of cases. A new case
//! takes a line there, a call in the group's table here, and a run of that script.

#[path = "torch/cases.rs"]
mod cases;
#[path = "torch/folds.rs"]
mod folds;
#[path = "torch/indexing.rs"]
mod indexing;
#[path = "torch/layers.rs"]
mod layers;
#[path = "torch/losses.rs"]
mod losses;
#[path = "common/operands.rs"]
#[allow(dead_code, reason = "operands come from files here")]
mod operands;
#[path = "common/operations/mod.rs"]
mod operations;
#[path = "torch/reductions.rs"]
mod reductions;
#[path = "torch/shapes.rs"]
mod shapes;
