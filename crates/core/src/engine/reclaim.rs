//! Reclaim: what is tried, one reclaim step after the other, when a storage finds no room.
//!
//! | step | what it does |
//! | --- | --- |
//! | retire | notices what the device has finished |
//! | caches | gives back staging and read-back buffers that hold nothing |
//! | callbacks | asks the app |
//! | trim | gives back slabs that hold nothing |
//! | compact | moves blocks together |
//! | wait | waits for submissions that still use slabs given back |
//! | host | evicts storages to the host's memory, or drops those whose bytes are elsewhere too |
//! | disk | evicts storages to disk, or drops them |
//! | drop | drops what is elsewhere too, where nothing can be evicted |
//! | repack | evicts what the command itself needs, and lays it out afresh |
//!
//! After each that freed something the room is looked for anew. Whoever reclaims has the execution
//! lock, so there is one at a time; the engine's lock is released while a reclaim step waits. The
//! operands of the command at the head of the queue, for which all this is done, are evicted by the
//! last reclaim step only.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::Engine;
use super::compact::Outcome;
use super::evict::Tier;
use super::state::State;
use crate::alloc::{AllocError, Growth};
use crate::driver::DriverError;
use crate::error::{Error, Result};
use crate::memory::{Event, Memory, Storage};
use crate::shortage::{OutOfMemory, ReclaimCounts, ReclaimStep};
use crate::transfer::refusal;

/// How many plans are made for one request before it goes to the next reclaim step.
const PLANS: usize = 3;

/// At least one part in so many of a request's size is made free at a time, ...
const LEAST_PART: u64 = 8;

/// ... and so many bytes, where many small ones leave: each round looks at all there are and waits
/// for the device. ...
const LEAST_ROUND_BYTES: u64 = 256 << 10;

/// ... but no more than one part in so many of the limit.
const LEAST_ROUND_PART: u64 = 64;

/// How often slabs make way for staging in vain before there is said to be no room for it.
const STAGING_TRIES: u32 = 4;

/// Slabs make way for so much staging at first, at most, ...
const MAKE_WAY_BYTES: u64 = 1 << 20;

/// ... and for twice as much each time, so often.
const MAKE_WAY_DOUBLINGS: u32 = 20;

/// How many holders an error or a report of a pass names.
pub(super) const HOLDERS_NAMED: usize = 5;

/// The reclaim steps that [`Engine::run_reclaim_step`] runs: all but the last, which is for a
/// storage only.
fn general_steps() -> impl Iterator<Item = ReclaimStep> {
    ReclaimStep::ALL
        .into_iter()
        .filter(|step| *step != ReclaimStep::Repack)
}

/// How far the device's bytes may rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ceiling {
    Soft,
    Hard,
}

impl Engine {
    /// Makes room for a storage: a slab, or a hole. The inner error is the storage's, the outer
    /// one everybody's. The caller has the execution lock.
    pub(super) async fn make_room(&self, storage: &Arc<Storage>) -> Result<Result<()>> {
        if let Some(made) = self.grow(storage, Ceiling::Soft).await? {
            return Ok(made);
        }
        if let Err(error) = self.check_fits(storage) {
            return Ok(Err(error));
        }
        // What waits for others to become one with it keeps its operands.
        self.lock().may_wait = false;
        let (mut reclaim_counts, mut ceiling) = (ReclaimCounts::default(), Ceiling::Soft);
        for step in general_steps() {
            if step.has_traffic() && ceiling == Ceiling::Soft {
                let soft_bytes = self.slabs_limit_bytes(ceiling);
                self.driver.ledger().hinders();
                ceiling = Ceiling::Hard;
                // Where both are one, it has been tried.
                if self.slabs_limit_bytes(ceiling) > soft_bytes {
                    if let Some(made) = self.grow(storage, ceiling).await? {
                        return Ok(made);
                    }
                }
            }
            // A reclaim step is run again for as long as it frees something, unless the driver
            // refuses what is submitted for it: what came of that is undone, and would be done
            // again.
            let refused_before = self.refused_submissions();
            while self.refused_submissions() == refused_before {
                let wanted_bytes = self.missing_bytes(storage, ceiling);
                let Some(freed_bytes) = self.run_reclaim_step(step, wanted_bytes).await? else {
                    break;
                };
                reclaim_counts.enter(step, freed_bytes);
                self.note_reclaimed(step, freed_bytes);
                if freed_bytes == 0 {
                    break;
                }
                if let Some(made) = self.grow(storage, ceiling).await? {
                    return Ok(made);
                }
            }
        }
        // Nobody is turned away for what was only learned.
        if self.driver.ledger().forget_learned() {
            if let Some(made) = self.grow(storage, ceiling).await? {
                return Ok(made);
            }
        }
        let (laid_out, freed_bytes) = self.repack(storage).await?;
        reclaim_counts.enter(ReclaimStep::Repack, freed_bytes);
        self.note_reclaimed(ReclaimStep::Repack, freed_bytes);
        match laid_out {
            Some(made) => Ok(made),
            None => Ok(Err(self.out_of_memory(storage, reclaim_counts))),
        }
    }

