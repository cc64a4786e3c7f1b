//! A browser has no thread that could read ahead of need.

use std::time::Duration;

use crate::engine::handle::Engine;
use crate::error::Result;
use crate::memory::Storage;

/// The part of the host's limit for them.
pub(in crate::engine) const MOST_BYTES: u64 = 0;

/// The bytes of a piece.
pub(in crate::engine) struct Arrived {
    pub(in crate::engine) bytes: Result<Vec<u8>>,
    pub(in crate::engine) hidden: Duration,
}

impl Engine {
    pub(in crate::engine) fn read_ahead(&self, _: &Storage) {}

    pub(in crate::engine) fn next_ahead(&self, _: &Storage, _: u64) -> Option<Arrived> {
        None
    }

    pub(in crate::engine) fn end_read(&self, _: &Storage) {}

    pub(in crate::engine) fn give_up_reads(&self, _: u64) {}

    pub(in crate::engine) fn give_up_all_reads(&self) {}
}
