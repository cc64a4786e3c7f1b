//! Promises: a guarantee is given only if it can be kept, whatever others hold.
//!
//! [`Memory::promise`] decides. Some memory in the way is of no use: dropped tensors that queued
//! commands still use, and tensors with another copy. So a refused promise is tried again after a
//! pass has freed that memory.

use std::sync::Arc;

use super::lending::{lending, limit_bytes};
use crate::engine::handle::Engine;
use crate::engine::pass::Pass;
use crate::engine::reclaim;
use crate::error::{Error, Result};
use crate::memory::{Budget, Memory, ShareId, Storage, Unmet, Whole, Whom};
use crate::number_map::NumberMap;
use crate::shortage::ReclaimStep;
use crate::units::Bytes;

/// The looks at a queue that another thread runs, before one waits for that thread.
#[cfg(not(target_arch = "wasm32"))]
const MOST_MISSED: u32 = 16;

/// The result of a promise, or what could not be kept.
pub(crate) type Promised<T> = std::result::Result<T, Unmet>;

/// Changes the shares, if all promises can be kept then. The change may find that they cannot. A
/// trial only says whether they can.
///
/// `set_budget` changes the limits under the same lock, so they are not changed between their
/// reading and the decision.
pub(super) fn promise<T>(
    engine: &Engine,
    is_trial: bool,
    change: impl FnOnce(&mut Memory) -> Result<Promised<T>>,
) -> Result<Promised<T>> {
    let mut state = engine.lock();
    // A share that just ended is guaranteed nothing, and a dropped tensor holds nothing.
    state.free_dead();
    let lending = lending(engine, limit_bytes(engine), &engine.budget());
    state.memory.promise(lending, is_trial, change)
}

/// Makes a promise, if need be after making way. Inside a function of the app that the engine
/// called nothing can wait, so no way is made there.
pub(super) async fn promise_after_way<T>(
    engine: &Arc<Engine>,
    mut attempt: impl FnMut() -> Result<Promised<T>>,
) -> Result<Promised<T>> {
    match attempt()? {
        Err(unmet) if !engine.is_inside() => {
            make_way(engine, unmet).await?;
            attempt()
        }
        made => Ok(made),
    }
}

/// Runs the queue, and drops tensors whose bytes are elsewhere, too.
pub(crate) async fn make_way(engine: &Arc<Engine>, unmet: Unmet) -> Result<()> {
    let work = move |pass: Pass| async move {
        pass.execute_all().await?;
        drop_copied(&pass, unmet).await
    };
    Pass::run(engine, work).await
}

/// Makes way in parts, for a caller that looks for something else between two of them.
#[cfg(not(target_arch = "wasm32"))]
#[derive(Debug, Default)]
pub(crate) struct WayMaker {
    /// The number of commands at which the part is the last one. `None` before the first part.
    until: Option<u64>,
    /// How often another thread ran the queue instead.
    missed: u32,
}

#[cfg(not(target_arch = "wasm32"))]
impl WayMaker {
    /// Runs the queue to a submission. After all commands that were there at the first part, drops
    /// tensors whose bytes are elsewhere. Does nothing while another thread runs the queue, unless
    /// that was so [`MOST_MISSED`] times. Returns whether there is more to do.
    pub(crate) async fn part(&mut self, engine: &Arc<Engine>, unmet: Unmet) -> Result<bool> {
        if unmet.missing_bytes > 0 {
            // No memory is in the way.
            return Ok(false);
        }
        let pass = match Pass::try_begin(engine) {
            Some(pass) => pass,
            None if self.missed < MOST_MISSED => {
                self.missed += 1;
                return Ok(false);
            }
            None => Pass::with(engine, Pass::lock(engine).await?),
        };
        self.missed = 0;
        let counts = || {
            let state = pass.lock();
            (state.counters.commands, state.queue.len() as u64)
        };
        let (ran, waiting) = counts();
        let until = *self.until.get_or_insert(ran + waiting);
        let has_more = pass.execute_to_submission().await? && counts().0 < until;
        if !has_more {
            self.until = None;
            drop_copied(&pass, unmet).await?;
        }
        Ok(has_more)
    }
}

async fn drop_copied(pass: &Pass, unmet: Unmet) -> Result<()> {
    pass.free_all_dead();
    let whom = Whom::owing(ShareId::MAIN, pass.share_id(), unmet.stuck_bytes);
    let steps = &[ReclaimStep::Drop];
    reclaim::run_until_freed(pass, steps, unmet.stuck_bytes, whom, |_, _| {}).await?;
    Ok(())
}