    /// A reclaim step was run, and freed so much.
    fn note_reclaimed(&self, step: ReclaimStep, freed_bytes: u64) {
        self.lock().note_reclaimed(step, freed_bytes);
        if freed_bytes > 0 {
            tell!(INFO, "a reclaim step made room", { step = step.name(), freed_bytes = freed_bytes });
        }
    }

    /// A storage found no room: says what there is.
    pub(super) fn out_of_memory(&self, storage: &Storage, reclaim_counts: ReclaimCounts) -> Error {
        let error = self.lock().out_of_memory(storage, reclaim_counts);
        tell!(WARN, "a tensor found no room", {
            bytes = storage.size_bytes(),
            made_at = storage.tag().to_string().as_str()
        });
        error
    }

    /// Runs one reclaim step; returns the bytes that it freed, or `None` for one that this device
    /// has not, or that is no use now. The last one is for a storage only, and is not climbed here.
    pub(super) async fn run_reclaim_step(
        &self,
        step: ReclaimStep,
        wanted_bytes: u64,
    ) -> Result<Option<u64>> {
        let freed_bytes = match step {
            ReclaimStep::Retire => self.retire(),
            ReclaimStep::Caches if !self.driver.ledger().staging_hinders() => return Ok(None),
            ReclaimStep::Caches => self.shed_caches(),
            ReclaimStep::Callbacks => Ok(self.call_back(wanted_bytes)),
            ReclaimStep::Trim => self.trim_slabs(),
            ReclaimStep::Compact => Ok(self.compact_pass(u64::MAX).await?.1),
            ReclaimStep::Wait if !self.wait_would_help() => return Ok(None),
            ReclaimStep::Wait => self.wait_for_all().await,
            ReclaimStep::Drop => Ok(self.drop_copied(wanted_bytes)),
            ReclaimStep::Host if self.caps().maps_slabs => return Ok(None),
            ReclaimStep::Host => self.evict_bytes(wanted_bytes, Tier::Host).await,
            ReclaimStep::Disk => self.evict_bytes(wanted_bytes, Tier::Disk).await,
            ReclaimStep::Repack => return Ok(None),
        };
        freed_bytes.map(Some)
    }

    fn refused_submissions(&self) -> u64 {
        self.lock().counters.refused_submissions
    }

    /// A slab for the storage, or a hole that it fits into, if need be by moving others together.
    /// `None` if there is neither.
    async fn grow(&self, storage: &Arc<Storage>, ceiling: Ceiling) -> Result<Option<Result<()>>> {
        let size_bytes = storage.size_bytes();
        let mut limit_bytes = self.slabs_limit_bytes(ceiling);
        for _ in 0..PLANS {
            let plan = {
                let mut state = self.lock();
                state.free_dead();
                state.memory.plan(size_bytes, limit_bytes)
            };
            let steps = match plan {
                Ok(steps) => steps,
                Err(AllocError::NeedsSlab { .. }) => return Ok(None),
                Err(error) => return Ok(Some(Err(super::needs::never_fits(storage, &error)))),
            };
            let carried_out = self.carry_out(&steps);
            match in_span!("compaction", { steps = steps.len() as u64 }, carried_out).await? {
                Outcome::Done => {
                    let mut state = self.lock();
                    state.memory.anywhere = !state.memory.has_room(size_bytes, false);
                    if !state.memory.anywhere || state.memory.has_room(size_bytes, true) {
                        return Ok(Some(Ok(())));
                    }
                    state.memory.anywhere = false;
                }
                // The driver has less than the budget allows: the least that will do, or what
                // there is.
                Outcome::NoSlab => {
                    if let Some(refused) = self.create_least(storage).await? {
                        return Ok(Some(Err(refused)));
                    }
                    limit_bytes = self.lock().memory.reserved_bytes();
                }
                Outcome::Void => {}
                Outcome::Refused(error) => return Ok(Some(Err(error))),
            }
        }
        Ok(None)
    }

