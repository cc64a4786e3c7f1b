//! Memory, with no adapter: the allocator against models, the engine's promises on the simulated
//! device, and random programs that it may fail, move and evict at any time.

mod alloc_model;
#[cfg(feature = "sim")]
mod common;
#[cfg(all(feature = "sim", feature = "snapshot"))]
mod engine;
#[cfg(feature = "sim")]
mod faults;
#[cfg(feature = "sim")]
mod pressure;
#[cfg(feature = "sim")]
mod random;
