//! What storages tell their memory without its lock: that they are gone, and wait for the next
//! execution pass to free what they had, and how much has no place yet.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is gone, and has left something to be freed.
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
}

/// The dead of one engine. Its lock is a leaf that is held for one push, or while two lists change
/// places, so a tensor may be dropped anywhere: in a callback, on another thread, after the engine
/// itself.
#[derive(Debug, Default)]
pub struct DeadList {
    waiting: Mutex<Vec<Dead>>,
    /// Is there any? Changed with the lock held, and read without it by passes that have nothing to
    /// free.
    has_any: AtomicBool,
    pub(super) pending: Pending,
}

/// Bytes of storages without a place: those that came, and those that went. A storage is made and
/// dropped by any thread, at any time, so each is one addition, and no lock.
#[derive(Debug, Default)]
pub(super) struct Pending {
    up_bytes: AtomicU64,
    down_bytes: AtomicU64,
}

impl Pending {
    /// A storage has no place: it was just made, or lost the one that it had.
    #[inline]
    pub(super) fn came(&self, bytes: u64) {
        self.up_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// It got a place, or needs none any more.
    #[inline]
    pub(super) fn went(&self, bytes: u64) {
        // Whoever sees that it went sees that it came.
        self.down_bytes.fetch_add(bytes, Ordering::Release);
    }
}

impl DeadList {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn push(&self, dead: Dead) {
        let mut waiting = self.lock();
        waiting.push(dead);
        self.has_any.store(true, Ordering::Release);
    }

    pub(super) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Takes all there are, in the order in which they came, for a list that is empty.
    pub(super) fn swap(&self, empty: &mut Vec<Dead>) {
        debug_assert!(empty.is_empty());
        let mut waiting = self.lock();
        std::mem::swap(&mut *waiting, empty);
        self.has_any.store(false, Ordering::Release);
    }

    /// The bytes of storages without a place that came and went so far.
    #[inline]
    pub(crate) fn pending_bytes(&self) -> (u64, u64) {
        let down_bytes = self.pending.down_bytes.load(Ordering::Acquire);
        (self.pending.up_bytes.load(Ordering::Relaxed), down_bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Dead>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
