//! Files with tensors: models of other programs, and our own state files.

mod model;
mod state;
