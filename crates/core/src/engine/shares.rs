//! Shares of a device's memory: makes, changes, closes and cancels them.
//!
//! The folder has what may be lent, the limits of shares, their priorities, and what an engine with
//! shares does besides.

mod hooks;
pub(in crate::engine) mod lending;
pub(in crate::engine) mod limits;
mod priority;

use std::sync::Arc;

use super::handle::Engine;
use super::pass::Pass;
use super::restore::limit_ahead;
use crate::error::{Error, Result};
use crate::memory::{Share, ShareHandle, Whole};
use crate::printable::{is_hidden, printable};
use crate::shortage::ShareUse;
use crate::units::Bytes;
use hooks::OfShares;
use lending::{limit_bytes, note_promises, whole};
use limits::{check_pins, drain_to_ceilings};

/// The most bytes of a share's name.
const MOST_NAME_BYTES: usize = 200;

/// The engine of a new share, within the share of this engine. In a dry run the caller gives the
/// engine of the dry run, as for [`end`] and [`set_guarantees`].
pub(crate) fn add(engine: &Arc<Engine>, name: &str, said: Share) -> Result<Arc<Engine>> {
    check_name(name)?;
    engine.check_lost()?;
    if let Some(around) = engine.share() {
        around.check_open()?;
    }
    engine.share_with(&OfShares, &OfShares);
    let whole = whole(engine);
    let added = {
        let mut state = engine.lock();
        // A share that just ended is guaranteed nothing.
        state.free_dead();
        state.memory.add_share(name, said, engine.share(), whole)
    };
    let engine = engine.of_share(Some(added?));
    // If pins leave too little, the share ends with this engine.
    check_pins(&engine)?;
    note_promises(&mut engine.lock());
    Ok(engine)
}

/// Changes the limits of this engine's share. Returns the bytes by which it still exceeds its
/// ceiling.
pub(crate) async fn resize(engine: &Arc<Engine>, said: Share) -> Result<u64> {
    let engine = &*engine.here();
    if engine.is_inside() {
        return Err(Error::Reentered);
    }
    engine.check_lost()?;
    let share = own_share(engine, "resize_share")?;
    share.check_open()?;
    let whole = whole(engine);
    let ceiling_bytes = (engine.lock().memory.shares).ceiling_after(&share, said, whole)?;
    let _ahead = limit_ahead::prepare(engine, ceiling_bytes, Some(share.id())).await;
    (engine.lock().memory.shares).resize(&share, said, whole)?;
    note_promises(&mut engine.lock());
    if engine.lock().memory.shares.above_ceiling().is_empty() {
        return Ok(0);
    }
    let id = share.id();
    let work = move |pass: Pass| async move {
        pass.submit()?;
        drain_to_ceilings(&pass).await?;
        let above = pass.lock().memory.shares.above_ceiling();
        let above = above.iter().find(|(share, _)| *share == id);
        Ok(above.map_or(0, |(_, excess_bytes)| *excess_bytes))
    };
    Pass::run(engine, work).await
}

/// Closes this engine's share.
pub(crate) fn close(engine: &Arc<Engine>) -> Result<()> {
    let engine = engine.here();
    own_share(&engine, "close_share")?;
    end(&engine, End::Closed);
    Ok(())
}

/// Closes this engine's share. Its commands that have not run never will.
pub(crate) fn cancel(engine: &Arc<Engine>) -> Result<()> {
    let engine = engine.here();
    own_share(&engine, "cancel_share")?;
    end(&engine, End::Cancelled);
    Ok(())
}

/// How a share ends that still has handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Closed,
    /// Its commands that have not run never will.
    Cancelled,
}

/// Ends the share of this very engine, also while the thread is in a dry run.
pub(crate) fn end(engine: &Engine, end: End) {
    let Some(share) = engine.share() else {
        return;
    };
    match end {
        End::Closed => share.close(),
        End::Cancelled => share.cancel(),
    }
    engine.lock().memory.shares.close(share);
    note_promises(&mut engine.lock());
}

