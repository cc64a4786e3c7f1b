//! What a loader tells of itself.

use std::fmt;
use std::time::Duration;

use lapidary_core::units::{Bytes, Level};

/// What a loader has done so far. `Display` prints it in one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoaderStats {
    /// Batches that were delivered, without those in place of which there was an error.
    pub delivered: u64,
    /// Errors that were delivered in place of a batch.
    pub failed: u64,
    /// Batches that were not ready when the loop asked for them. The first is usually one of them.
    /// Without threads, all are.
    pub waits: u64,
    /// Those of these waits at whose end the device had finished all submitted work. It waited for
    /// input then; in the other waits it still had work.
    pub device_waits: u64,
    /// The sum of all these waits, or 0 where there is no clock, in a browser.
    pub waited: Duration,
    /// Batches ahead: those that are being prepared or are ready, and were not delivered.
    pub batches_ahead: Level,
    /// Bytes that the batches ahead uploaded through their [`Uploader`](super::Uploader). `up` is
    /// the sum of all uploads.
    pub bytes_ahead: Level,
}

impl fmt::Display for LoaderStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uploaded = Bytes(self.bytes_ahead.up);
        write!(f, "{} batches, {} failed, ", self.delivered, self.failed)?;
        write!(f, "{uploaded} uploaded; the loop waited {}", self.waits)?;
        write!(f, " times for {:.1?}, the device ", self.waited)?;
        write!(f, "{} times; at most ", self.device_waits)?;
        let (batches, bytes) = (self.batches_ahead.peak, Bytes(self.bytes_ahead.peak));
        write!(f, "{batches} batches with {bytes} ahead")
    }
}