/// What is in the way of a promise.
pub(crate) fn in_the_way(unmet: Unmet) -> String {
    let (stuck, pinned) = (Bytes(unmet.stuck_bytes), Bytes(unmet.pinned_bytes));
    if unmet.missing_bytes > 0 {
        let missing = Bytes(unmet.missing_bytes);
        return format!(
            "other guarantees leave {missing} less than this one needs: lower them, or guarantee \
             less"
        );
    }
    match unmet.pinned_bytes > 0 {
        true => format!(
            "{pinned} of the guarantees cannot be kept: other tensors hold that memory and are \
             pinned. Unpin tensors, or guarantee less"
        ),
        false => format!(
            "{stuck} of the guarantees cannot be kept: other tensors hold that memory, and the \
             host's memory, the stores and the disk have no room for them. Drop tensors, raise \
             those limits, or guarantee less"
        ),
    }
}

/// Refuses a budget under which promises contradict each other, or could not be kept.
pub(crate) async fn check_budget(
    engine: &Arc<Engine>,
    budget: &Budget,
    whole: Whole,
) -> Result<()> {
    let kept = promise_after_way(engine, || {
        let mut state = engine.lock();
        state.free_dead();
        kept_under(engine, &state.memory, budget, whole)
    });
    kept.await?.map_err(|unmet| wrong_budget(in_the_way(unmet)))
}

/// The same, without making way, for a caller that holds the lock.
pub(crate) fn check_budget_now(
    engine: &Engine,
    memory: &Memory,
    budget: &Budget,
    whole: Whole,
) -> Result<()> {
    let kept = kept_under(engine, memory, budget, whole)?;
    kept.map_err(|unmet| wrong_budget(in_the_way(unmet)))
}

/// Whether the guarantees could be kept under a budget.
fn kept_under(
    engine: &Engine,
    memory: &Memory,
    budget: &Budget,
    whole: Whole,
) -> Result<Promised<()>> {
    let lending = lending(engine, whole.limit_bytes, budget);
    let then = memory.shares.after(whole);
    let (promised_bytes, limit_bytes) = (then.promised_bytes(), whole.limit_bytes);
    if promised_bytes > limit_bytes {
        return Err(wrong_budget(format!(
            "it leaves {} beside staging, and {} are guaranteed to shares: lower the guarantees \
             first",
            Bytes(limit_bytes),
            Bytes(promised_bytes),
        )));
    }
    // Limits that the system lowered may have made a contradiction before. That must not prevent
    // a larger budget.
    let is_new = memory.shares.contradiction().is_none();
    if let Some((path, reason)) = then.contradiction().filter(|_| is_new) {
        let reason = format!("of the share `{path}`, {reason} then: change that share first");
        return Err(wrong_budget(reason));
    }
    let unmet = memory.unmet(&then, lending, &NumberMap::default());
    Ok(match unmet == Unmet::default() {
        true => Ok(()),
        false => Err(unmet),
    })
}

fn wrong_budget(reason: String) -> Error {
    Error::option("budget", reason)
}

/// Refuses pins that would break guarantees of others: pinned storages cannot leave.
/// `pinned` has the storages that were just pinned, once each time.
pub(crate) fn check_pins(engine: &Engine, pinned: &[Arc<Storage>]) -> Result<()> {
    let (limit_bytes, budget) = (limit_bytes(engine), engine.budget());
    let state = engine.lock();
    let memory = &state.memory;
    let lending = lending(engine, limit_bytes, &budget);
    let unmet = memory.unmet(&memory.shares, lending, &NumberMap::default());
    if unmet.pinned_bytes == 0 {
        return Ok(());
    }
    let mut but = NumberMap::default();
    for storage in pinned {
        *but.entry(storage.address() as u64).or_default() += 1;
    }
    let before = memory.unmet(&memory.shares, lending, &but);
    match unmet.pinned_bytes > before.pinned_bytes {
        false => Ok(()),
        true => Err(Error::buffer(
            "pin",
            format!(
                "{} of the guarantees of other shares cannot be kept beside this pin. Pin less, or \
                 raise the guarantee of the share that pins",
                Bytes(unmet.pinned_bytes),
            ),
        )),
    }
}