/// What this engine's share holds; `None` if it is for no share.
pub(crate) fn use_of(engine: &Arc<Engine>) -> Option<ShareUse> {
    let share = engine.share()?;
    let here = engine.here();
    here.free_all_dead();
    let state = here.lock();
    state.memory.shares.use_of(share.id())
}

/// What this engine's share is guaranteed; `None` if it is for no share.
pub(crate) fn guaranteed_bytes(engine: &Engine) -> Option<u64> {
    let id = engine.share()?.id();
    let used = engine.lock().memory.shares.use_of(id);
    Some(used.map_or(0, |used| used.guaranteed_bytes))
}

/// The bytes that are guaranteed to this engine's share, or left by the device, and to nobody
/// within it. `None` on a device without a limit.
pub(crate) fn unpromised_bytes(engine: &Engine) -> Option<u64> {
    let limit_bytes = limit_bytes(engine);
    let mut state = engine.lock();
    state.free_dead();
    let shares = &state.memory.shares;
    if let Some(share) = engine.share() {
        return Some(shares.unpromised_within(share.id()));
    }
    let promised_bytes = shares.promised_bytes();
    (limit_bytes < u64::MAX).then(|| limit_bytes.saturating_sub(promised_bytes))
}

/// Changes what the shares of other engines of the device are guaranteed, all at once. The caller
/// keeps the sum of all guarantees within what there is.
pub(crate) fn set_guarantees<'a>(
    engine: &Engine,
    changes: impl Iterator<Item = (&'a Arc<Engine>, u64)>,
) {
    {
        let mut state = engine.lock();
        for (of, bytes) in changes {
            if let Some(share) = of.share() {
                state.memory.shares.set_guarantee(share.id(), bytes);
            }
        }
    }
    note_promises(&mut engine.lock());
}

/// The share of an engine, to change it. The handles of the device's shares are the same in a dry
/// run, so a change of theirs there would be one of the device.
fn own_share(engine: &Engine, call: &'static str) -> Result<Arc<ShareHandle>> {
    let share = engine.share().cloned().ok_or_else(|| Error::Share {
        share: String::new(),
        reason: format!("{call} is for the handle of a share, and this one is for the device"),
    })?;
    match engine.is_dry() && !share.is_of(engine.dead_list()) {
        false => Ok(share),
        true => Err(share.error(format!(
            "{call} would change it outside of this dry run, where it was made: make a share \
             within the dry run"
        ))),
    }
}

/// Refuses a job on the device while this thread is in a dry run of it. The reason is the error.
pub(crate) fn check_same_run(engine: &Arc<Engine>) -> std::result::Result<(), &'static str> {
    match engine.here().is_same_device(engine) {
        true => Ok(()),
        false => Err(
            "a dry run admits no jobs of the device: use the list of jobs of the dry run's handle",
        ),
    }
}

/// Refuses what only the device's own handle may do.
pub(super) fn check_no_share(engine: &Engine, call: &'static str) -> Result<()> {
    engine.share().map_or(Ok(()), |share| {
        let reason = format!("{call} changes the whole device: call it on the first handle");
        Err(share.error(reason))
    })
}

/// Refuses a budget that does not leave what is guaranteed.
fn check_promises(engine: &Engine, limit_bytes: u64) -> Result<()> {
    let whole = Whole {
        limit_bytes,
        ..whole(engine)
    };
    let promised_bytes = engine.lock().memory.shares.promised_within(whole);
    match promised_bytes <= limit_bytes {
        true => Ok(()),
        false => Err(Error::Option {
            option: "budget",
            reason: format!(
                "it leaves {} beside staging, and {} are guaranteed to shares: lower the \
                 guarantees first",
                Bytes(limit_bytes),
                Bytes(promised_bytes),
            ),
        }),
    }
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
    Err(Error::Share {
        share: printable(name, 60),
        reason: wrong.into(),
    })
}
