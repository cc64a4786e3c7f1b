//! What the tests of lapidary's crates share. Nothing here is published.

pub mod killed;
pub mod model_file;
mod translate;

pub use naga;
pub use translate::{translate, translate_beyond_fxc};
