//! What the command at the head of the queue has already got while it still needs more.

use std::sync::{Arc, Weak};

use crate::memory::{HoleChoice, Storage};

/// The state of the command at the head of the queue.
#[derive(Debug, Default)]
pub(crate) struct Head {
    /// The storages that the engine has placed for the command.
    placed: Vec<Weak<Storage>>,
    /// The holes that the operands may use, until the command has run, found no room, or a
    /// placement took the permission.
    pub(crate) fit: HoleChoice,
    /// While slabs drain to a lower limit, the operands may be evicted like any other storage.
    pub(crate) may_evict_operands: bool,
}

impl Head {
    /// Resets the state after the command has run or was moved to another list.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.fit = HoleChoice::Best;
        if !self.placed.is_empty() {
            self.placed.clear();
        }
    }

    /// Takes the permission for one placement. Later ones get the best holes again.
    pub(crate) fn take_fit(&mut self) -> HoleChoice {
        std::mem::take(&mut self.fit)
    }

    /// Notes that the engine placed a storage for the command.
    pub(crate) fn note_placed(&mut self, storage: &Arc<Storage>) {
        self.placed.push(Arc::downgrade(storage));
    }

    /// Takes the storages that the engine placed for the command, if they still have holders.
    pub(crate) fn take_placed(&mut self) -> impl Iterator<Item = Arc<Storage>> {
        let placed = std::mem::take(&mut self.placed);
        placed.into_iter().filter_map(|one| one.upgrade())
    }
}
