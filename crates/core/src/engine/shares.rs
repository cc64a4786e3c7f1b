//! Shares of a device's memory: makes, changes, closes and cancels them.
//!
//! The folder has what may be lent, the limits of shares, their priorities, and what passes do for
//! the shares of their commands.

pub(super) mod lending;
pub(super) mod limits;
pub(super) mod priority;
pub(super) mod promises;
pub(super) mod running;

use std::sync::Arc;

use super::block::block_on;
use super::handle::Engine;
use super::pass::Pass;
use super::restore::limit_ahead;
use crate::error::{Error, Result};
use crate::memory::{Amount, Memory, ShareHandle, ShareId, ShareOptions, share_error};
pub(crate) use crate::memory::{MadeBy, Unmet};
use crate::printable::is_hidden;
use crate::shortage::ShareUse;
use lending::{device_bytes, limit_bytes, whole};
use limits::{drain_to_ceilings, excess_bytes};
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use promises::WayMaker;
pub(crate) use promises::{Promised, in_the_way, make_way};

/// The most bytes of a share's name.
const MOST_NAME_BYTES: usize = 200;

/// The engine of a new share, within the share of this engine.
pub(crate) fn add(engine: &Arc<Engine>, name: &str, said: ShareOptions) -> Result<Arc<Engine>> {
    let no_changes = &[];
    let attempt = || add_beside(engine, name, said, MadeBy::App, no_changes);
    // Nothing may block in a browser. There the app makes way by `flush_async`.
    let added = match cfg!(target_arch = "wasm32") {
        true => attempt()?,
        false => block_on("Gpu::share", promises::promise_after_way(engine, attempt))?,
    };
    added.map_err(|unmet| share_error(name, in_the_way(unmet)))
}

/// As [`add`], while the guarantees of the shares of other engines become less: all of that or
/// nothing. The caller keeps the sum of all guarantees within what there is. Waits for nothing.
pub(crate) fn add_beside(
    engine: &Arc<Engine>,
    name: &str,
    said: ShareOptions,
    made_by: MadeBy,
    changes: &[(Arc<Engine>, u64)],
) -> Result<Promised<Arc<Engine>>> {
    check_name(name)?;
    engine.check_lost()?;
    engine.check_open()?;
    let device_bytes = device_bytes(engine);
    let added = promises::promise(engine, false, |memory| {
        lower_guarantees(memory, changes);
        let whole = whole(engine, device_bytes);
        if let (MadeBy::Jobs, Amount::Bytes(bytes)) = (made_by, said.guaranteed) {
            // Another thread may have changed a guarantee since the jobs were planned.
            let missing_bytes = memory.shares.missing_bytes(engine.share_id(), bytes, whole);
            if missing_bytes > 0 {
                return Ok(Err(Unmet {
                    missing_bytes,
                    ..Unmet::default()
                }));
            }
        }
        let added = memory.add_share(name, said, engine.share(), made_by, whole);
        added.map(Ok)
    })?;
    engine.lock().note_promises();
    Ok(added.map(|share| engine.of_share(Some(share))))
}

fn of_share((engine, bytes): &(Arc<Engine>, u64)) -> Option<(ShareId, u64)> {
    Some((engine.share()?.id(), *bytes))
}

/// Changes the limits of this engine's share. Returns the bytes by which it still exceeds its
/// ceiling.
pub(crate) async fn resize(engine: &Arc<Engine>, said: ShareOptions) -> Result<u64> {
    if engine.is_inside() {
        return Err(Error::Reentered);
    }
    engine.check_lost()?;
    let share = own_share(engine, "resize")?;
    share.check_open()?;
    let device_bytes = device_bytes(engine);
    let whole_now = || whole(engine, device_bytes);
    let resize = |is_trial| {
        promises::promise(engine, is_trial, |memory| {
            memory.shares.resize(&share, said, whole_now()).map(Ok)
        })
    };
    let may = promises::promise_after_way(engine, || resize(true));
    let refused = |unmet| share.error(in_the_way(unmet));
    let ceiling_bytes = may.await?.map_err(refused)?;
    // Values that could not be computed below the new ceiling come back before.
    let _ahead = limit_ahead::prepare(engine, ceiling_bytes, Some(share.id())).await;
    resize(false)?.map_err(refused)?;
    if let Some(priority) = said.priority {
        share.set_priority(priority);
    }
    engine.lock().note_promises();
    if engine.lock().memory.shares.above_ceiling().is_empty() {
        return Ok(0);
    }
    let work = move |pass: Pass| async move {
        pass.submit()?;
        drain_to_ceilings(&pass, i8::MIN).await?;
        Ok(excess_bytes(&pass, share.id()))
    };
    Pass::run(engine, work).await
}

/// Ends this engine's share, if it may be changed.
pub(crate) fn end_own(engine: &Engine, call: &'static str, how: End) -> Result<()> {
    own_share(engine, call)?;
    end(engine, how);
    Ok(())
}

/// How a share ends that still has handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Closed,
    /// Its commands that have not run never will.
    Cancelled,
}

