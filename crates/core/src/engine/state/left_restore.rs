//! The restore that was left halfway last.
//!
//! Its block belongs to no storage, so no compaction moves it. A search for room gives it up before
//! it evicts anything. Then the next restore of that storage is not left: otherwise work of a
//! higher priority that often needs the memory would keep it from ever being restored.

use std::sync::{Arc, Weak};

use crate::engine::queue::Queue;
use crate::memory::{Memory, PendingRestore, ShareHandle, ShareId, Storage};

/// How far the block of a restore is filled.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Filled {
    pub(in crate::engine) bytes: u64,
    /// The refused submissions before the first of these bytes. If there are more now, some bytes
    /// may not have arrived.
    pub(in crate::engine) refused: u64,
}

/// A restore that was left halfway.
struct Left {
    storage: Weak<Storage>,
    share: ShareId,
    /// Keeps the share, for which the block counts.
    _share: Option<Arc<ShareHandle>>,
    /// The number of the last write to the storage.
    writes: u64,
    pending_restore: PendingRestore,
    filled: Filled,
}

/// At most one restore that was left, and the storages whose restores were given up.
#[derive(Default)]
pub(in crate::engine) struct LastLeft {
    left: Option<Left>,
    given_up: Vec<Weak<Storage>>,
}

fn is_of(one: &Weak<Storage>, storage: &Arc<Storage>) -> bool {
    std::ptr::eq(one.as_ptr(), Arc::as_ptr(storage))
}

impl LastLeft {
    /// Leaves a restore halfway.
    pub(in crate::engine) fn leave(
        &mut self,
        storage: &Arc<Storage>,
        pending_restore: PendingRestore,
        filled: Filled,
        memory: &mut Memory,
    ) {
        self.give_up(memory);
        memory.leave_restore(storage.share(), &pending_restore);
        self.left = Some(Left {
            storage: Arc::downgrade(storage),
            share: storage.share(),
            _share: storage.share_handle().cloned(),
            writes: memory.slots.writes_to(storage),
            pending_restore,
            filled,
        });
    }

    /// Takes up the restore of an evicted storage.
    pub(in crate::engine) fn take_up(
        &mut self,
        storage: &Arc<Storage>,
        memory: &mut Memory,
    ) -> Option<(PendingRestore, Filled)> {
        let left = self.left.take_if(|left| is_of(&left.storage, storage))?;
        let is_same = left.writes == memory.slots.writes_to(storage);
        if memory.take_up_restore(left.share, &left.pending_restore) && is_same {
            return Some((left.pending_restore, left.filled));
        }
        self.cancel(left, memory);
        None
    }

    /// Whether the restore of the storage may be left.
    pub(in crate::engine) fn may_leave(&self, storage: &Arc<Storage>) -> bool {
        !self.given_up.iter().any(|one| is_of(one, storage))
    }

    /// The storage is restored.
    pub(in crate::engine) fn ended(&mut self, storage: &Arc<Storage>) {
        self.given_up.retain(|one| !is_of(one, storage));
    }

    /// Gives up what was left, and frees its block. Returns the bytes that became free.
    pub(in crate::engine) fn give_up(&mut self, memory: &mut Memory) -> u64 {
        let Some(left) = self.left.take() else {
            return 0;
        };
        let freed_before = memory.slabs.freed_bytes();
        memory.take_up_restore(left.share, &left.pending_restore);
        self.cancel(left, memory);
        memory.slabs.freed_bytes() - freed_before
    }

    /// As [`give_up`](Self::give_up), if no command of the queue uses the storage.
    pub(in crate::engine) fn give_up_unused(&mut self, queue: &Queue, memory: &mut Memory) {
        let Some(left) = &self.left else { return };
        let is_used = queue.commands().any(|cmd| {
            let mut is_used = false;
            cmd.each_operand(&mut |operand, _| is_used |= is_of(&left.storage, operand));
            is_used
        });
        let storage = left.storage.upgrade().filter(|_| is_used);
        if storage.is_none_or(|storage| !memory.slots.is_evicted(&storage)) {
            self.give_up(memory);
        }
    }

    fn cancel(&mut self, left: Left, memory: &mut Memory) {
        memory.cancel_restore(left.pending_restore);
        self.given_up.retain(|one| one.strong_count() > 0);
        self.given_up.push(left.storage);
    }
}
