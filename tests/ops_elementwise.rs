//! Elementwise operations, over types, shapes, views and special numbers, on the default adapter
//! and on one with small bindings. The rows of the tables of operations are compared with the
//! simulation, which computes by references. `tests/torch` compares both with PyTorch.

pub(crate) mod binary;
mod composed;
mod copy;
mod create;
mod in_place;
mod logic;
pub(crate) mod model;
mod rest;
mod ternary;
pub(crate) mod unary;
