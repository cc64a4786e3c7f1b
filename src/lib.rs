//! A portable compute memory manager over wgpu.

pub mod alloc;
pub mod units;
