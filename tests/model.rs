//! Model files: what others have saved is loaded, uploaded or when it is used, and nothing that
//! contradicts itself ever is.

#[cfg(feature = "ndarray")]
#[path = "model/arrays.rs"]
mod arrays;
#[path = "model/attacks.rs"]
mod attacks;
#[path = "model/files.rs"]
mod files;
#[path = "model/loads.rs"]
mod loads;
#[path = "model/look.rs"]
mod look;
#[path = "model/mutations.rs"]
mod mutations;
#[path = "model/pressure.rs"]
mod pressure;
#[path = "model/quantized.rs"]
mod quantized;
#[path = "model/saves.rs"]
mod saves;
#[path = "model/values.rs"]
mod values;
