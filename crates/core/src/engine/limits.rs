//! The budget as the engine keeps it: what the app said, and getting down to it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use super::Engine;
use super::reclaim::HOLDERS_NAMED;
use crate::alloc::Growth;
use crate::driver::DriverError;
use crate::error::{Error, Result};
use crate::memory::Budget;
use crate::shortage::Holder;
use crate::transfer::refusal;
use crate::units::MIB;

/// Slabs that are created ahead have this size: any request but a large one can use them.
const RESERVED_SLAB_BYTES: u64 = 16 * MIB;

/// ... or, at the end, a multiple of this.
const LEAST_RESERVED_BYTES: u64 = 64 << 10;

/// What the engine goes by besides the ledger's limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) budget: Budget,
    pub(super) soft_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            budget: Budget::default(),
            soft_bytes: u64::MAX,
        }
    }
}

/// While it lives, slabs get down to a limit that was lowered: staging may pass it, and nobody is
/// spared for the sake of the command at the head of the queue.
struct DrainGuard<'a>(&'a Engine);

impl<'a> DrainGuard<'a> {
    fn new(engine: &'a Engine) -> Self {
        engine.driver.ledger().set_draining(true);
        let mut state = engine.lock();
        state.unplace_head();
        state.is_draining = true;
        DrainGuard(engine)
    }
}

impl Drop for DrainGuard<'_> {
    fn drop(&mut self) {
        self.0.driver.ledger().set_draining(false);
        self.0.lock().is_draining = false;
    }
}

impl Engine {
    pub(super) fn limits(&self) -> Limits {
        *self.lock_limits()
    }

    /// Before any lock of the ledger or of what was heard from the operating system.
    fn lock_limits(&self) -> MutexGuard<'_, Limits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that slabs may take.
    pub fn slab_limit_bytes(&self) -> u64 {
        self.driver.ledger().slab_limit_bytes()
    }

    /// What the app allows.
    pub(crate) fn budget(&self) -> Budget {
        self.limits().budget
    }

    /// Sets the limits, and gets down to them as far as that goes. Returns the bytes by which what
    /// is in use still passes them.
    pub(crate) async fn set_budget(self: &Arc<Self>, budget: Budget) -> Result<u64> {
        budget.check()?;
        if self.is_inside() {
            return Err(Error::Reentered);
        }
        self.driver.ledger().forget_learned();
        self.follow_os();
        {
            let mut limits = self.lock_limits();
            limits.budget = budget;
            limits.soft_bytes = budget.soft_device_bytes.unwrap_or(u64::MAX);
            self.apply(&limits);
            self.host.set_limit(budget.host_bytes.unwrap_or(u64::MAX));
            let disk_bytes = budget.disk_bytes.unwrap_or(u64::MAX);
            self.spill.set_quota(disk_bytes);
        }
        self.check_lost()?;
        if self.excess_bytes() == 0 && !self.must_drain() && self.host.excess_bytes() == 0 {
            return Ok(0);
        }
        let execution_lock = self.lock_execution().await?;
        self.with_execution_lock(execution_lock, move |engine| async move {
            engine.shrink().await
        })
        .await
    }

    /// Tells the ledger what holds now: the app's limit, or what the system leaves if that is less.
    pub(super) fn apply_limits(&self) {
        self.apply(&self.lock_limits());
    }

    /// With the lock on the limits: who applies older ones would undo what another has set.
    fn apply(&self, limits: &Limits) {
        let budget = &limits.budget;
        let app_bytes = budget.device_bytes.unwrap_or(u64::MAX);
        let hard_bytes = app_bytes.min(self.os_limit_bytes().unwrap_or(u64::MAX));
        // What the system takes it may give back.
        let lasting_bytes = match self.outside.os_is_static() {
            true => hard_bytes,
            false => app_bytes,
        };
        let ledger = self.driver.ledger();
        ledger.set_limit(hard_bytes, lasting_bytes, budget.staging_bytes);
        self.note_excess(limits);
    }

    /// Lets the next execution pass get down to the limits, if they are passed. They stay what they
    /// are meanwhile.
    fn note_excess(&self, _limits: &Limits) {
        let must_shrink = self.must_drain() || self.excess_bytes() > 0;
        self.outside
            .must_shrink
            .store(must_shrink, Ordering::Release);
    }

    /// By how much what is reserved passes the limit.
    fn excess_bytes(&self) -> u64 {
        let levels = self.driver.ledger().levels();
        levels.reserved_bytes.now.saturating_sub(levels.limit_bytes)
    }

    /// Do slabs take what is kept for staging?
    fn must_drain(&self) -> bool {
        self.driver.ledger().slab_excess_bytes() > 0
    }

