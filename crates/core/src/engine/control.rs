//! The controls of the app: budgets, the residency of storages, and the device.

use std::mem::swap;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::execute::answers;
use super::handle::{Engine, Setup};
use super::kernel::Launch;
#[cfg(all(feature = "snapshot", not(target_arch = "wasm32")))]
use super::outside::AtShortage;
use super::outside::{Callback, Polled, PressureGuard};
use super::pass::Pass;
use super::pins::{self, Pinned};
use super::queue::cmd::Cmd;
use super::reclaim::refuse::HOLDERS_NAMED;
use super::reclaim::{compact, evict_one, limits_in_force, reserve, retire, shrink};
use super::restore::{limit_ahead, rematerialize};
use super::shares::limits::hold_drain;
use super::shares::{self, lending, promises};
use super::state::rematerializers::Rematerializer;
use super::tiers::arrivals;
use super::watermarks::{Watched, WatermarkCallback, WatermarkGuard};
use super::{block_on, diagnose, heap, recovery};
use crate::driver::{BufferId, DriverResult, Ledger, Submission};
use crate::error::{Error, Result};
#[cfg(feature = "metrics")]
use crate::memory::share_series;
use crate::memory::{Budget, Copies, Heap, MadeFor, Recovered, Source, Storage, Whole};
use crate::shortage::Holder;
use crate::transfer::{OpenStore, SpillOptions, refusal};

impl Engine {
    /// The setup of an engine for dry runs of this one. The copy of its memory has the rest.
    pub(crate) fn dry_setup(&self) -> Setup {
        Setup {
            spill: SpillOptions {
                sizes_only: true,
                ..SpillOptions::default()
            },
            stores: self.stores.iter().map(OpenStore::dry).collect(),
            is_dry: true,
            ..Setup::default()
        }
    }

    /// The app's budget, with the limit of the device that is in force now.
    pub(super) fn budget_now(&self) -> Budget {
        let limit_bytes = self.driver.ledger().levels().limit_bytes;
        let budget = self.budget();
        let most = |bytes: u64| bytes.min(limit_bytes);
        Budget {
            device_bytes: (limit_bytes < u64::MAX).then_some(limit_bytes),
            soft_device_bytes: budget.soft_device_bytes.map(most),
            staging_bytes: budget.staging_bytes.filter(|&bytes| bytes < limit_bytes),
            ..budget
        }
    }

    /// Whether commands go through fusion.
    pub(crate) fn fuses(&self) -> bool {
        self.lock().queue.fuses()
    }

    /// A new storage of at least `bytes` (padded to 16), without a place. Its tag names the caller.
    #[inline]
    #[track_caller]
    pub(super) fn storage(&self, bytes: u64) -> Result<Arc<Storage>> {
        let limit_bytes = self.caps().max_buffer_bytes & !15;
        if bytes > limit_bytes {
            let way_out = "Split it into several";
            return Err(Error::never_fits("a buffer", bytes, limit_bytes, way_out));
        }
        let site = MadeFor::or(Location::caller());
        let share = self.share();
        if let Some(Err(error)) = share.map(|share| share.check_open()) {
            // A function that computes a lost value again makes tensors in a closed share, too.
            if !self.is_recording() {
                return Err(error);
            }
        }
        Ok(Storage::new(bytes, share, site, self.dead_list()))
    }

    /// Whether a storage belongs to this engine and its share.
    pub(crate) fn owns(&self, storage: &Storage) -> bool {
        storage.share() == self.share_id() && storage.belongs_to(self.dead_list())
    }

    /// Refuses writes to a storage that another share has lent.
    #[inline]
    pub fn check_may_write(&self, storage: &Storage) -> Result<()> {
        match storage.share() == self.share_id() {
            true => Ok(()),
            false => Err(lent(storage)),
        }
    }

    /// The limit of all slabs together.
    pub fn slab_limit_bytes(&self) -> u64 {
        self.driver.ledger().slab_limit_bytes()
    }

