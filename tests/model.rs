//! Model files of other programs: they are loaded at once or on first use, and files with
//! contradictions are refused.

#[cfg(feature = "ndarray")]
mod arrays;
mod attacks;
mod files;
mod gguf;
mod loads;
mod pressure;
mod quantized;
mod saves;
mod served;
mod shards;
mod values;