    /// Something found no room. Was the limit lowered below what is taken since an execution pass
    /// last got down to it? Then gets down to it: above it nothing is created, be it to evict
    /// something, so what failed is to be tried again. The caller has the execution lock.
    pub(super) async fn was_lowered(&self) -> Result<bool> {
        let times = self.driver.ledger().times_lowered();
        let is_new = self.outside.lowered_before.load(Ordering::Acquire) != times;
        if is_new {
            self.shrink().await?;
        }
        Ok(is_new)
    }

    /// Gets down to the limits; returns by how much the reserved bytes are above the device's. The
    /// caller has the execution lock.
    pub(super) async fn shrink(&self) -> Result<u64> {
        self.outside.may_ask_anew();
        let times = self.driver.ledger().times_lowered();
        self.outside.lowered_before.store(times, Ordering::Release);
        self.submit()?;
        if self.must_drain() || self.excess_bytes() > 0 {
            let _draining = DrainGuard::new(self);
            let target_bytes = |engine: &Engine| engine.driver.ledger().slab_limit_now_bytes();
            self.drain_to(target_bytes).await?;
        }
        if self.excess_bytes() > 0 {
            // What is above it is staging.
            self.make_way(0, 0).await?;
        }
        self.drain_host()?;
        // What is pinned may be let go later.
        self.note_excess(&self.lock_limits());
        Ok(self.excess_bytes())
    }

    /// Gives back empty slabs, longest unused first, while more than `keep_bytes` are reserved.
    /// Returns the bytes given back.
    pub(crate) async fn trim(&self, keep_bytes: u64) -> Result<u64> {
        self.check_lost()?;
        let _execution_lock = self.lock_execution().await?;
        self.lock().free_dead();
        self.submit()?;
        let before_bytes = self.lock().memory.reserved_bytes();
        self.release(|memory| {
            let above = memory.reserved_bytes() > keep_bytes;
            above.then(|| memory.next_empty()).flatten()
        })?;
        let after_bytes = self.lock().memory.reserved_bytes();
        if keep_bytes == 0 {
            self.shed_caches()?;
        }
        Ok(before_bytes - after_bytes)
    }

    /// Creates slabs until so many bytes are reserved, up to 64 KiB less, or the soft budget's end.
    /// Returns how many are.
    pub(crate) async fn reserve(self: &Arc<Self>, bytes: u64) -> Result<u64> {
        self.check_lost()?;
        let execution_lock = self.lock_execution().await?;
        let work = move |engine: Arc<Self>| async move { engine.create_slabs(bytes).await };
        self.with_execution_lock(execution_lock, work).await
    }

    /// The same, for who has the execution lock.
    async fn create_slabs(&self, bytes: u64) -> Result<u64> {
        loop {
            let limit_bytes = self.driver.ledger().slab_limit_now_bytes();
            let limit_bytes = limit_bytes.min(self.limits().soft_bytes).min(bytes);
            let growth = {
                let state = self.lock();
                let reserved_bytes = state.memory.reserved_bytes();
                let missing_bytes = limit_bytes.saturating_sub(reserved_bytes);
                let most_bytes = RESERVED_SLAB_BYTES.min(self.caps().max_buffer_bytes);
                let slab_bytes = missing_bytes.min(most_bytes) & !(LEAST_RESERVED_BYTES - 1);
                match state.memory.growth(slab_bytes) {
                    Ok(growth) if slab_bytes > 0 => Growth {
                        slab_bytes: growth.least_bytes,
                        ..growth
                    },
                    _ => return Ok(reserved_bytes),
                }
            };
            match self.create_planned(&growth).await {
                Ok(_) => {}
                Err(DriverError::OutOfMemory | DriverError::OverBudget) => {
                    return Ok(self.lock().memory.reserved_bytes());
                }
                Err(error) => {
                    self.check_lost()?;
                    return Err(refusal("a slab", error));
                }
            }
        }
    }

    /// Moves blocks together, at most so many bytes of them. Returns the bytes moved and given
    /// back.
    pub(crate) async fn compact(self: &Arc<Self>, limit_bytes: u64) -> Result<(u64, u64)> {
        self.check_lost()?;
        let execution_lock = self.lock_execution().await?;
        let work = move |engine: Arc<Self>| async move {
            engine.submit()?;
            engine.compact_pass(limit_bytes).await
        };
        self.with_execution_lock(execution_lock, work).await
    }

    /// The greatest holders of what is pinned in slabs with free room.
    pub(crate) fn pinned_in_the_way(&self) -> Vec<Holder> {
        self.lock().memory.pinned_in_the_way(HOLDERS_NAMED)
    }
}
