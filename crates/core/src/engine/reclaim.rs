//! Reclaim: the steps that run, one after the other, when a storage finds no room.
//!
//! | step | what it does |
//! | --- | --- |
//! | retire | notices what the device has finished |
//! | caches | releases idle staging and read-back buffers |
//! | callbacks | asks the app to free memory |
//! | trim | releases empty slabs |
//! | compact | moves blocks together |
//! | wait | waits for submissions that still use released slabs |
//! | host | evicts storages to the host's memory, or drops those that have another copy |
//! | store | evicts storages to the stores of the app, or drops them |
//! | disk | evicts storages to the disk, or drops them |
//! | drop | drops storages that have another copy, where nothing can be evicted |
//! | repack | evicts the operands of the command itself, and lays them side by side |
//!
//! After each step that freed memory the engine looks for room again. The execution lock lets only
//! one thread reclaim at a time. The engine's lock is released while a step waits. Only the last
//! step and a drain to a lower limit evict operands of the command at the head of the queue.
//!
//! `limits_in_force` has the limit that counts, `shrink` and `drain_host` follow one that fell,
//! `reserve` makes slabs before they are needed, and `ahead` keeps the copies that began before
//! room was short. `apart` moves storages that the app reads and writes in one call into different
//! slabs.

mod ahead;
pub(super) mod apart;
pub(super) mod callbacks;
mod coldest;
pub(super) mod compact;
mod demote;
mod drain_host;
mod evict;
mod evict_in_place;
pub(super) mod evict_one;
mod evict_to_heap;
pub(super) mod limits_in_force;
mod needed;
pub(super) mod outlook;
pub(super) mod refuse;
mod repack;
pub(super) mod reserve;
pub(super) mod retire;
pub(super) mod shrink;
pub(super) mod victims;

use std::sync::Arc;

use super::pass::Pass;
use super::shares::lending::note_lending;
use super::state::State;
use crate::alloc::{AllocError, Growth};
use crate::driver::{BoxFuture, DriverError};
use crate::error::{Error, Result};
use crate::memory::{Heap, HoleChoice, ShareId, Storage, Tier, Whom};
use crate::shortage::{Freed, ReclaimCounts, ReclaimStep};
use crate::transfer::refusal;
use compact::{Outcome, PLANS};

/// A step frees at least 1/8 of the size of a request at a time.
const LEAST_PART: u64 = 8;

/// A step also frees at least this many bytes, because it examines all storages and waits for the
/// device.
const LEAST_FREED_BYTES: u64 = 256 << 10;

/// But this least size is at most 1/64 of the limit.
const LEAST_FREED_OF_LIMIT: u64 = 64;

/// The reclaim steps that make a share hold less. The others find room for what it may have.
pub(super) const SHARE_STEPS: [ReclaimStep; 4] = [
    ReclaimStep::Host,
    ReclaimStep::Store,
    ReclaimStep::Disk,
    ReclaimStep::Drop,
];

/// The attempts to make way for staging, before the request for staging fails.
const STAGING_TRIES: u32 = 4;

/// Slabs make way for this much staging at first, at most.
const MAKE_WAY_BYTES: u64 = 1 << 20;

/// Then for twice as much at each attempt, up to this number of doublings.
const MAKE_WAY_DOUBLINGS: u32 = 20;

/// What an error says that never fits.
const A_COMMAND: &str = "a command with operands and results";

/// The reclaim steps that [`run_reclaim_step`] runs: all but the last, which needs a storage.
fn general_steps() -> &'static [ReclaimStep] {
    const ALL: &[ReclaimStep] = &ReclaimStep::ALL;
    ALL.strip_suffix(&[ReclaimStep::Repack]).unwrap_or(ALL)
}

/// The limit for the bytes of slabs: the soft limit of the app, or the hard one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ceiling {
    #[default]
    Soft,
    Hard,
}

/// How far the search for room for one storage has come.
#[derive(Default)]
struct Attempt {
    counts: ReclaimCounts,
    ceiling: Ceiling,
}

