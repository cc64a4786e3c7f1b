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

use super::compact::{self, Outcome};
use super::destination::Tier;
use super::pass::Pass;
use super::{callbacks, evict, needed, refuse, repack, retire};
use crate::alloc::{AllocError, Growth};
use crate::driver::DriverError;
use crate::error::{Error, Result};
use crate::memory::{Fit, Storage};
use crate::shortage::{ReclaimCounts, ReclaimStep};
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

/// The reclaim steps that [`run_reclaim_step`] runs: all but the last, which is for a
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

/// Makes room for a storage: a slab, or a hole. The inner error is the storage's, the outer
/// one everybody's. The caller has the execution lock.
pub(super) async fn make_room(pass: &Pass, storage: &Arc<Storage>) -> Result<Result<()>> {
    if let Some(made) = grow(pass, storage, Ceiling::Soft).await? {
        return Ok(made);
    }
    if let Err(error) = check_fits(pass, storage) {
        return Ok(Err(error));
    }
    // What waits for others to become one with it keeps its operands.
    pass.lock().queue.leave_nothing();
    let (mut reclaim_counts, mut ceiling) = (ReclaimCounts::default(), Ceiling::Soft);
    for step in general_steps() {
        if step.has_traffic() && ceiling == Ceiling::Soft {
            let soft_bytes = slabs_limit_bytes(pass, ceiling);
            pass.driver.ledger().hinders();
            ceiling = Ceiling::Hard;
            // Where both are one, it has been tried.
            if slabs_limit_bytes(pass, ceiling) > soft_bytes {
                if let Some(made) = grow(pass, storage, ceiling).await? {
                    return Ok(made);
                }
            }
        }
        // A reclaim step is run again for as long as it frees something, unless the driver
        // refuses what is submitted for it: what came of that is undone, and would be done
        // again.
        let refused_before = refused_submissions(pass);
        while refused_submissions(pass) == refused_before {
            let wanted_bytes = missing_bytes(pass, storage, ceiling);
            let Some(freed_bytes) = run_reclaim_step(pass, step, wanted_bytes).await? else {
                break;
            };
            reclaim_counts.enter(step, freed_bytes);
            refuse::note_reclaimed(pass, step, freed_bytes);
            if freed_bytes == 0 {
                break;
            }
            if let Some(made) = grow(pass, storage, ceiling).await? {
                return Ok(made);
            }
        }
    }
    // Nobody is turned away for what was only learned.
    if pass.driver.ledger().forget_learned() {
        if let Some(made) = grow(pass, storage, ceiling).await? {
            return Ok(made);
        }
    }
    let (laid_out, freed_bytes) = repack::repack(pass, storage).await?;
    reclaim_counts.enter(ReclaimStep::Repack, freed_bytes);
    refuse::note_reclaimed(pass, ReclaimStep::Repack, freed_bytes);
    match laid_out {
        Some(made) => Ok(made),
        None => Ok(Err(refuse::out_of_memory(pass, storage, reclaim_counts))),
    }
}

/// Runs one reclaim step; returns the bytes that it freed, or `None` for one that this device
/// has not, or that is no use now. The last one is for a storage only, and is not climbed here.
pub(super) async fn run_reclaim_step(
    pass: &Pass,
    step: ReclaimStep,
    wanted_bytes: u64,
) -> Result<Option<u64>> {
    let freed_bytes = match step {
        ReclaimStep::Retire => retire::retire(pass),
        ReclaimStep::Caches if !pass.driver.ledger().staging_hinders() => return Ok(None),
        ReclaimStep::Caches => retire::shed_caches(pass),
        ReclaimStep::Callbacks => Ok(callbacks::call_back(pass, wanted_bytes)),
        ReclaimStep::Trim => retire::trim_slabs(pass),
        ReclaimStep::Compact => Ok(compact::compact_pass(pass, u64::MAX).await?.1),
        ReclaimStep::Wait if !retire::wait_would_help(pass) => return Ok(None),
        ReclaimStep::Wait => retire::wait_for_all(pass).await,
        ReclaimStep::Drop => Ok(evict::drop_copied(pass, wanted_bytes)),
        ReclaimStep::Host if pass.caps().maps_slabs => return Ok(None),
        ReclaimStep::Host => evict::evict_bytes(pass, wanted_bytes, Tier::Host).await,
        ReclaimStep::Disk => evict::evict_bytes(pass, wanted_bytes, Tier::Disk).await,
        ReclaimStep::Repack => return Ok(None),
    };
    freed_bytes.map(Some)
}

fn refused_submissions(pass: &Pass) -> u64 {
    pass.lock().counters.refused_submissions
}

/// A slab for the storage, or a hole that it fits into, if need be by moving others together.
/// `None` if there is neither.
async fn grow(pass: &Pass, storage: &Arc<Storage>, ceiling: Ceiling) -> Result<Option<Result<()>>> {
    let size_bytes = storage.size_bytes();
    let mut limit_bytes = slabs_limit_bytes(pass, ceiling);
    for _ in 0..PLANS {
        let plan = {
            let mut state = pass.lock();
            state.free_dead();
            state.memory.plan(size_bytes, limit_bytes)
        };
        let steps = match plan {
            Ok(steps) => steps,
            Err(AllocError::NeedsSlab { .. }) => return Ok(None),
            Err(error) => return Ok(Some(Err(refuse::never_fits(storage, &error)))),
        };
        let carried_out = compact::carry_out(pass, &steps);
        match in_span!("compaction", { steps = steps.len() as u64 }, carried_out).await? {
            Outcome::Done => {
                let mut state = pass.lock();
                for fit in [Fit::Best, Fit::Anywhere] {
                    if state.memory.has_room(size_bytes, fit) {
                        state.head.may_lie(fit);
                        return Ok(Some(Ok(())));
                    }
                }
                state.head.may_lie(Fit::Best);
            }
            // The driver has less than the budget allows: the least that will do, or what
            // there is.
            Outcome::NoSlab => {
                if let Some(refused) = create_least(pass, storage).await? {
                    return Ok(Some(Err(refused)));
                }
                limit_bytes = pass.lock().memory.reserved_bytes();
            }
            Outcome::Void => {}
            Outcome::Refused(error) => return Ok(Some(Err(error))),
        }
    }
    Ok(None)
}

