//! Memory without an adapter: the allocator against models, the engine on the simulated device, and
//! random programs with failures, moves and evictions at any time.

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
#[cfg(feature = "sim")]
mod shares;
#[cfg(feature = "sim")]
mod stores;
