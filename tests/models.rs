//! Files with tensors: models that others have saved, and states of our own.

#[cfg(all(feature = "sim", feature = "safetensors"))]
mod model;
#[cfg(feature = "sim")]
mod state;
