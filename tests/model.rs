//! Model files: what others have saved is loaded, uploaded or when it is used, and nothing that
//! contradicts itself ever is.

#[cfg(feature = "ndarray")]
mod arrays;
mod attacks;
mod files;
mod loads;
mod pressure;
mod quantized;
mod saves;
mod values;
