//! Elementwise operations against plain Rust: on the default adapter, on one with small bindings
//! and on the simulation where that feature is on; over types, shapes, views and odd numbers.

mod common;

#[path = "ops_elementwise/binary.rs"]
mod binary;
#[path = "ops_elementwise/composed.rs"]
mod composed;
#[path = "ops_elementwise/copy.rs"]
mod copy;
#[path = "ops_elementwise/create.rs"]
mod create;
#[path = "ops_elementwise/in_place.rs"]
mod in_place;
#[path = "ops_elementwise/logic.rs"]
mod logic;
#[path = "ops_elementwise/model.rs"]
mod model;
#[path = "ops_elementwise/rest.rs"]
mod rest;
#[path = "ops_elementwise/ternary.rs"]
mod ternary;
#[path = "ops_elementwise/unary.rs"]
mod unary;
