//! Files with tensors: models of other programs, and our own state files.

#[cfg(all(feature = "sim", feature = "safetensors"))]
mod model;
#[cfg(feature = "sim")]
mod state;