impl Attempt {
    fn note(&mut self, pass: &Pass, step: ReclaimStep, freed: Freed) {
        self.counts.enter(step, freed);
        refuse::note_reclaimed(pass, step, freed);
    }
}

/// Makes room for a storage: a slab or a hole. The inner error concerns the storage, the outer
/// error the whole pass. The caller has the execution lock.
pub(super) fn make_room<'a>(
    pass: &'a Pass,
    storage: &'a Arc<Storage>,
) -> BoxFuture<'a, Result<Result<()>>> {
    Box::pin(pass.for_memory(Some(storage), find_room(pass, storage)))
}

fn find_room<'a>(pass: &'a Pass, storage: &'a Arc<Storage>) -> BoxFuture<'a, Result<Result<()>>> {
    Box::pin(async move {
        if note_lending(pass) {
            if let Some(error) = lower_share(pass, storage).await? {
                return Ok(Err(error));
            }
        }
        if let Some(made) = grow(pass, storage, Ceiling::Soft).await? {
            return Ok(made);
        }
        let whom = {
            let granted_bytes = pass.lock().memory.slabs.granted_bytes(storage.size_bytes());
            Whom::owing(ShareId::MAIN, storage.share(), granted_bytes)
        };
        if let Err(error) = check_fits(pass, storage) {
            #[cfg(all(feature = "snapshot", not(target_arch = "wasm32")))]
            pass.tell_shortage();
            return Ok(Err(error));
        }
        // Commands that wait for fusion keep their operands.
        pass.lock().queue.runs.may_defer = false;
        let mut attempt = Attempt::default();
        let steps = general_steps();
        if let Some(made) = try_steps(pass, storage, steps, whom, &mut attempt).await? {
            return Ok(made);
        }
        let may_take_all = {
            let state = pass.lock();
            let shares = &state.memory.shares;
            !shares.is_empty() && !shares.is_best_effort(storage.share())
        };
        if may_take_all {
            // Nothing is left but what is guaranteed to others. Work slows down and does not fail:
            // the storage borrows from that, too, and its owner's next command takes it back.
            let (steps, whom) = (&SHARE_STEPS, Whom::all(ShareId::MAIN));
            if let Some(made) = try_steps(pass, storage, steps, whom, &mut attempt).await? {
                return Ok(made);
            }
        }
        // A limit that was only learned must not cause an error.
        if pass.driver.ledger().forget_learned() {
            if let Some(made) = grow(pass, storage, attempt.ceiling).await? {
                return Ok(made);
            }
        }
        let (laid_out, bytes) = repack::repack(pass, storage).await?;
        let freed = Freed {
            bytes,
            ..Freed::default()
        };
        attempt.note(pass, ReclaimStep::Repack, freed);
        match laid_out {
            Some(made) => Ok(made),
            None => Ok(Err(refuse::out_of_memory(pass, storage, attempt.counts))),
        }
    })
}

/// Runs these reclaim steps until the storage has room. `None` if they do not suffice.
fn try_steps<'a>(
    pass: &'a Pass,
    storage: &'a Arc<Storage>,
    steps: &'a [ReclaimStep],
    whom: Whom,
    attempt: &'a mut Attempt,
) -> BoxFuture<'a, Result<Option<Result<()>>>> {
    Box::pin(async move {
        for &step in steps {
            if step.has_traffic() && attempt.ceiling == Ceiling::Soft {
                let soft_bytes = slabs_limit_bytes(pass, Ceiling::Soft);
                pass.driver.ledger().hinders();
                attempt.ceiling = Ceiling::Hard;
                // If both limits are equal, this was tried.
                if slabs_limit_bytes(pass, Ceiling::Hard) > soft_bytes {
                    if let Some(made) = grow(pass, storage, Ceiling::Hard).await? {
                        return Ok(Some(made));
                    }
                }
            }
            if step == ReclaimStep::Trim && !trim_would_help(pass, storage, attempt.ceiling) {
                continue;
            }
            // A step runs again as long as it frees memory. If the driver refuses a submission of
            // the step, another run would only repeat that.
            let refused_before = pass.refused_submissions();
            while pass.refused_submissions() == refused_before {
                let mut wanted_bytes = missing_bytes(pass, storage, attempt.ceiling);
                if step.has_traffic() {
                    wanted_bytes = wanted_bytes.min(pass.part_bytes());
                }
                let before = pass.changes_amid();
                let ran = run_reclaim_step(pass, step, wanted_bytes, whom).await?;
                let Some(freed) = ran else { break };
                attempt.note(pass, step, freed);
                // Urgent commands may have used what the step would have freed.
                if freed.bytes == 0 && pass.changes_amid() == before {
                    break;
                }
                note_lending(pass);
                if pass.give_way().await? && pass.lock().is_head_cancelled() {
                    return Ok(Some(Ok(())));
                }
                if let Some(made) = grow(pass, storage, attempt.ceiling).await? {
                    return Ok(Some(made));
                }
            }
        }
        Ok(None)
    })
}

