//! Bytes between host and device: staging for uploads, buffers for reading back.
//!
//! Both are bounded and reused: after a few rounds a steady loop creates no buffer here. This
//! room knows the driver and nothing of tensors; the engine decides when a copy is encoded.
//! Further down than the host is the disk: `spill` keeps blocks of bytes in a file that ends with the
//! process, `state_file` in one that outlives it, and `model_file` reads those of others.

#[cfg(feature = "safetensors")]
mod model_file;
mod readback;
mod replace;
mod spill;
mod state_file;
#[cfg(test)]
pub(crate) mod tests;
mod unfinished;
mod upload;

use crate::driver::DriverError;
use crate::error::Error;

#[cfg(feature = "safetensors")]
pub(crate) use model_file::{
    Entry as ModelEntry, Fault as ModelFault, ModelDirectory, ModelReader, ModelWriter,
    Saved as SavedArray, ShownShape, can_load, device_type,
};
pub(crate) use readback::{LARGE_PIECE_BYTES, Piece, Readbacks, Reading, Sink};
pub(crate) use replace::FileOptions;
pub(crate) use spill::{SpillBlock, SpillOptions, SpillStore, SpillWriter};
pub(crate) use state_file::{Entry, StateReader, StateWriter};
pub(crate) use upload::{FEED_BYTES, Region, UPLOAD_LIMIT_BYTES, Uploads};

/// A name in an error: what would act upon a terminal is spelled out, what is long is cut.
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

/// A driver's refusal as the crate's error.
pub(crate) fn refusal(what: &'static str, error: DriverError) -> Error {
    match error {
        DriverError::Lost(reason) => Error::DeviceLost { reason },
        DriverError::OutOfMemory => Error::Driver {
            what,
            message: "out of memory".into(),
        },
        DriverError::OverBudget => Error::Driver {
            what,
            message: "the budget has no room for it".into(),
        },
        DriverError::Invalid(message) => Error::Driver { what, message },
        DriverError::Kernel(fault) => Error::Kernel(fault),
    }
}
