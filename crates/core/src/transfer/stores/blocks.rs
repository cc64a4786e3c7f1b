//! What the engine knows of a store: blocks that are written and read.
//!
//! These are traits so that a program without stores contains no code for them.
//! [`StoreTier::new`](super::StoreTier::new) brings that code: the function
//! [`open`](super::open::open) in the tier.

use std::fmt;
use std::sync::Arc;

use super::ledger::StoreUse;
use crate::error::Result;

/// The functions of an [`OpenStore`](super::OpenStore).
pub(super) trait Blocks: fmt::Debug + Send + Sync {
    fn dry(&self) -> Arc<dyn Blocks>;
    fn begin(self: Arc<Self>, len_bytes: u64) -> Result<Box<dyn StoreWriter>>;
    fn takes_bytes(&self) -> bool;
    fn room_bytes(&self) -> u64;
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

    /// Whether the store has all bytes that came, or one write has failed.
    fn is_written(&self) -> bool;

    /// The block, once the store has all of its bytes. Waits for that.
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