    /// The budget that the app has set.
    pub(crate) fn budget(&self) -> Budget {
        *self.lock_budget()
    }

    /// From now on, errors name launches by this function.
    pub(crate) fn name_launches(&self, operation: fn(&Launch) -> String) {
        self.lock().operation = operation;
    }

    /// Sets the first limits. The engine holds no memory yet that could exceed them.
    pub(crate) fn begin_budget(&self, budget: Budget) -> Result<()> {
        budget.check()?;
        limits_in_force::follow_os(self);
        self.put_in_force(&mut self.lock_budget(), budget);
        self.limit_tiers(&budget);
        self.check_lost()
    }

    /// The limit of the device that passes exceed only after all steps without traffic.
    pub(super) fn soft_limit_bytes(&self) -> u64 {
        self.budget().soft_device_bytes.unwrap_or(u64::MAX)
    }

    fn put_in_force(&self, in_force: &mut Budget, budget: Budget) {
        *in_force = budget;
        limits_in_force::apply(self, in_force);
    }

    fn limit_tiers(&self, budget: &Budget) {
        self.host.set_limit(budget.host_bytes.unwrap_or(u64::MAX));
        self.spill.set_quota(budget.disk_bytes.unwrap_or(u64::MAX));
    }

    /// Sets the limits and shrinks to them as far as possible. Returns the bytes by which the bytes
    /// in use still exceed the device's limit, or those of a share its ceiling, if that is more.
    pub(crate) async fn set_budget(self: &Arc<Self>, budget: Budget) -> Result<u64> {
        budget.check()?;
        shares::check_no_share(self, "set_budget")?;
        if self.is_inside() {
            return Err(Error::Reentered);
        }
        let limit_bytes = (budget.device_bytes)
            .map(|device_bytes| Ledger::slab_part_bytes(device_bytes, budget.staging_bytes));
        let whole = Whole {
            limit_bytes: limit_bytes.unwrap_or(u64::MAX),
            device_bytes: lending::device_bytes(self),
        };
        if self.has_shares() {
            promises::check_budget(self, &budget, whole).await?;
        }
        let _ahead = match limit_bytes {
            Some(limit_bytes) => Some(limit_ahead::prepare(self, limit_bytes, None).await),
            None => None,
        };
        self.driver.ledger().forget_learned();
        limits_in_force::follow_os(self);
        {
            // Shares that were made since the check count, too, and none is made meanwhile.
            let mut state = self.lock();
            state.free_dead();
            if let Some(heap) = &mut state.memory.heap {
                heap.refused_at_bytes = None;
            }
            let has_shares = !state.memory.shares.is_empty();
            if has_shares {
                promises::check_budget_now(self, &state.memory, &budget, whole)?;
            }
            let mut in_force = self.lock_budget();
            self.put_in_force(&mut in_force, budget);
            if has_shares {
                let whole = lending::whole(self, whole.device_bytes);
                state.memory.shares.follow(whole);
            }
            drop(state);
            self.limit_tiers(&budget);
        }
        self.check_lost()?;
        if limits_in_force::excess_bytes(self) == 0
            && !limits_in_force::must_drain(self)
            && self.host.excess_bytes() == 0
            && self.lock().memory.shares.above_ceiling().is_empty()
        {
            return Ok(0);
        }
        let work = move |pass: Pass| async move {
            let excess_bytes = shrink::shrink(&pass).await?;
            let above = pass.lock().memory.shares.above_ceiling();
            let above = above.iter().map(|(_, bytes)| *bytes);
            Ok(above.fold(excess_bytes, u64::max))
        };
        Pass::run(self, work).await
    }

