//! Bytes between host and device: staging for uploads, buffers for reading back, the spill file,
//! and stores of the app.
//!
//! Staging and read-back buffers are bounded and reused: after a few rounds a steady loop creates
//! no buffer here. This module knows the driver and no tensors; the engine decides when a copy is
//! encoded. `spill` keeps blocks of bytes in a file that ends with the process; `stores` keeps them
//! wherever the app wants.

mod readback;
mod spill;
mod staging;
mod stores;

use crate::driver::DriverError;
use crate::error::Error;

pub(crate) use readback::{LARGE_PIECE_BYTES, Piece, Readbacks, Reading, ReadingGuard, Sink};
pub(crate) use spill::{SpillBlock, SpillOptions, SpillStore, SpillWriter};
pub use spill::{SpillFile, random};
pub(crate) use staging::{FEED_BYTES, Region, UPLOAD_LIMIT_BYTES, Uploads};
#[cfg(feature = "redis")]
pub use stores::RedisStore;
pub use stores::{Key, MOST_VALUE_BYTES, Store, StoreTier, StoreUse};
pub(crate) use stores::{MOST_STORES, OpenStore, StoreBlock, StoreReader, StoreWriter};

/// Converts a refusal of the driver into the error of the crate.
pub(crate) fn refusal(what: &'static str, error: DriverError) -> Error {
    match error {
        DriverError::Lost(reason) => Error::DeviceLost { reason },
        DriverError::OutOfMemory => Error::driver(what, "out of memory"),
        DriverError::OverBudget => Error::driver(what, "the budget has no room for it"),
        DriverError::Invalid(message) => Error::driver(what, message),
        #[cfg(any(test, feature = "sim"))]
        DriverError::Kernel(fault) => Error::Kernel(fault),
    }
}
