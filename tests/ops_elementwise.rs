//! Elementwise operations against plain Rust, over types, shapes, views and special numbers. On the
//! default adapter, on one with small bindings, and on the simulation.

mod binary;
mod composed;
mod copy;
mod create;
mod in_place;
mod logic;
mod model;
mod rest;
mod ternary;
mod unary;
