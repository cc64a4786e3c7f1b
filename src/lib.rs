//! A portable compute memory manager over wgpu.

pub mod alloc;
pub mod units;

#[cfg(feature = "gpu")]
mod driver;
#[cfg(feature = "gpu")]
mod dtype;
#[cfg(feature = "gpu")]
mod engine;
#[cfg(feature = "gpu")]
mod error;
#[cfg(feature = "gpu")]
mod memory;
#[cfg(feature = "gpu")]
mod ops;
#[cfg(feature = "gpu")]
mod tensor;
#[cfg(feature = "gpu")]
mod transfer;

#[cfg(feature = "gpu")]
pub use self::{
    driver::{AdapterKind, Caps},
    dtype::{DType, Element},
    error::{Error, KernelError, OutOfMemory, Result},
    memory::{Residency, Tag, TenantId},
    tensor::Tensor,
};
