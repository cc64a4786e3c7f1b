//! Files that outlive the process, as bytes: states of programs, and weights of models.
//!
//! `state_file` writes and reads our own format, `model_file` those of other programs. Both replace
//! an old file by a whole new one (`replace`). They know nothing of devices. `blocks` says how
//! weights of few bits are stored; kernels read those, too.

mod blocks;
#[cfg(feature = "model-files")]
mod model_file;
mod replace;
mod state_file;
mod unfinished;

pub use blocks::BlockFormat;
#[cfg(feature = "model-files")]
pub use model_file::MetaValue;
#[cfg(feature = "model-files")]
pub(crate) use model_file::{
    ModelDirectory, ModelEntry, ModelFault, ModelReader, ModelWriter, SavedArray, ShownShape,
    Stored, StoredArray, can_load, device_type,
};
pub(crate) use replace::FileOptions;
pub(crate) use state_file::{StateEntry, StateReader, StateWriter};

/// A name for an error: terminal control characters are escaped, and a long name is shortened.
fn quoted(name: &str) -> String {
    const MOST_CHARS: usize = 100;
    match name.chars().nth(MOST_CHARS) {
        None => format!("{name:?}"),
        Some(_) => {
            let beginning: String = name.chars().take(MOST_CHARS).collect();
            format!("{beginning:?}…")
        }
    }
}
