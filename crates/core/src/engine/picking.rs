//! A launch that picks rows of a table which is not on the device, and the words that name them.

use std::sync::{Arc, Mutex, Weak};

use super::kernel::RowsNamed;
use crate::memory::Storage;
use crate::transfer::{Piece, Reading};

/// Bytes of the words that name rows: they wait in the host's memory.
pub(super) const MOST_WORDS_BYTES: u64 = 64 << 10;

/// The words that name rows, for the launch that makes `result`.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) storage: Arc<Storage>,
    pub(super) piece: Piece,
    pub(super) result: Weak<Storage>,
}

/// Rows of a table, and whose they are to be.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) table: Arc<Storage>,
    pub(super) result: Arc<Storage>,
    pub(super) rows: RowsNamed,
}

/// A launch that picks rows, by its result, and the words that it waits for.
#[derive(Debug)]
pub(super) struct Picking {
    pub(super) result: Weak<Storage>,
    pub(super) words: Arc<Mutex<Vec<u8>>>,
    /// `None` where the words or the rows could not be read: the launch runs like any other.
    pub(super) reading: Option<Arc<Reading>>,
}

impl RowsNamed {
    /// From one word that names a row to the next.
    pub(super) fn step(&self) -> i64 {
        i64::from(self.word_step as i32)
    }

    /// The words that name rows. `None` if they are too many to be read for this.
    pub(super) fn words(&self) -> Option<Piece> {
        let first = i64::from(self.first_word);
        let last = first + self.step() * (i64::from(self.count) - 1);
        let (low, high) = (first.min(last), first.max(last));
        let size_bytes = 4 * (high - low + 1) as u64;
        (low >= 0 && size_bytes <= MOST_WORDS_BYTES).then_some(Piece {
            offset_bytes: 4 * low as u64,
            size_bytes,
        })
    }
}
