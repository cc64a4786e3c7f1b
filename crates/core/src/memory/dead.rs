//! What storages report without the engine's lock: that they were dropped, how many bytes still
//! have no place, and whether any is saved for backward. The next execution pass frees what dropped
//! storages held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::share::ShareId;
use crate::alloc::BlockId;

/// Something that was dropped and left a resource to free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dead {
    /// The storage of this slot.
    Slot(u32),
    /// The custom kernel of this id.
    Kernel(u64),
    /// The fused kernel of this id.
    Fused(u64),
    /// The rematerializer of this number.
    Rematerializer(u64),
    /// The share of this number.
    Share(ShareId),
    /// The watermark of this number.
    Watermark(u64),
    /// A block of the heap in the host's memory.
    HeapBlock(HeapPart),
}

/// A part of the heap, which a block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeapPart {
    pub(super) block: BlockId,
    /// The number of the storage whose bytes it has.
    pub(super) storage: u64,
    pub(super) size_bytes: u64,
    /// The device that the block was made for, by its number.
    pub(super) epoch: u64,
}

/// The dead list of one engine. Its lock is a leaf, held for one push or one swap. So any thread
/// may drop a tensor anywhere: in a callback, or after the engine itself is dropped.
#[derive(Debug, Default)]
pub struct DeadList {
    waiting: Mutex<Vec<Dead>>,
    /// Is the list non-empty? Written with the lock held. Passes read it without the lock.
    has_any: AtomicBool,
    pub(super) pending: Pending,
    /// Has a forward or a backward been recorded since the flag was last taken?
    has_saved: AtomicBool,
    /// The storages that are saved for a backward now.
    saved: AtomicUsize,
}

/// Bytes of storages without a place: totals added and removed. Any thread makes and drops storages
/// at any time, so each change is one atomic addition without a lock.
#[derive(Debug, Default)]
pub(super) struct Pending {
    up_bytes: AtomicU64,
    down_bytes: AtomicU64,
}

impl Pending {
    /// A storage has no place: it is new, or it lost its place.
    #[inline]
    pub(super) fn came(&self, bytes: u64) {
        self.up_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A storage got a place, or was dropped.
    #[inline]
    pub(super) fn went(&self, bytes: u64) {
        // `Release`: a thread that sees this removal also sees the addition before it.
        self.down_bytes.fetch_add(bytes, Ordering::Release);
    }
}

impl DeadList {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn push(&self, dead: Dead) {
        let mut waiting = self.waiting.lock();
        waiting.push(dead);
        self.has_any.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Swaps the list with an empty one. The order is that of the drops.
    pub(super) fn swap(&self, empty: &mut Vec<Dead>) {
        debug_assert!(empty.is_empty());
        let mut waiting = self.waiting.lock();
        std::mem::swap(&mut *waiting, empty);
        self.has_any.store(false, Ordering::Release);
    }

    /// Bytes of storages without a place: all that were added and all that were removed so far.
    #[inline]
    pub(crate) fn pending_bytes(&self) -> (u64, u64) {
        let down_bytes = self.pending.down_bytes.load(Ordering::Acquire);
        (self.pending.up_bytes.load(Ordering::Relaxed), down_bytes)
    }

    /// One more storage is saved for a backward.
    #[inline]
    pub(super) fn saved_one(&self) {
        self.saved.fetch_add(1, Ordering::Relaxed);
        self.has_saved.store(true, Ordering::Relaxed);
    }

    /// One storage less is saved for a backward.
    #[inline]
    pub(super) fn unsaved_one(&self) {
        self.saved.fetch_sub(1, Ordering::Relaxed);
        self.has_saved.store(true, Ordering::Relaxed);
    }

    /// Is a storage saved for a backward, or was one since [`forget_saved`](Self::forget_saved)?
    /// Then lineages are worth their cost. A backward that waits in the queue has saved nothing any
    /// more.
    #[inline]
    pub(crate) fn has_saved(&self) -> bool {
        self.has_saved.load(Ordering::Relaxed) || self.saved.load(Ordering::Relaxed) > 0
    }

    /// The commands that [`has_saved`](Self::has_saved) spoke of have run.
    pub(crate) fn forget_saved(&self) {
        self.has_saved.store(false, Ordering::Relaxed);
    }
}