/// Makes the storage's share hold less, if its limits, and not the device's, leave no room for the
/// storage. Returns the error of the storage if that fails.
async fn lower_share(pass: &Pass, storage: &Arc<Storage>) -> Result<Option<Error>> {
    let mut attempt = Attempt::default();
    loop {
        let freed_before = freed(pass);
        let hindrance = {
            let state = pass.lock();
            if state.memory.shares.is_empty() {
                return Ok(None);
            }
            if let Err(error) = check_ceilings(&state, storage) {
                return Ok(Some(error));
            }
            state.memory.hindrance(storage)
        };
        let Some(hindrance) = hindrance else {
            return Ok(None);
        };
        // Commands that wait for fusion keep their operands.
        pass.lock().queue.runs.may_defer = false;
        let steps = match hindrance.is_ceiling {
            true => &SHARE_STEPS[..],
            // An evicted storage takes the room that the loan needs, so only a drop helps.
            false => &[ReclaimStep::Drop],
        };
        let whom = Whom::owing(hindrance.share, storage.share(), hindrance.wanted_bytes);
        let ran = |step, freed| attempt.note(pass, step, freed);
        let wanted_bytes = hindrance.excess_bytes.min(pass.part_bytes());
        let freed_bytes = run_until_freed(pass, steps, wanted_bytes, whom, ran).await?;
        let others_ran = pass.give_way().await?;
        if others_ran && pass.lock().is_head_cancelled() {
            return Ok(None);
        }
        if freed_bytes == 0 && freed(pass) == freed_before && !others_ran {
            return Ok(Some(refuse::out_of_memory(pass, storage, attempt.counts)));
        }
    }
}

/// Frees what has no holder any more. Returns how many blocks were ever freed. Other threads drop
/// storages at any time, so only a request for which that number has not changed is refused.
fn freed(pass: &Pass) -> u64 {
    let mut state = pass.lock();
    state.free_dead();
    state.memory.slabs.freed
}

/// Runs these steps until one frees memory. Tells `ran` of each. Returns the freed bytes.
pub(super) async fn run_until_freed(
    pass: &Pass,
    steps: &[ReclaimStep],
    wanted_bytes: u64,
    whom: Whom,
    mut ran: impl FnMut(ReclaimStep, Freed),
) -> Result<u64> {
    for &step in steps {
        let freed = run_reclaim_step(pass, step, wanted_bytes, whom).await?;
        let freed = freed.unwrap_or_default();
        ran(step, freed);
        if freed.bytes > 0 {
            return Ok(freed.bytes);
        }
    }
    Ok(0)
}