    /// A slab that has room for the storage and little else, if one can be had.
    async fn create_least(&self, storage: &Arc<Storage>) -> Result<Option<Error>> {
        let growth = self.lock().memory.growth(storage.size_bytes());
        let Ok(growth) = growth else { return Ok(None) };
        let mut slab_bytes = growth.slab_bytes;
        while slab_bytes > growth.least_bytes {
            slab_bytes = (slab_bytes / 4).max(growth.least_bytes);
            slab_bytes = self.lock().memory.whole_granules(slab_bytes);
            let smaller = Growth {
                slab_bytes,
                ..growth
            };
            match self.create_planned(&smaller).await {
                Ok(_) => break,
                Err(DriverError::OutOfMemory | DriverError::OverBudget) => {}
                Err(error) => {
                    self.check_lost()?;
                    return Ok(Some(refusal("a slab", error)));
                }
            }
        }
        Ok(None)
    }

    /// How much should leave for a storage: what is missing if all that is free lay together, which
    /// moving sees to. Where that is nothing, a part of its size, so that every round counts.
    fn missing_bytes(&self, storage: &Storage, ceiling: Ceiling) -> u64 {
        let limit_bytes = self.slabs_limit_bytes(ceiling);
        let state = self.lock();
        let size_bytes = state.memory.granted_bytes(storage.size_bytes());
        let wanted_bytes = state.memory.live_bytes().saturating_add(size_bytes);
        let missing_bytes = wanted_bytes.saturating_sub(limit_bytes);
        let round_bytes = LEAST_ROUND_BYTES.min(limit_bytes / LEAST_ROUND_PART);
        let least_bytes = size_bytes.div_ceil(LEAST_PART).max(round_bytes);
        missing_bytes.clamp(least_bytes, size_bytes.max(least_bytes))
    }

    /// What all slabs may take together, those excluded that are on their way back.
    fn slabs_limit_bytes(&self, ceiling: Ceiling) -> u64 {
        let limit_bytes = self.driver.ledger().slab_limit_now_bytes();
        match ceiling {
            Ceiling::Hard => limit_bytes,
            Ceiling::Soft => limit_bytes.min(self.limits().soft_bytes),
        }
    }

    /// Can the command at the head of the queue run within the budget, with nothing else on the
    /// device?
    fn check_fits(&self, storage: &Arc<Storage>) -> Result<()> {
        let limit_bytes = self.driver.ledger().slab_limit_bytes();
        let state = self.lock();
        let needed_bytes = state.needed_bytes(storage);
        if needed_bytes <= limit_bytes {
            return Ok(());
        }
        let what = match needed_bytes > storage.size_bytes() {
            true => "the operands and results of one operation together",
            false => "a tensor",
        };
        Err(Error::NeverFits {
            what,
            requested_bytes: needed_bytes,
            limit_bytes,
            hint: "Raise the budget, or work on slices: of the rows of one operand at a time, say",
        })
    }

    /// Notices what the device has finished.
    fn retire(&self) -> Result<u64> {
        let freed_before = self.lock().memory.freed_bytes();
        // Losing the device is all that can go wrong here.
        let _ = self.driver.poll();
        self.check_lost()?;
        let settled_bytes = self.driver.settle();
        let mut state = self.lock();
        state.free_dead();
        Ok(settled_bytes + state.memory.freed_bytes() - freed_before)
    }

