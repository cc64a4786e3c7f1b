//! A store in use by an engine.

use std::sync::Arc;

use super::blocks::{Blocks, StoreWriter};
use super::ledger::StoreUse;
use super::tier::StoreTier;
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

    /// The bytes that further blocks may take; 0 while the store rests or was full at last.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.0.room_bytes()
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