/// Returns an error if the command at the head of the queue exceeds the ceiling of a share even
/// with nothing else in it. The operands get their places one by one, and may lie side by side
/// before all count for the share, so this is known before the first one.
fn check_ceilings(state: &State, storage: &Arc<Storage>) -> Result<()> {
    let shares = &state.memory.shares;
    let needed = needed::needed_storages(state, storage);
    let ceilings = needed.iter().flat_map(|one| shares.ceilings(one.share()));
    for (share, limit_bytes) in ceilings {
        let within = needed.iter();
        let within = within.filter(|one| shares.is_within(one.share(), share));
        let needed_bytes = within
            .map(|one| state.memory.slabs.granted_bytes(one.size_bytes()))
            .sum();
        if needed_bytes > limit_bytes {
            let hint = "That is the ceiling of its share. Raise it, or work on slices, such as some \
                        rows of an operand at a time";
            return Err(Error::never_fits(
                A_COMMAND,
                needed_bytes,
                limit_bytes,
                hint,
            ));
        }
    }
    Ok(())
}

/// Runs one reclaim step and returns what it freed. `None` if this device lacks the step,
/// or the step is no use now. `whom` says whose storages may be evicted. The step *repack* is not
/// run here, because it needs a storage.
fn run_reclaim_step(
    pass: &Pass,
    step: ReclaimStep,
    wanted_bytes: u64,
    whom: Whom,
) -> BoxFuture<'_, Result<Option<Freed>>> {
    Box::pin(async move {
        let dropped_before_bytes = pass.lock().counters.dropped_bytes;
        let freed_bytes = match step {
            ReclaimStep::Retire => retire::retire(pass),
            ReclaimStep::Caches if !pass.driver.ledger().staging_hinders() => return Ok(None),
            ReclaimStep::Caches => retire::shed_caches(pass),
            ReclaimStep::Callbacks => Ok(callbacks::call_back(pass, wanted_bytes)),
            ReclaimStep::Trim => retire::trim_slabs(pass),
            ReclaimStep::Compact => {
                Ok(compact::compact_pass(pass, Heap::Device, u64::MAX).await?.1)
            }
            ReclaimStep::Wait if !retire::wait_would_help(pass) => return Ok(None),
            ReclaimStep::Wait => retire::wait_for_all(pass).await,
            ReclaimStep::Drop => Ok(evict::drop_copied(pass, wanted_bytes, whom)),
            ReclaimStep::Host if pass.caps().maps_slabs => return Ok(None),
            ReclaimStep::Host => {
                let evicted = evict::evict_bytes(pass, wanted_bytes, Tier::Host, whom);
                let (bytes, outlook) = evicted.await?;
                if outlook.is_some() {
                    demote::demote_ahead(pass, outlook, bytes).await?;
                }
                Ok(bytes)
            }
            ReclaimStep::Store if pass.stores.is_empty() => return Ok(None),
            ReclaimStep::Store => evict::evict_to_stores(pass, wanted_bytes, whom).await,
            ReclaimStep::Disk => {
                let evicted = evict::evict_bytes(pass, wanted_bytes, Tier::Disk, whom);
                Ok(evicted.await?.0)
            }
            ReclaimStep::Repack | ReclaimStep::Other => return Ok(None),
        };
        // The pass has the execution lock, so nobody else drops meanwhile.
        Ok(Some(Freed {
            bytes: freed_bytes?,
            dropped_bytes: pass.lock().counters.dropped_bytes - dropped_before_bytes,
        }))
    })
}

/// Creates a slab for the storage, or finds a hole, if need be by moving blocks together. `None` if
/// that fails.
async fn grow(pass: &Pass, storage: &Arc<Storage>, ceiling: Ceiling) -> Result<Option<Result<()>>> {
    let size_bytes = storage.size_bytes();
    let mut limit_bytes = slabs_limit_bytes(pass, ceiling);
    for attempt in 1..=PLANS {
        let plan = {
            let mut state = pass.lock();
            state.free_dead();
            state.memory.plan(Heap::Device, size_bytes, limit_bytes)
        };
        let _hold = compact::hold_last(pass, attempt);
        let steps = match plan {
            Ok(steps) => steps,
            Err(AllocError::NeedsSlab { .. }) => return Ok(None),
            Err(error) => return Ok(Some(Err(refuse::never_fits(storage, &error)))),
        };
        match compact::carry_out(pass, Heap::Device, &steps).await? {
            Outcome::Done => {}
            // The driver has less memory than the budget allows. Tries the smallest slab that will
            // do, then the slabs that exist.
            Outcome::NoSlab => {
                if let Some(refused) = create_least(pass, storage).await? {
                    return Ok(Some(Err(refused)));
                }
                limit_bytes = pass.lock().memory.slabs.reserved_bytes();
            }
            Outcome::Interrupted => continue,
            Outcome::Refused(error) => return Ok(Some(Err(error))),
        }
        let mut state = pass.lock();
        for fit in [HoleChoice::Best, HoleChoice::Anywhere] {
            if state.memory.slabs.has_room(size_bytes, fit) {
                state.head.fit = fit;
                return Ok(Some(Ok(())));
            }
        }
        state.head.fit = HoleChoice::Best;
    }
    Ok(None)
}

