//! Gradients: of each operation against finite differences, and what the tape promises.

mod budgets;
mod check;
mod custom;
mod edges;
mod elementwise;
#[cfg(feature = "sim")]
mod every;
mod indices;
#[cfg(feature = "sim")]
mod kept;
mod masks;
mod matmul;
mod networks;
#[cfg(feature = "sim")]
mod optimum;
mod programs;
mod reduce;
mod rows;
mod saved;
mod tape;
