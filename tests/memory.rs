//! Memory without an adapter: the allocator against models, the engine on the simulated device, and
//! random programs with failures, moves and evictions at any time.

mod alloc_model;
mod common;
mod engine;
mod faults;
mod pressure;
mod programs;
mod random;
mod shares;
mod stores;