    /// Releases empty slabs while more than `keep_bytes` are reserved, the longest unused first.
    /// Returns the released bytes.
    pub(crate) async fn trim(self: &Arc<Self>, keep_bytes: u64) -> Result<u64> {
        self.check_lost()?;
        let pass = Pass::with(self, Pass::lock(self).await?);
        pass.lock().free_dead();
        pass.submit()?;
        let before_bytes = pass.lock().memory.slabs.reserved_bytes();
        pass.release(|memory| {
            let above = memory.slabs.reserved_bytes() > keep_bytes;
            above.then(|| memory.slabs.next_empty()).flatten()
        })?;
        let after_bytes = pass.lock().memory.slabs.reserved_bytes();
        if keep_bytes == 0 {
            retire::shed_caches(&pass)?;
            heap::release_empty(&pass);
        }
        Ok(before_bytes - after_bytes)
    }

    /// Creates slabs until `bytes` are reserved, but stops within 64 KiB of that, or at the soft
    /// budget. Returns the reserved bytes.
    pub(crate) async fn reserve(self: &Arc<Self>, bytes: u64) -> Result<u64> {
        self.check_lost()?;
        let work = move |pass: Pass| async move { reserve::create_slabs(&pass, bytes).await };
        Pass::run(self, work).await
    }

    /// Moves blocks together, at most `limit_bytes` of them. Returns the bytes moved and the bytes
    /// released.
    pub(crate) async fn compact(self: &Arc<Self>, limit_bytes: u64) -> Result<(u64, u64)> {
        self.check_lost()?;
        let work = move |pass: Pass| async move {
            pass.submit()?;
            let compacted = compact::compact_pass(&pass, Heap::Device, limit_bytes).await?;
            pass.submit()?;
            Ok(compacted)
        };
        Pass::run(self, work).await
    }

    /// The largest holders of pinned storages in slabs that have holes.
    pub(crate) fn pinned_in_the_way(&self) -> Vec<Holder> {
        self.lock().memory.pinned_in_the_way(HOLDERS_NAMED)
    }

    /// Registers a callback for shortages of memory.
    pub(crate) fn on_pressure(&self, callback: Arc<Callback>) -> PressureGuard {
        self.outside.listen(callback)
    }

    /// Sets what to do at the next error for lack of memory, in place of what was set before.
    #[cfg(all(feature = "snapshot", not(target_arch = "wasm32")))]
    pub(crate) fn at_shortage(&self, call: AtShortage) {
        *self.outside.at_shortage.lock() = Some(call);
    }

    /// Does it. The caller does not hold the engine's lock.
    #[cfg(all(feature = "snapshot", not(target_arch = "wasm32")))]
    pub(super) fn tell_shortage(&self) {
        let call = self.outside.at_shortage.lock().take();
        if let Some(call) = call {
            call(self);
        }
    }

    /// Registers a callback for a watermark of this engine's share.
    pub(crate) fn on_watermark(
        &self,
        percent: u8,
        callback: Arc<WatermarkCallback>,
    ) -> WatermarkGuard {
        let share = self.share_id();
        let of = Watched {
            path: self.share().map(|share| share.path().clone()),
            #[cfg(feature = "metrics")]
            label: share_series::label(&mut self.lock().memory.shares, share),
            percent,
        };
        let (id, guard) = self.watermarks.listen(of, callback, self.dead_list());
        let limit_bytes = lending::limit_bytes(self);
        let mut state = self.lock();
        state.memory.watermarks.limit_bytes = limit_bytes;
        state.memory.watermarks.add(id, share, percent);
        guard
    }

    /// Tells the app's recorder of metrics all statistics.
    #[cfg(feature = "metrics")]
    pub(crate) fn record_metrics(&self) {
        let shares = share_series::sums(&mut self.lock().memory.shares);
        self.report().record(&shares, self.watermarks.calls());
    }