/// Ends this engine's share.
pub(crate) fn end(engine: &Engine, end: End) {
    let Some(share) = engine.share() else {
        return;
    };
    match end {
        End::Closed => share.close(),
        End::Cancelled => share.cancel(),
    }
    engine.lock().memory.shares.close(share);
    engine.lock().note_promises();
}

/// What this engine's share holds; `None` if it is for no share.
pub(crate) fn use_of(engine: &Engine) -> Option<ShareUse> {
    let share = engine.share()?;
    engine.free_all_dead();
    let state = engine.lock();
    state.memory.shares.use_of(share.id())
}

/// What the shares of these engines are guaranteed, and what they hold.
pub(crate) fn sums_of<'a>(
    engine: &Engine,
    of: impl Iterator<Item = &'a Arc<Engine>>,
) -> (u64, u64) {
    let state = engine.lock();
    let ids = of.filter_map(|engine| Some(engine.share()?.id()));
    ids.fold((0, 0), |(guaranteed_bytes, held_bytes), id| {
        let shares = &state.memory.shares;
        let guaranteed_bytes = guaranteed_bytes + shares.guaranteed_bytes(id);
        (guaranteed_bytes, held_bytes + shares.held_bytes(id))
    })
}

/// Whether all that this engine's share holds would find another place, with `more_bytes` more.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn could_leave(engine: &Engine, more_bytes: u64) -> bool {
    let (limit_bytes, budget) = (limit_bytes(engine), engine.budget());
    let mut state = engine.lock();
    state.free_dead();
    let room_bytes = lending::lending(engine, limit_bytes, &budget).room_bytes;
    let held_bytes = state.memory.shares.held_bytes(engine.share_id());
    held_bytes.saturating_add(more_bytes) <= room_bytes
}

/// The bytes that are guaranteed to this engine's share, or left by the device, and to nobody
/// within it. `None` on a device without a limit.
pub(crate) fn unpromised_bytes(engine: &Engine) -> Option<u64> {
    let limit_bytes = limit_bytes(engine);
    let mut state = engine.lock();
    state.free_dead();
    let shares = &state.memory.shares;
    if let Some(share) = engine.share() {
        let guaranteed_bytes = shares.guaranteed_bytes(share.id());
        return Some(guaranteed_bytes.saturating_sub(shares.guaranteed_within(share.id(), None)));
    }
    let promised_bytes = shares.promised_bytes();
    (limit_bytes < u64::MAX).then(|| limit_bytes.saturating_sub(promised_bytes))
}

/// By how much jobs of higher priorities have lowered the guarantee of this engine's job; 0 if it
/// is none.
pub(crate) fn lowered_bytes(engine: &Engine) -> u64 {
    let state = engine.lock();
    let lowered = engine.share();
    lowered.map_or(0, |share| state.memory.shares.lowered_bytes(share.id()))
}

/// Changes what the shares of other engines of the device are guaranteed. A guarantee that could
/// not be kept stays less. The caller keeps the sum of all guarantees within what there is.
pub(crate) fn set_guarantees(engine: &Engine, changes: &[(Arc<Engine>, u64)]) -> Result<()> {
    lower_guarantees(&mut engine.lock().memory, changes);
    for (share, bytes) in changes.iter().filter_map(of_share) {
        if engine.lock().memory.shares.guaranteed_bytes(share) < bytes {
            let raised = promises::promise(engine, false, |memory| {
                memory.shares.set_guarantee(share, bytes);
                Ok(Ok(()))
            });
            let _stays_less = raised?.is_err();
        }
    }
    engine.lock().note_promises();
    Ok(())
}

/// Lowers those guarantees that become less.
fn lower_guarantees(memory: &mut Memory, changes: &[(Arc<Engine>, u64)]) {
    for (share, bytes) in changes.iter().filter_map(of_share) {
        if bytes < memory.shares.guaranteed_bytes(share) {
            memory.shares.set_guarantee(share, bytes);
        }
    }
}

/// The share of an engine, to change it. The handles of the device's shares are the same in a dry
/// run, so a change of theirs there would be one of the device.
fn own_share(engine: &Engine, call: &'static str) -> Result<Arc<ShareHandle>> {
    let share = engine.share().cloned();
    let share = share.expect("only the handle of a share has these calls");
    match engine.is_dry() && !share.is_of(engine.dead_list()) {
        false => Ok(share),
        true => Err(share.error(format!(
            "{call} would change it outside of this dry run, where it was made: make a share \
             within the dry run"
        ))),
    }
}

/// Refuses what only the device's own handle may do.
pub(super) fn check_no_share(engine: &Engine, call: &'static str) -> Result<()> {
    engine.share().map_or(Ok(()), |share| {
        let reason = format!("{call} changes the whole device: call it on the first handle");
        Err(share.error(reason))
    })
}

/// Refuses names that paths or reports could not show.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let wrong = match name {
        "" => "it has no name",
        name if name.contains('/') => "its name has a `/`, which stands between nested shares",
        name if name.len() > MOST_NAME_BYTES => "its name is longer than 200 bytes",
        name if name.chars().any(is_hidden) => "its name has characters that do not print",
        _ => return Ok(()),
    };
    Err(share_error(name, wrong))
}
