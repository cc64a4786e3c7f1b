//! Gradients: of each operation against finite differences, and what the tape promises.

mod budgets;
mod check;
mod checkpoints;
mod composed;
mod custom;
mod edges;
mod elementwise;
mod every;
mod indices;
mod kept;
mod masks;
mod matmul;
mod networks;
mod optimum;
mod programs;
mod reduce;
mod roots;
mod rows;
mod saved;
mod tape;
