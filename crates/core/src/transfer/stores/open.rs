//! An open store: its thread, its account, and the keys of its values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::block::{StoredBlock, Writer};
use super::blocks::{Blocks, StoreWriter};
use super::ledger::{StoreLedger, StoreUse};
use super::store::{Key, MOST_VALUE_BYTES};
use super::tier::StoreTier;
use super::worker::{Call, Worker};
use crate::error::{Error, Result, StoreError, StoreFailure};
use crate::transfer::random;

/// No call of a store is waited for longer.
const MOST_TIMEOUT: Duration = Duration::from_secs(3600);

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

/// Opens a tier of the app. Calls nothing yet.
pub(super) fn open(tier: StoreTier, sizes_only: bool) -> Arc<dyn Blocks> {
    let timeout = tier.timeout.min(MOST_TIMEOUT);
    let ledger = StoreLedger::new(&tier.name, tier.most_bytes, timeout);
    Arc::new(Shared {
        worker: Worker::new(tier.store.clone(), ledger),
        timeout,
        sizes_only,
        run: random(),
        next_number: AtomicU64::new(0),
        tier,
    })
}

impl Blocks for Shared {
    fn dry(&self) -> Arc<dyn Blocks> {
        open(self.tier.clone(), true)
    }

    fn begin(self: Arc<Self>, len_bytes: u64) -> Result<Box<dyn StoreWriter>> {
        let refused = |failure| Err(self.error("write", len_bytes, failure));
        if len_bytes > self.tier.most_bytes {
            return refused(StoreFailure::Full);
        }
        if let Err(failure) = self.worker.reserve(len_bytes, self.until()) {
            return refused(failure);
        }
        let parts = len_bytes.div_ceil(MOST_VALUE_BYTES);
        let number = self.next_number.fetch_add(parts, Ordering::Relaxed);
        let first = Key {
            run: self.run,
            number,
        };
        let block = StoredBlock::new(self.clone(), first, len_bytes);
        Ok(Box::new(Writer::new(block)))
    }

    fn takes_bytes(&self) -> bool {
        self.sizes_only || (self.worker).ledger(|ledger| ledger.refusal().is_none())
    }

    fn room_bytes(&self) -> u64 {
        self.worker.ledger(StoreLedger::room_bytes)
    }

    fn usage(&self) -> StoreUse {
        self.worker.ledger(StoreLedger::usage)
    }

    fn reset_peak(&self) {
        self.worker.ledger(|ledger| ledger.done.bytes.reset_peak());
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
        match self.worker.ledger(StoreLedger::resting) {
            Some(failure) => Err(failure),
            None => self.worker.queue(call),
        }
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
