//! A sequence: a table of pages.

use std::fmt;
use std::sync::Arc;

use super::cache::{Inner, Page};
use lapidary_core::{Error, Result};

/// The tokens of a conversation, as their keys and values in a [`KvCache`](super::KvCache).
/// Dropping it frees the pages that no other sequence shares.
pub struct Sequence {
    pub(super) cache: Arc<Inner>,
    name: String,
    pub(super) pages: Vec<Arc<Page>>,
    pub(super) len: usize,
}

impl Sequence {
    pub(super) fn new(cache: Arc<Inner>, name: &str) -> Sequence {
        Sequence {
            cache,
            name: name.to_owned(),
            pages: Vec::new(),
            len: 0,
        }
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no tokens.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bytes of its pages, wherever they are. Shared pages count for each sequence.
    pub fn bytes(&self) -> u64 {
        self.pages.len() as u64 * self.cache.options.page_bytes()
    }

    /// Keeps the first `len` tokens, and frees the pages after them.
    ///
    /// # Errors
    /// [`Error::Shape`] if it has fewer tokens. It stays as it is then.
    pub fn truncate(&mut self, len: usize) -> Result<()> {
        if len > self.len {
            return Err(Error::Shape {
                operation: "truncate",
                reason: format!(
                    "{len} tokens of the sequence `{}`, which has {}: give at most as many",
                    self.name, self.len
                ),
            });
        }
        self.pages.truncate(self.cache.pages(len));
        self.len = len;
        Ok(())
    }

    /// Another sequence with the same tokens. Both share the pages, which count under the name of
    /// the first one. A step of one of them copies a page before it writes to it.
    pub fn fork(&self, name: &str) -> Sequence {
        Sequence {
            cache: self.cache.clone(),
            name: name.to_owned(),
            pages: self.pages.clone(),
            len: self.len,
        }
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequence")
            .field("name", &self.name)
            .field("len", &self.len)
            .field("pages", &self.pages.len())
            .finish_non_exhaustive()
    }
}
