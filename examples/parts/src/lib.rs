//! Parts that several examples share: a curve of losses for the terminal, and the sentences of the
//! documentation of a program's dependencies.

mod curve;
pub mod packages;
pub mod sentences;

pub use curve::curve;
