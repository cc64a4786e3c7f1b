//! A browser has no thread that could read ahead of need.

use std::time::Duration;

use crate::engine::handle::Engine;
use crate::error::Result;
use crate::memory::Storage;

/// The part of the host's limit for them.
pub(crate) const MOST_BYTES: u64 = 0;

impl Engine {
    pub(crate) fn read_ahead(&self, _: &Storage) {}

    pub(crate) fn next_ahead(&self, _: &Storage, _: u64) -> Option<(Result<Vec<u8>>, Duration)> {
        None
    }

    pub(crate) fn end_read(&self, _: &Storage) {}

    pub(crate) fn give_up_reads(&self, _: u64) {}

    pub(crate) fn give_up_all_reads(&self) {}
}
