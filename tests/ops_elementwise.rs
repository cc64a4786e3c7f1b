//! Elementwise operations against plain Rust: on the default adapter, on one with small bindings
//! and on the simulation where that feature is on; over types, shapes, views and odd numbers.

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