/// A slab that has room for the storage and little else, if one can be had.
async fn create_least(pass: &Pass, storage: &Arc<Storage>) -> Result<Option<Error>> {
    let growth = pass.lock().memory.growth(storage.size_bytes());
    let Ok(growth) = growth else { return Ok(None) };
    let mut slab_bytes = growth.slab_bytes;
    while slab_bytes > growth.least_bytes {
        slab_bytes = (slab_bytes / 4).max(growth.least_bytes);
        slab_bytes = pass.lock().memory.whole_granules(slab_bytes);
        let smaller = Growth {
            slab_bytes,
            ..growth
        };
        match compact::create_planned(pass, &smaller).await {
            Ok(_) => break,
            Err(DriverError::OutOfMemory | DriverError::OverBudget) => {}
            Err(error) => {
                pass.check_lost()?;
                return Ok(Some(refusal("a slab", error)));
            }
        }
    }
    Ok(None)
}

/// How much should leave for a storage: what is missing if all that is free lay together, which
/// moving sees to. Where that is nothing, a part of its size, so that every round counts.
fn missing_bytes(pass: &Pass, storage: &Storage, ceiling: Ceiling) -> u64 {
    let limit_bytes = slabs_limit_bytes(pass, ceiling);
    let state = pass.lock();
    let size_bytes = state.memory.granted_bytes(storage.size_bytes());
    let wanted_bytes = state.memory.live_bytes().saturating_add(size_bytes);
    let missing_bytes = wanted_bytes.saturating_sub(limit_bytes);
    let round_bytes = LEAST_ROUND_BYTES.min(limit_bytes / LEAST_ROUND_PART);
    let least_bytes = size_bytes.div_ceil(LEAST_PART).max(round_bytes);
    missing_bytes.clamp(least_bytes, size_bytes.max(least_bytes))
}

/// What all slabs may take together, those excluded that are on their way back.
fn slabs_limit_bytes(pass: &Pass, ceiling: Ceiling) -> u64 {
    let limit_bytes = pass.driver.ledger().slab_limit_now_bytes();
    match ceiling {
        Ceiling::Hard => limit_bytes,
        Ceiling::Soft => limit_bytes.min(pass.limits().soft_bytes),
    }
}

/// Can the command at the head of the queue run within the budget, with nothing else on the
/// device?
fn check_fits(pass: &Pass, storage: &Arc<Storage>) -> Result<()> {
    let limit_bytes = pass.driver.ledger().slab_limit_bytes();
    let state = pass.lock();
    let needed_bytes = needed::needed_bytes(&state, storage);
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

/// For staging that found no memory, so many times already: gives the driver back all that is
/// empty and waits for what is on its way there; then makes the slabs fewer, by more each time,
/// since nobody says how much the driver lacks. Returns whether to try again: it is the driver
/// that has no more, and got some.
pub(super) async fn make_way(pass: &Pass, wanted_bytes: u64, tries: u32) -> Result<bool> {
    let before_bytes = pass.lock().memory.reserved_bytes();
    pass.submit()?;
    retire::trim_slabs(pass)?;
    retire::wait_for_all(pass).await?;
    if tries > 0 {
        let step_bytes = wanted_bytes.min(MAKE_WAY_BYTES) << (tries - 1).min(MAKE_WAY_DOUBLINGS);
        let reserved_bytes = pass.lock().memory.reserved_bytes();
        let target_bytes = reserved_bytes.saturating_sub(step_bytes);
        drain_to(pass, |_| target_bytes).await?;
    }
    let levels = pass.driver.ledger().levels();
    let is_drivers = levels.limit_bytes < levels.said_bytes;
    let is_less = pass.lock().memory.reserved_bytes() < before_bytes;
    Ok(is_drivers && is_less || tries < STAGING_TRIES)
}

/// Runs the reclaim steps until no more is reserved for slabs than the target, which may
/// change.
pub(super) async fn drain_to(pass: &Pass, target_bytes: impl Fn(&Pass) -> u64) -> Result<()> {
    for step in general_steps() {
        let refused_before = refused_submissions(pass);
        while refused_submissions(pass) == refused_before {
            // Only whole slabs make the reserved bytes fewer.
            let target_bytes = target_bytes(pass);
            let steps = {
                let mut state = pass.lock();
                state.free_dead();
                state.memory.plan_shrink(target_bytes)
            };
            if !steps.is_empty() {
                let carried_out = compact::carry_out(pass, &steps);
                in_span!("compaction", { steps = steps.len() as u64 }, carried_out).await?;
            }
            retire::wait_for_retiring(pass).await?;
            let reserved_bytes = pass.lock().memory.reserved_bytes();
            let above_bytes = reserved_bytes.saturating_sub(target_bytes);
            if above_bytes == 0 {
                return Ok(());
            }
            let Some(freed_bytes) = run_reclaim_step(pass, step, above_bytes).await? else {
                break;
            };
            refuse::note_reclaimed(pass, step, freed_bytes);
            if freed_bytes == 0 {
                break;
            }
        }
    }
    Ok(())
}
