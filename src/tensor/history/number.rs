//! The numbers of nodes: they grow with every node of the process.

use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// The number that the next node will have.
pub(super) fn next() -> u64 {
    NEXT.load(Ordering::Relaxed)
}

/// Takes the next number.
pub(super) fn take() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}
