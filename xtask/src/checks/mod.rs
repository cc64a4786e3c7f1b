//! The checks, each a file or a function in one.

pub(crate) mod adapters;
pub(crate) mod app;
pub(crate) mod chat;
pub(crate) mod dx12;
pub(crate) mod fuzz;
pub(crate) mod hlsl;
mod load;
pub(crate) mod programs;
pub(crate) mod reached;
pub(crate) mod serve;
pub(crate) mod shaders;
pub(crate) mod terminal;
