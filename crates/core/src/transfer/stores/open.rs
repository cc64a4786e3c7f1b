//! A store in use by an engine: its thread, its account, and the keys of its values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::block::{StoreBlock, StoreWriter};
use super::ledger::{StoreLedger, StoreUse};
use super::store::{Key, MOST_VALUE_BYTES};
use super::tier::StoreTier;
use super::worker::Worker;
use crate::error::{Error, Result, StoreError, StoreFailure};
use crate::transfer::random;

/// No call of a store is waited for longer.
const MOST_TIMEOUT: Duration = Duration::from_secs(3600);

/// A store in use by an engine. Clones share it. It lives as long as a clone or a block lives.
#[derive(Clone, Debug)]
pub(crate) struct OpenStore(Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) worker: Worker,
    timeout: Duration,
    /// Whether blocks have only sizes, as in a dry run. Then the store is never called.
    pub(super) sizes_only: bool,
    run: u64,
    next_number: AtomicU64,
    tier: StoreTier,
}

impl OpenStore {
    /// Opens a tier of the app. Calls nothing yet.
    pub(crate) fn new(tier: StoreTier) -> OpenStore {
        OpenStore::open(tier, false)
    }

    /// A store with the same limit for a dry run.
    pub(crate) fn dry(&self) -> OpenStore {
        OpenStore::open(self.0.tier.clone(), true)
    }

    fn open(tier: StoreTier, sizes_only: bool) -> OpenStore {
        let timeout = tier.timeout.min(MOST_TIMEOUT);
        let ledger = StoreLedger::new(&tier.name, tier.most_bytes, timeout);
        OpenStore(Arc::new(Shared {
            worker: Worker::new(tier.store.clone(), ledger),
            timeout,
            sizes_only,
            run: random(),
            next_number: AtomicU64::new(0),
            tier,
        }))
    }

    /// Reserves room for a block of `len_bytes`. The writer fills the block.
    ///
    /// # Errors
    /// [`Error::Store`] if the store has no room, or rests after failures.
    pub(crate) fn begin(&self, len_bytes: u64) -> Result<StoreWriter> {
        let shared = &self.0;
        let refused = |failure| Err(shared.error("write", len_bytes, failure));
        if len_bytes > shared.tier.most_bytes {
            return refused(StoreFailure::Full);
        }
        if let Err(failure) = shared.worker.reserve(len_bytes, shared.until()) {
            return refused(failure);
        }
        let parts = len_bytes.div_ceil(MOST_VALUE_BYTES);
        let number = shared.next_number.fetch_add(parts, Ordering::Relaxed);
        let run = shared.run;
        let block = StoreBlock::new(shared.clone(), Key { run, number }, len_bytes);
        Ok(StoreWriter::new(block))
    }

    /// Whether the store takes bytes now.
    pub(crate) fn takes_bytes(&self) -> bool {
        let has_refused = || (self.0.worker).ledger(|ledger| ledger.refusal().is_some());
        self.0.sizes_only || !has_refused()
    }

    /// The bytes that further blocks may take; 0 while the store rests or was full at last.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.0.worker.ledger(StoreLedger::room_bytes)
    }

    /// What the store did so far.
    pub(crate) fn usage(&self) -> StoreUse {
        self.0.worker.ledger(StoreLedger::usage)
    }

    /// Sets the peak to the present level.
    pub(crate) fn reset_peak(&self) {
        (self.0.worker).ledger(|ledger| ledger.done.bytes.reset_peak());
    }
}

impl Shared {
    /// The end of a call that begins now.
    pub(super) fn until(&self) -> Instant {
        Instant::now() + self.timeout
    }

    pub(super) fn error(
        &self,
        operation: &'static str,
        requested_bytes: u64,
        failure: StoreFailure,
    ) -> Error {
        let (used_bytes, rests) = self
            .worker
            .ledger(|ledger| (ledger.done.bytes.now, ledger.resting().is_some()));
        Error::Store(Arc::new(StoreError {
            store: self.tier.name.clone(),
            operation,
            failure,
            requested_bytes,
            used_bytes,
            most_bytes: self.tier.most_bytes,
            rests,
        }))
    }
}