    /// Notices finished work, updates the limit by what the operating system leaves, and releases
    /// idle memory. Waits only to shrink to a limit that has fallen below the bytes in use, and
    /// never in a browser.
    pub(crate) fn poll(self: &Arc<Self>) -> Result<()> {
        // Only a loss of the device concerns the caller, and `check_lost` reports it.
        let _ = self.driver.poll();
        self.check_lost()?;
        self.driver.settle();
        self.driver.ledger().polled();
        let Polled { polls, asks } = self.outside.poll();
        if asks {
            limits_in_force::follow_os(self);
        }
        if let Some(pass) = Pass::try_begin(self) {
            if asks
                && self.outside.must_shrink.load(Ordering::Acquire)
                && cfg!(not(target_arch = "wasm32"))
            {
                // The polling app may have no other work whose pass would shrink. It does not wait
                // for commands.
                let _hold = hold_drain(&pass);
                block_on("Gpu::poll", shrink::shrink(&pass))?;
            }
            arrivals::take_in_arrived(&pass);
            retire::release_idle(&pass, polls)?;
        }
        self.check_lost()
    }

    /// Sets the number of polls after which unused memory is released; 0 for never.
    pub(crate) fn set_idle_polls(&self, polls: u32) {
        (self.outside.idle_polls).store(polls, Ordering::Relaxed);
    }

    /// Evicts one storage to any tier with room. If that fails, the storage stays on the device.
    pub async fn evict(self: &Arc<Self>, storage: &Arc<Storage>) -> Result<()> {
        let storage = storage.clone();
        self.check_lost()?;
        let work = move |pass: Pass| async move {
            pass.execute_for(std::slice::from_ref(&storage), &[])
                .await?;
            evict_one::evict_one(&pass, &storage).await
        };
        Pass::run(self, work).await
    }

    /// Appends a command that restores a storage when a pass reaches it.
    pub fn prefetch(self: &Arc<Self>, storage: &Arc<Storage>) -> Result<()> {
        self.push_one(Cmd::Prefetch(storage.clone()))
    }

    /// Backs the present bytes of a storage by a source, after all queued commands.
    pub async fn back(self: &Arc<Self>, storage: &Arc<Storage>, source: Source) -> Result<()> {
        let storage = storage.clone();
        self.check_lost()?;
        self.check_may_write(&storage)?;
        let work = move |pass: Pass| async move {
            pass.execute().await?;
            pass.enter_source(&storage, source)
        };
        Pass::run(self, work).await
    }

    /// As [`back`](Self::back), for a caller that has run the queue.
    fn enter_source(&self, storage: &Arc<Storage>, source: Source) -> Result<()> {
        self.error_of(storage)?;
        let mut state = self.lock();
        if state.memory.slots.is_imported(storage) {
            return Err(Error::Pinned {
                operation: "backed_by",
                made_at: storage.tag().to_string(),
            });
        }
        let mut other = Some(source);
        let slots = &mut state.memory.slots;
        slots.copied(storage, |copies| swap(&mut copies.source, &mut other));
        drop(state);
        // This drops the source before it. If the storage has no bytes, it drops the new one.
        self.drop_app_value(other);
        Ok(())
    }

    /// Backs a new storage by a source, which gives the bytes when a command needs them.
    pub fn back_new(&self, storage: &Arc<Storage>, source: Source) {
        let copies = Copies {
            source: Some(source),
            ..Copies::default()
        };
        self.lock().memory.back(storage, copies);
    }

    /// Registers a rematerializer for the present bytes of a storage. It is valid as long as no
    /// command writes to its inputs.
    pub async fn recompute_with(
        self: &Arc<Self>,
        storage: &Arc<Storage>,
        inputs: Vec<Arc<Storage>>,
        rematerializer: Rematerializer,
    ) -> Result<()> {
        let storage = storage.clone();
        self.check_lost()?;
        self.check_may_write(&storage)?;
        let work = move |pass: Pass| async move {
            pass.execute().await?;
            rematerialize::register_rematerializer(&pass, &storage, inputs, rematerializer)
        };
        Pass::run(self, work).await
    }

