//! Restores in whose middle urgent commands run.
//!
//! The block of such a restore belongs to no storage, so no compaction moves it. A search for room
//! gives it up before it evicts anything.

use std::sync::Arc;

use crate::memory::{Memory, PendingRestore, Storage};

/// A restore in whose middle urgent commands run.
struct Suspended {
    storage: Arc<Storage>,
    /// The number of the last write to the storage.
    writes: u64,
    /// `None` once it was given up.
    pending_restore: Option<PendingRestore>,
}

/// The restores in whose middle urgent commands run. The last one is the first to go on.
#[derive(Default)]
pub(crate) struct SuspendedRestores(Vec<Suspended>);

impl SuspendedRestores {
    /// Suspends a restore until [`resume`](Self::resume). Its block counts for its share.
    pub(crate) fn suspend(
        &mut self,
        storage: &Arc<Storage>,
        pending_restore: PendingRestore,
        memory: &mut Memory,
    ) {
        memory.suspend_restore(storage.share(), &pending_restore);
        self.0.push(Suspended {
            storage: storage.clone(),
            writes: memory.slots.writes_to(storage),
            pending_restore: Some(pending_restore),
        });
    }

    /// Takes up the restore that was suspended last, if it is still wanted. `None` as well if its
    /// block was given up, or is of no use any more.
    pub(crate) fn resume(
        &mut self,
        is_wanted: bool,
        memory: &mut Memory,
    ) -> Option<PendingRestore> {
        let suspended = self.0.pop()?;
        let (storage, pending_restore) = (&suspended.storage, suspended.pending_restore?);
        let may_have_it = memory.resume_restore(storage.share(), &pending_restore);
        let is_same =
            memory.slots.is_evicted(storage) && memory.slots.writes_to(storage) == suspended.writes;
        if may_have_it && is_same && is_wanted {
            return Some(pending_restore);
        }
        memory.cancel_restore(pending_restore);
        None
    }

    /// Gives up all of them, and frees their blocks. Returns the bytes that became free.
    pub(crate) fn give_up(&mut self, memory: &mut Memory) -> u64 {
        let freed_before = memory.slabs.freed_bytes;
        for suspended in &mut self.0 {
            if let Some(pending_restore) = suspended.pending_restore.take() {
                memory.resume_restore(suspended.storage.share(), &pending_restore);
                memory.cancel_restore(pending_restore);
            }
        }
        memory.slabs.freed_bytes - freed_before
    }
}