/// Creates a slab with room for the storage and little else, if the driver allows one.
async fn create_least(pass: &Pass, storage: &Arc<Storage>) -> Result<Option<Error>> {
    let growth = pass.lock().memory.slabs.growth(storage.size_bytes());
    let Ok(growth) = growth else { return Ok(None) };
    let mut slab_bytes = growth.slab_bytes;
    while slab_bytes > growth.least_bytes {
        slab_bytes = (slab_bytes / 4).max(growth.least_bytes);
        slab_bytes = pass.lock().memory.slabs.whole_granules(slab_bytes);
        let smaller = Growth {
            slab_bytes,
            ..growth
        };
        match pass.unless_lost(compact::create_planned(pass, &smaller).await)? {
            Ok(_) => break,
            Err(DriverError::OutOfMemory | DriverError::OverBudget) => {}
            Err(error) => return Ok(Some(refusal("a slab", error))),
        }
    }
    Ok(None)
}

/// The bytes to free for a storage. That is the shortage if all free bytes were in one hole,
/// because compaction joins holes. If there is none, it is a part of the storage's size, so that
/// every step makes progress.
fn missing_bytes(pass: &Pass, storage: &Storage, ceiling: Ceiling) -> u64 {
    let limit_bytes = slabs_limit_bytes(pass, ceiling);
    let state = pass.lock();
    let size_bytes = state.memory.slabs.granted_bytes(storage.size_bytes());
    let wanted_bytes = state.memory.slabs.live_bytes().saturating_add(size_bytes);
    let missing_bytes = wanted_bytes.saturating_sub(limit_bytes);
    let freed_bytes = LEAST_FREED_BYTES.min(limit_bytes / LEAST_FREED_OF_LIMIT);
    let least_bytes = size_bytes.div_ceil(LEAST_PART).max(freed_bytes);
    missing_bytes.clamp(least_bytes, size_bytes.max(least_bytes))
}

/// Whether a slab for the storage would have room without the empty slabs. If not, their release
/// helps nobody, and they would be created again.
fn trim_would_help(pass: &Pass, storage: &Storage, ceiling: Ceiling) -> bool {
    let limit_bytes = slabs_limit_bytes(pass, ceiling);
    let state = pass.lock();
    let slabs = &state.memory.slabs;
    let used_bytes = slabs.reserved_bytes() - slabs.empty_bytes();
    let growth = slabs.growth(storage.size_bytes());
    growth.is_ok_and(|growth| limit_bytes.saturating_sub(used_bytes) >= growth.least_bytes)
}

/// The limit of all slabs together, without those that are being released.
fn slabs_limit_bytes(pass: &Pass, ceiling: Ceiling) -> u64 {
    let limit_bytes = pass.driver.ledger().slab_limit_now_bytes();
    match ceiling {
        Ceiling::Hard => limit_bytes,
        Ceiling::Soft => limit_bytes.min(pass.soft_limit_bytes()),
    }
}