    /// For staging that found no memory, so many times already: gives the driver back all that is
    /// empty and waits for what is on its way there; then makes the slabs fewer, by more each time,
    /// since nobody says how much the driver lacks. Returns whether to try again: it is the driver
    /// that has no more, and got some.
    pub(super) async fn make_way(&self, wanted_bytes: u64, tries: u32) -> Result<bool> {
        let before_bytes = self.lock().memory.reserved_bytes();
        self.submit()?;
        self.trim_slabs()?;
        self.wait_for_all().await?;
        if tries > 0 {
            let step_bytes =
                wanted_bytes.min(MAKE_WAY_BYTES) << (tries - 1).min(MAKE_WAY_DOUBLINGS);
            let reserved_bytes = self.lock().memory.reserved_bytes();
            let target_bytes = reserved_bytes.saturating_sub(step_bytes);
            self.drain_to(|_| target_bytes).await?;
        }
        let levels = self.driver.ledger().levels();
        let is_drivers = levels.limit_bytes < levels.said_bytes;
        let is_less = self.lock().memory.reserved_bytes() < before_bytes;
        Ok(is_drivers && is_less || tries < STAGING_TRIES)
    }

    /// Runs the reclaim steps until no more is reserved for slabs than the target, which may
    /// change.
    pub(super) async fn drain_to(&self, target_bytes: impl Fn(&Engine) -> u64) -> Result<()> {
        for step in general_steps() {
            let refused_before = self.refused_submissions();
            while self.refused_submissions() == refused_before {
                // Only whole slabs make the reserved bytes fewer.
                let target_bytes = target_bytes(self);
                let steps = {
                    let mut state = self.lock();
                    state.free_dead();
                    state.memory.plan_shrink(target_bytes)
                };
                if !steps.is_empty() {
                    let carried_out = self.carry_out(&steps);
                    in_span!("compaction", { steps = steps.len() as u64 }, carried_out).await?;
                }
                self.wait_for_retiring().await?;
                let reserved_bytes = self.lock().memory.reserved_bytes();
                let above_bytes = reserved_bytes.saturating_sub(target_bytes);
                if above_bytes == 0 {
                    return Ok(());
                }
                let Some(freed_bytes) = self.run_reclaim_step(step, above_bytes).await? else {
                    break;
                };
                self.note_reclaimed(step, freed_bytes);
                if freed_bytes == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// A refusal of the driver, met on behalf of a storage: for want of memory it is no reason to
    /// give up, and nothing is lost.
    pub(super) fn refused(
        &self,
        what: &'static str,
        error: DriverError,
        storage: &Storage,
    ) -> Error {
        match error {
            DriverError::OutOfMemory | DriverError::OverBudget => {
                self.out_of_memory(storage, ReclaimCounts::default())
            }
            error => refusal(what, error),
        }
    }

    /// Gives back staging and read-back buffers that hold nothing.
    pub(super) fn shed_caches(&self) -> Result<u64> {
        let before_bytes = self.driver.ledger().levels().reserved_bytes.now;
        for staging in [&self.uploads, &self.restore_staging] {
            let _ = staging.sweep();
            staging.trim();
        }
        self.readbacks.trim();
        self.check_lost()?;
        let after_bytes = self.driver.ledger().levels().reserved_bytes.now;
        Ok(before_bytes.saturating_sub(after_bytes))
    }

    /// Gives back slabs that hold nothing.
    pub(super) fn trim_slabs(&self) -> Result<u64> {
        let before_bytes = self.lock().memory.reserved_bytes();
        self.release(Memory::next_empty)?;
        let after_bytes = self.lock().memory.reserved_bytes();
        Ok(before_bytes.saturating_sub(after_bytes))
    }

    /// Is there anything that slabs could have once the device is done with it?
    fn wait_would_help(&self) -> bool {
        let ledger = self.driver.ledger();
        ledger.levels().retiring_bytes.now > 0 || ledger.staging_hinders()
    }

    /// Waits for what the device still uses, staging included, and gives back what that frees.
    pub(super) async fn wait_for_all(&self) -> Result<u64> {
        let before_bytes = self.driver.ledger().levels().reserved_bytes.now;
        self.submit()?;
        let _ = self.wait_idle().await;
        self.check_lost()?;
        self.take_in_cleaned();
        self.shed_caches()?;
        let after_bytes = self.driver.ledger().levels().reserved_bytes.now;
        Ok(before_bytes.saturating_sub(after_bytes))
    }

    /// Waits for the submissions that still use slabs given back.
    pub(super) async fn wait_for_retiring(&self) -> Result<u64> {
        if self.driver.ledger().levels().retiring_bytes.now == 0 {
            return Ok(0);
        }
        let before_bytes = self.driver.ledger().levels().reserved_bytes.now;
        self.submit()?;
        // Who could not wait finds no memory once more, and says so.
        let _ = self.wait_idle().await;
        self.check_lost()?;
        let after_bytes = self.driver.ledger().levels().reserved_bytes.now;
        Ok(before_bytes.saturating_sub(after_bytes))
    }
}

impl State {
    /// The slots of the command at the head of the queue: what it needs must stay.
    pub(super) fn needed_slots(&self) -> FxHashSet<u32> {
        let mut needed = FxHashSet::default();
        if let Some(cmd) = self.queue.front().filter(|_| !self.is_draining) {
            cmd.each_operand(|storage, _| needed.extend(storage.slot()));
        }
        needed
    }

    /// Does the command at the head of the queue need the storage?
    pub(super) fn is_needed(&self, storage: &Arc<Storage>) -> bool {
        let mut needs = false;
        if let Some(cmd) = self.queue.front() {
            cmd.each_operand(|operand, _| needs |= Arc::ptr_eq(operand, storage));
        }
        needs
    }

    /// The storages that the command at the head of the queue needs, if this is one of them; else
    /// only this one.
    pub(super) fn needed_storages(&self, storage: &Arc<Storage>) -> Vec<Arc<Storage>> {
        let mut seen: Vec<Arc<Storage>> = vec![storage.clone()];
        if let Some(cmd) = self.queue.front() {
            let mut needs = false;
            cmd.each_operand(|operand, _| needs |= Arc::ptr_eq(operand, storage));
            cmd.each_operand(|operand, _| {
                let known = seen.iter().any(|other| Arc::ptr_eq(other, operand));
                if needs && !known && !self.memory.is_imported(operand) {
                    seen.push(operand.clone());
                }
            });
        }
        seen
    }

    /// Bytes of the [`needed_storages`](Self::needed_storages).
    fn needed_bytes(&self, storage: &Arc<Storage>) -> u64 {
        let needed = self.needed_storages(storage);
        needed
            .iter()
            .map(|storage| self.memory.granted_bytes(storage.size_bytes()))
            .sum()
    }

    /// A reclaim step was run, and freed so much.
    fn note_reclaimed(&mut self, step: ReclaimStep, freed_bytes: u64) {
        self.counters.reclaim_counts.enter(step, freed_bytes);
        if freed_bytes > 0 {
            self.memory
                .happened(Event::ReclaimStep { step, freed_bytes });
        }
    }

    fn out_of_memory(&mut self, storage: &Storage, reclaim_counts: ReclaimCounts) -> Error {
        self.counters.refusals += 1;
        let bytes = storage.size_bytes();
        self.memory.happened(Event::Refusal { bytes });
        let report = self.memory.report(HOLDERS_NAMED);
        let levels = self.driver.ledger().levels();
        Error::OutOfMemory(Arc::new(OutOfMemory {
            requested_bytes: storage.size_bytes(),
            live_bytes: report.alloc.requested_bytes,
            reserved_bytes: report.alloc.reserved_bytes,
            retiring_bytes: levels.retiring_bytes.now,
            largest_hole_bytes: report.alloc.largest_hole_bytes,
            pinned_bytes: self.memory.pinned_bytes(),
            budget_bytes: (levels.said_bytes != u64::MAX).then_some(levels.said_bytes),
            reclaim_steps: reclaim_counts.tried(),
            made_at: storage.tag().to_string(),
            holders: report.holders,
        }))
    }
}