    /// Runs the queue and pins the storages to their places. The app is going to write to those in
    /// `written`, which then lie in other buffers than the rest.
    pub(crate) async fn pin(
        self: &Arc<Self>,
        storages: &[Arc<Storage>],
        written: &[Arc<Storage>],
    ) -> Result<Pinned> {
        self.check_lost()?;
        let [storages, written] = [storages, written].map(<[_]>::to_vec);
        let work = move |pass: Pass| async move {
            pass.execute_for(&storages, &written).await?;
            pins::pin_all(&pass, &storages, &written).await
        };
        Pass::run(self, work).await
    }

    /// Lets the app submit its own commands, which use pinned places, after all queued commands.
    /// `submit` gives them to the device. They may write to the storages in `written`.
    ///
    /// # Errors
    /// - `DeviceLost` if the device of the places is lost, even if it was replaced. Then nothing is
    ///   submitted or written.
    /// - The errors of `submit`.
    pub(crate) async fn submit_foreign(
        self: &Arc<Self>,
        pinned: &Pinned,
        written: &[Arc<Storage>],
        submit: impl FnOnce() -> Result<Submission>,
    ) -> Result<()> {
        let lock = Pass::lock(self).await?;
        self.check_lost()?;
        // Only a holder of the execution lock replaces a device.
        if self.driver.ledger().epoch() != pinned.epoch {
            let reason = "it was replaced while the app recorded its commands".into();
            return Err(Error::DeviceLost { reason });
        }
        // Under the execution lock: a thread that sees the new version reads what is written now.
        for storage in written {
            storage.bump_version(None);
        }
        let submission = submit()?;
        let looks = {
            let mut state = self.lock();
            for storage in written {
                state.memory.slots.written(storage);
            }
            for place in &pinned.places {
                state.memory.slabs.used_by(*place, submission.serial);
            }
            state.submitted(submission, &[]);
            diagnose::watch_foreign(&mut state)
        };
        if looks {
            let work = move |pass: Pass| async move { answers::look_over(&pass).await };
            Pass::run_locked(self, lock, work).await?;
        }
        Ok(())
    }

    /// Makes a storage of a range of the app's buffer. `enter` gives the buffer an id.
    pub(crate) fn import(
        &self,
        enter: impl FnOnce() -> DriverResult<BufferId>,
        offset_bytes: u64,
        len_bytes: u64,
        site: &'static Location<'static>,
    ) -> Result<Arc<Storage>> {
        let storage = Storage::new(len_bytes, self.share(), site, self.dead_list());
        let size_bytes = storage.size_bytes();
        // Under the lock, so that no other thread forgets the buffer before the storage lies in it.
        let mut state = self.lock();
        state.free_dead();
        let buffer = enter().map_err(|error| refusal("an import", error))?;
        let slots = &state.memory.slots;
        if let Some(tag) = slots.overlapping_import(buffer, offset_bytes, size_bytes) {
            let reason = format!("the range overlaps the one imported at {tag}");
            return Err(Error::buffer("import", reason));
        }
        state.memory.import(&storage, buffer, offset_bytes);
        Ok(storage)
    }

    /// Opens a new device in place of a lost one. Returns what survived.
    pub(crate) async fn reopen(self: &Arc<Self>) -> Result<Recovered> {
        let work = move |pass: Pass| async move {
            let cause = recovery::forget_lost_device(&pass)?;
            let reopened = pass.driver.reopen().await;
            recovery::recover(&pass, cause, reopened)
        };
        Pass::run(self, work).await
    }

    /// As [`reopen`](Self::reopen), with `readopt` as the new device. Does not wait.
    pub(crate) async fn reopen_by(
        self: &Arc<Self>,
        readopt: impl FnOnce() -> DriverResult<()>,
    ) -> Result<Recovered> {
        let pass = Pass::with(self, Pass::lock(self).await?);
        let cause = recovery::forget_lost_device(&pass)?;
        recovery::recover(&pass, cause, readopt())
    }
}

#[cold]
fn lent(storage: &Storage) -> Error {
    Error::Lent {
        made_at: storage.tag().to_string(),
    }
}