/// Returns an error if the command at the head of the queue does not fit in the budget, even with
/// nothing else on the device.
fn check_fits(pass: &Pass, storage: &Arc<Storage>) -> Result<()> {
    let limit_bytes = pass.driver.ledger().slab_limit_bytes();
    let state = pass.lock();
    let needed_bytes = needed::needed_bytes(&state, storage);
    if needed_bytes <= limit_bytes {
        return Ok(());
    }
    let what = match needed_bytes > storage.size_bytes() {
        true => A_COMMAND,
        false => "a tensor",
    };
    let hint = "Raise the budget, or work on slices, such as some rows of an operand at a time";
    Err(Error::never_fits(what, needed_bytes, limit_bytes, hint))
}

/// The attempts to make way for one piece of staging.
#[derive(Clone, Copy, Debug)]
pub(super) struct StagingTries {
    count: u32,
    /// The least bytes of slabs after one of them. The caller may run the queue in between, which
    /// takes back what an attempt has freed.
    least_bytes: u64,
}

impl Default for StagingTries {
    fn default() -> Self {
        StagingTries {
            count: 0,
            least_bytes: u64::MAX,
        }
    }
}

/// Makes way for staging that found no memory. `tries` are the attempts before.
///
/// Releases all empty buffers and waits until the device has released them. From the second attempt
/// on also shrinks the slabs, by more each time, because the driver does not say how much it lacks.
/// Returns whether the caller should try again: the driver is short, and got more memory back than
/// ever before.
pub(super) fn make_way_for_staging<'a>(
    pass: &'a Pass,
    wanted_bytes: u64,
    tries: &'a mut StagingTries,
) -> BoxFuture<'a, Result<bool>> {
    Box::pin(async move {
        pass.submit()?;
        retire::trim_slabs(pass)?;
        retire::wait_for_all(pass).await?;
        let count = tries.count;
        if count > 0 {
            let step_bytes =
                wanted_bytes.min(MAKE_WAY_BYTES) << (count - 1).min(MAKE_WAY_DOUBLINGS);
            let reserved_bytes = pass.lock().memory.slabs.reserved_bytes();
            let target_bytes = reserved_bytes.saturating_sub(step_bytes);
            // The caller has few tries, so none of them ends early.
            let _hold = pass.hold_whole();
            drain_to(pass, Some(target_bytes)).await?;
        }
        let levels = pass.driver.ledger().levels();
        let is_drivers = levels.limit_bytes < levels.said_bytes;
        let reserved_bytes = pass.lock().memory.slabs.reserved_bytes();
        let is_less = reserved_bytes < tries.least_bytes;
        *tries = StagingTries {
            count: count + 1,
            least_bytes: reserved_bytes.min(tries.least_bytes),
        };
        Ok(is_drivers && is_less || count < STAGING_TRIES)
    })
}

/// Runs the reclaim steps until slabs reserve at most the target. `None` is the device's limit,
/// which may change meanwhile.
async fn drain_to(pass: &Pass, target_bytes: Option<u64>) -> Result<()> {
    for &step in general_steps() {
        let refused_before = pass.refused_submissions();
        while pass.refused_submissions() == refused_before {
            // Only the release of whole slabs lowers the reserved bytes.
            let limit_bytes = || pass.driver.ledger().slab_limit_now_bytes();
            let target_bytes = target_bytes.unwrap_or_else(limit_bytes);
            let steps = {
                let mut state = pass.lock();
                state.free_dead();
                state.memory.plan_shrink(Heap::Device, target_bytes)
            };
            if !steps.is_empty() {
                compact::carry_out(pass, Heap::Device, &steps).await?;
            }
            retire::wait_for_retiring(pass).await?;
            let reserved_bytes = pass.lock().memory.slabs.reserved_bytes();
            let above_bytes = reserved_bytes.saturating_sub(target_bytes);
            if above_bytes == 0 {
                return Ok(());
            }
            let whom = Whom::all(ShareId::MAIN);
            let Some(freed) = run_reclaim_step(pass, step, above_bytes, whom).await? else {
                break;
            };
            refuse::note_reclaimed(pass, step, freed);
            if freed.bytes == 0 {
                break;
            }
        }
    }
    Ok(())
}
