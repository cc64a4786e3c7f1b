//! What the engine knows of a store: blocks that are written and read.
//!
//! These are traits so that a program without stores contains no code for them. [`StoreTier::new`]
//! brings that code: the function [`open`](super::open::open) in the tier.

use std::fmt;
use std::sync::Arc;

use super::{StoreTier, StoreUse};
use crate::error::Result;

/// A store in use by an engine. Clones share it. It lives as long as a clone or a block lives.
#[derive(Clone, Debug)]
pub(crate) struct OpenStore(Arc<dyn Blocks>);

impl OpenStore {
    /// Opens a tier of the app. Calls nothing yet.
    pub(crate) fn new(tier: StoreTier) -> OpenStore {
        let open = tier.open;
        OpenStore(open(tier, false))
    }

    /// A store with the same limit for a dry run.
    pub(crate) fn dry(&self) -> OpenStore {
        OpenStore(self.0.dry())
    }

    /// Reserves room for a block of `len_bytes`. The writer fills the block.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) if the store has no room, or rests after failures.
    pub(crate) fn begin(&self, len_bytes: u64) -> Result<Box<dyn StoreWriter>> {
        self.0.clone().begin(len_bytes)
    }

    /// Whether the store takes bytes now.
    pub(crate) fn takes_bytes(&self) -> bool {
        self.0.takes_bytes()
    }

    /// The bytes that further blocks may take; 0 while the store rests.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.0.left_bytes()
    }

    /// What the store did so far.
    pub(crate) fn usage(&self) -> StoreUse {
        self.0.usage()
    }

    /// Sets the peak to the present level.
    pub(crate) fn reset_peak(&self) {
        self.0.reset_peak();
    }
}

/// The functions of an [`OpenStore`].
pub(super) trait Blocks: fmt::Debug + Send + Sync {
    fn dry(&self) -> Arc<dyn Blocks>;
    fn begin(self: Arc<Self>, len_bytes: u64) -> Result<Box<dyn StoreWriter>>;
    fn takes_bytes(&self) -> bool;
    fn left_bytes(&self) -> u64;
    fn usage(&self) -> StoreUse;
    fn reset_peak(&self);
}

/// A block that is being filled. If it is dropped before `finish`, its values are removed.
pub(crate) trait StoreWriter: fmt::Debug + Send {
    /// Appends bytes. May wait for writes of earlier ones.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) when the store did not take the bytes, or when more
    /// come than were announced. Then the block cannot be finished.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// The block, once the store has all of its bytes.
    ///
    /// # Errors
    /// As [`write`](Self::write), and when fewer bytes came than were announced.
    fn finish(self: Box<Self>) -> Result<Arc<dyn StoreBlock>>;
}

/// A block in a store. Dropping it removes its values.
pub(crate) trait StoreBlock: fmt::Debug + Send + Sync {
    fn reader(&self) -> Box<dyn StoreReader + '_>;
}

/// Reads a block, in order or not.
pub(crate) trait StoreReader: Send {
    /// Reads the part with the byte at an offset, which is in the block. `most_bytes` says how many
    /// bytes the caller will want from there on.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) when the store does not give the bytes in time, or
    /// gives wrong ones.
    fn fetch(&mut self, offset_bytes: u64, most_bytes: u64) -> Result<()>;

    /// The bytes from an offset on, in the part that was fetched for it.
    fn fetched(&self, offset_bytes: u64) -> &[u8];
}
