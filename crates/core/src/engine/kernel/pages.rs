//! Pages: storages of one size that a kernel reaches by a table.
//!
//! ```text
//!   pages   A   B   C   D   E       the storages, in the order of the table
//!   chains  └───┴───┘   └───┘       what the kernel takes in order
//!
//!   table   round │ – │ – │ – │ (0, 16) │ (1, 0) │ (0, 64) │ …     (window, offset in vec4s)
//! ```
//!
//! A device binds few buffers in one dispatch. The engine finds the places of the pages when it
//! encodes the launch, and shows them through few *windows*: ranges of slabs. It writes the table
//! of windows and offsets itself. If there are more windows than one dispatch can bind, the launch
//! becomes several dispatches, the *rounds*. A page that a round does not show is [`ABSENT`]. Each
//! chain is taken in order, over all rounds, and a few pages together are never apart. So a kernel
//! that goes on from the state in which it left a chain gives the same bits, wherever pages lie.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::memory::Storage;

/// The words of a table before its entries. The first one is the number of the round.
pub const TABLE_HEAD: usize = 4;

/// The window of a page that a round does not show.
pub const ABSENT: u32 = u32::MAX;

/// The pages of one or more launches. All launches of a step share them.
pub struct Pages {
    storages: Vec<Arc<Storage>>,
    /// For each chain, the index after its last page.
    ends: Vec<u32>,
    /// So many pages of a chain, from its start, are all in one round.
    together: usize,
    table_start: u32,
    /// The words that the engine wrote to the table last.
    written: Mutex<Vec<u32>>,
}

impl Pages {
    /// At least one page; all have one size, which is a multiple of 16 bytes. Each chain ends
    /// before the page with its number in `ends`. Each `together` pages from its start are in one
    /// round. The table begins at a word of its storage, a multiple of 4.
    pub fn new(
        storages: Vec<Arc<Storage>>,
        ends: Vec<u32>,
        together: usize,
        table_start: u32,
    ) -> Pages {
        debug_assert_eq!(ends.last().map(|&end| end as usize), Some(storages.len()));
        Pages {
            storages,
            ends,
            together: together.max(1),
            table_start,
            written: Mutex::default(),
        }
    }

    /// The words of the table of so many pages, a multiple of 4.
    pub fn table_words(pages: usize) -> usize {
        (TABLE_HEAD + 2 * pages).next_multiple_of(4)
    }

    /// The storages, in the order of the table.
    pub(crate) fn storages(&self) -> &[Arc<Storage>] {
        &self.storages
    }

    pub(crate) fn ends(&self) -> &[u32] {
        &self.ends
    }

    pub(crate) fn together(&self) -> usize {
        self.together
    }

    /// The offset of the table in its storage.
    pub(crate) fn table_start_bytes(&self) -> u64 {
        4 * u64::from(self.table_start)
    }

    /// Notes the words that the table is to have. Returns whether they must be written.
    pub(crate) fn note_table(&self, words: &[u32]) -> bool {
        let mut written = self.written.lock();
        let is_new = written[..] != *words;
        if is_new {
            written.clear();
            written.extend_from_slice(words);
        }
        is_new
    }

    /// Whether the storage is one of the pages.
    pub(crate) fn has(&self, storage: &Arc<Storage>) -> bool {
        self.storages.iter().any(|page| Arc::ptr_eq(page, storage))
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages", self.storages.len())
    }
}
