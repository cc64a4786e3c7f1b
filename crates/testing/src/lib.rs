//! Shared code of our crates' tests. This crate is not published.

pub mod killed;
pub mod model_file;
mod translate;

pub use naga;
pub use translate::{translate, translate_beyond_fxc};
