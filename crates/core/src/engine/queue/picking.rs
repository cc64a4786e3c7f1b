//! A launch that picks rows of a table that is not on the device, and the words that name the rows.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::engine::kernel::RowsNamed;
use crate::memory::Storage;
use crate::transfer::{Piece, Reading};

/// The most bytes of the words that name rows, because they wait in the host's memory.
pub(crate) const MOST_WORDS_BYTES: u64 = 64 << 10;

/// The words that name rows, for the launch that computes `result`.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) storage: Arc<Storage>,
    pub(crate) piece: Piece,
    pub(crate) result: Weak<Storage>,
}

/// Rows of a table, and the result that gets them.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) table: Arc<Storage>,
    pub(crate) result: Arc<Storage>,
    pub(crate) rows: RowsNamed,
}

/// A launch that picks rows, identified by its result, and the words for which it waits.
#[derive(Debug)]
pub(crate) struct Picking {
    pub(crate) result: Weak<Storage>,
    pub(crate) words: Arc<Mutex<Vec<u8>>>,
    /// `None` if the words or the rows could not be read. Then the launch runs like any other.
    pub(crate) reading: Option<Arc<Reading>>,
}

impl RowsNamed {
    /// The distance from one word that names a row to the next.
    pub(crate) fn step(&self) -> i64 {
        i64::from(self.word_step as i32)
    }

    /// The words that name rows. `None` if they are too many to read.
    pub(crate) fn words(&self) -> Option<Piece> {
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
