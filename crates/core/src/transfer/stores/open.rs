//! An open store: its thread, its account, and the keys of its values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::block::{StoreBlock, StoreWriter};
use super::ledger::{Ledger, StoreUse};
use super::worker::{Call, Removal, Worker};
use super::{Key, MOST_VALUE_BYTES, StoreTier};
use crate::error::{Error, Result, StoreError, StoreFailure};
use crate::transfer::random;

/// No call of a store is waited for longer.
const MOST_TIMEOUT: Duration = Duration::from_secs(3600);

/// A store in use by an engine. Clones share it. It lives as long as a clone or a block lives.
#[derive(Clone, Debug)]
pub(crate) struct OpenStore(Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    worker: Worker,
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
        let ledger = Ledger::new(tier.most_bytes, timeout);
        OpenStore(Arc::new(Shared {
            worker: Worker::new(tier.name.clone(), tier.store.clone(), ledger),
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
        let until = shared.until();
        if let Err(failure) = shared.worker.reserve(len_bytes, until) {
            return refused(failure);
        }
        let parts = len_bytes.div_ceil(MOST_VALUE_BYTES);
        let number = shared.next_number.fetch_add(parts, Ordering::Relaxed);
        let first = Key {
            run: shared.run,
            number,
        };
        let block = StoreBlock::new(shared.clone(), first, len_bytes);
        Ok(StoreWriter::new(block))
    }

    /// Whether the store takes bytes now.
    pub(crate) fn takes_bytes(&self) -> bool {
        self.0.sizes_only || (self.0.worker).ledger(|ledger| ledger.refusal().is_none())
    }

    /// The bytes that further blocks may take; 0 while the store rests.
    pub(crate) fn left_bytes(&self) -> u64 {
        match self.takes_bytes() {
            true => self.0.worker.ledger(|ledger| ledger.left_bytes()),
            false => 0,
        }
    }

    /// What the store did so far.
    pub(crate) fn usage(&self) -> StoreUse {
        let worker = &self.0.worker;
        worker.ledger(|ledger| ledger.usage(worker.name()))
    }

    /// Sets the peak to the present level.
    pub(crate) fn reset_peak(&self) {
        self.0
            .worker
            .ledger(|ledger| ledger.used_bytes.reset_peak());
    }
}

impl Shared {
    /// The end of a call that begins now.
    pub(super) fn until(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Whether the store is asked for bytes now.
    pub(super) fn takes_reads(&self) -> bool {
        self.worker.ledger(|ledger| ledger.resting().is_none())
    }

    /// Queues a call, unless the store rests.
    pub(super) fn queue(&self, call: &Arc<Call>) -> Result<(), StoreFailure> {
        match self.worker.ledger(Ledger::resting) {
            Some(failure) => Err(failure),
            None => self.worker.queue(call),
        }
    }

    pub(super) fn wrote(&self, bytes: u64) {
        self.worker.ledger(|ledger| ledger.wrote(bytes));
    }

    pub(super) fn read(&self, bytes: u64) {
        self.worker.ledger(|ledger| ledger.read(bytes));
    }

    /// A call failed.
    pub(super) fn failed(&self, failure: &StoreFailure) {
        self.worker.ledger(|ledger| ledger.failed(failure));
    }

    pub(super) fn remove(&self, removal: Removal) {
        self.worker.remove(removal);
    }

    pub(super) fn error(
        &self,
        operation: &'static str,
        requested_bytes: u64,
        failure: StoreFailure,
    ) -> Error {
        let (used_bytes, rests) = self
            .worker
            .ledger(|ledger| (ledger.used_bytes.now, ledger.resting().is_some()));
        Error::Store(Arc::new(StoreError {
            store: self.worker.name().into(),
            operation,
            failure,
            requested_bytes,
            used_bytes,
            most_bytes: self.tier.most_bytes,
            rests,
        }))
    }
}
