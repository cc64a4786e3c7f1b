//! Uploads: the call copies the bytes to staging memory. They reach their storage in program order.

mod give_way;

use std::sync::Arc;

use super::block_on;
use super::handle::Engine;
use super::pass::Pass;
use super::queue::cmd::Cmd;
use super::reclaim::{self, StagingTries, refuse, shrink};
use crate::driver::DriverError;
use crate::error::{Error, Result};
use crate::memory::{Source, Storage};
use crate::transfer::{FEED_BYTES, refusal};

pub(super) const WHAT: &str = "an upload";

/// The most bytes of a new storage that need no staging in a browser, such as indices and masks.
const SMALL_BYTES: usize = 1 << 20;

/// Whether a call may block its thread here. In a browser it may not.
pub(super) const BLOCKS: bool = cfg!(not(target_arch = "wasm32"));

/// Awaits a step of an upload. If it may not wait, runs the step only as far as that goes without a
/// wait.
async fn wait_or_refuse<T>(may_wait: bool, wait: impl Future<Output = Result<T>>) -> Result<T> {
    match may_wait {
        true => wait.await,
        false => block_on(WHAT, wait),
    }
}

/// An upload of several pieces. Poisons its storage if the upload fails or is dropped while it
/// waits.
struct UploadGuard<'a> {
    engine: &'a Arc<Engine>,
    dst: &'a Arc<Storage>,
    begun: bool,
    ended: Option<Result<()>>,
}

impl Drop for UploadGuard<'_> {
    fn drop(&mut self) {
        if !self.begun {
            return;
        }
        let dropped = || Error::driver(WHAT, "the app dropped it before its end");
        let ended = self.ended.take().unwrap_or_else(|| Err(dropped()));
        if let Err(error) = ended {
            // The poison is queued after the pieces, so commands before them still see the old
            // value.
            let (dst, cause) = (self.dst.clone(), Arc::new(error));
            // A lost device takes no commands. Readers learn of the loss from the device.
            let _ = self.engine.push_one(Cmd::Poison { dst, cause });
        }
        self.dst.end_write();
    }
}

/// Stages all bytes of an upload and appends it, without a future. In a browser, which cannot wait
/// for staging here, a small new storage that finds no room is backed by a copy of the bytes. The
/// pass that needs them waits.
pub(super) fn stage_now(
    engine: &Arc<Engine>,
    dst: &Arc<Storage>,
    offset_bytes: u64,
    bytes: &[u8],
) -> Result<()> {
    let is_small = bytes.len() as u64 == dst.len_bytes() && bytes.len() <= SMALL_BYTES;
    let is_new = dst.slot().is_none() && Arc::strong_count(dst) == 1;
    if BLOCKS || !is_small || !is_new {
        let staged = stage_whole(engine, dst, offset_bytes, bytes, BLOCKS);
        return block_on(WHAT, staged);
    }
    let (uploads, wanted_bytes) = (&engine.uploads, bytes.len() as u64);
    // A refusal of the driver is no error: the pass makes room.
    let stage = || {
        let (region, taken) = uploads.stage(bytes).ok()??;
        (taken == bytes.len()).then_some(region)
    };
    let grow = || matches!(uploads.grow_now(wanted_bytes), Ok(true));
    let Some(region) = stage().or_else(|| grow().then(stage)?) else {
        engine.back_new(dst, Source::bytes(bytes.into()));
        return Ok(());
    };
    let upload = Cmd::Upload {
        dst: dst.clone(),
        offset_bytes,
        region,
        whole: true,
    };
    push_staged(engine, dst, [upload])
}

/// Stages all bytes of an upload and appends it.
pub(super) async fn stage_whole(
    engine: &Arc<Engine>,
    dst: &Arc<Storage>,
    offset_bytes: u64,
    bytes: &[u8],
    may_wait: bool,
) -> Result<()> {
    let mut guard = UploadGuard {
        engine,
        dst,
        begun: false,
        ended: None,
    };
    let whole = offset_bytes == 0 && bytes.len() as u64 >= dst.len_bytes();
    let begun = &mut guard.begun;
    let staged = stage_all(engine, dst, offset_bytes, bytes, whole, begun, may_wait);
    let staged = staged.await;
    guard.ended = Some(staged.clone());
    drop(guard);
    staged
}

/// Stages the next part of an upload that began at offset 0. All bytes are queued before the
/// caller has the next part, so others may use the chunk.
pub(super) async fn stage_part(
    engine: &Arc<Engine>,
    dst: &Arc<Storage>,
    at: u64,
    bytes: &[u8],
    may_wait: bool,
) -> Result<()> {
    stage_all(engine, dst, at, bytes, at == 0, &mut true, may_wait).await
}

/// Stages bytes and appends them. `whole`: this is the first part of an upload that replaces the
/// whole value. `begun` is set once the first pieces are in the queue. Unless it `may_wait`, the
/// call fails where it would have to wait.
pub(super) async fn stage_all(
    engine: &Arc<Engine>,
    dst: &Arc<Storage>,
    offset_bytes: u64,
    bytes: &[u8],
    mut whole: bool,
    begun: &mut bool,
    may_wait: bool,
) -> Result<()> {
    let (mut rest, mut at) = (bytes, offset_bytes);
    let mut staged = Vec::new();
    // Behind other work, chunks return late.
    let is_idle = engine.is_idle();
    let (mut tries, mut waiting_bytes) = (StagingTries::default(), 0);
    while !rest.is_empty() {
        let piece = engine.uploads.stage(rest);
        let piece = piece.map_err(|error| refusal("to write to staging memory", error))?;
        if let Some((region, taken)) = piece {
            let next = at + region.size_bytes;
            staged.push(Cmd::Upload {
                dst: dst.clone(),
                offset_bytes: at,
                region,
                whole: std::mem::take(&mut whole),
            });
            (rest, at, tries) = (&rest[taken..], next, StagingTries::default());
            waiting_bytes += taken as u64;
            if waiting_bytes >= FEED_BYTES && !rest.is_empty() {
                waiting_bytes = 0;
                push_begun(engine, dst, begun, &mut staged)?;
                engine.try_run_queue();
            }
            continue;
        }
        // If the driver refuses memory here, it is asked again below, where the engine makes room.
        if matches!(engine.uploads.grow_now(rest.len() as u64), Ok(true)) {
            continue;
        }
        if may_wait && engine.driver.returns_early() {
            // The app may stop polling from here on. The staged pieces are queued so that the next
            // pass runs them. Otherwise their chunks would be kept from all other uploads.
            push_begun(engine, dst, begun, &mut staged)?;
            waiting_bytes = 0;
        }
        // An error occurs again below, where the engine makes room.
        let wait = async { Ok(matches!(engine.uploads.wait().await, Ok(true))) };
        if is_idle && engine.uploads.has_enough() && wait_or_refuse(may_wait, wait).await? {
            continue;
        }
        let grown = async {
            let grown = engine.uploads.grow(rest.len() as u64).await;
            grown.map_err(|error| refuse::refused(engine, "staging memory", error, dst))
        };
        if wait_or_refuse(may_wait, grown).await? {
            continue;
        }
        push_begun(engine, dst, begun, &mut staged)?;
        waiting_bytes = 0;
        let wait = more_staging(engine, dst, rest.len() as u64, tries);
        tries = wait_or_refuse(may_wait, wait).await?;
    }
    push_staged(engine, dst, staged)
}

/// Appends pieces of an upload that is not finished.
fn push_begun(
    engine: &Arc<Engine>,
    dst: &Arc<Storage>,
    begun: &mut bool,
    staged: &mut Vec<Cmd>,
) -> Result<()> {
    if !staged.is_empty() && !std::mem::replace(begun, true) {
        dst.begin_write();
    }
    push_staged(engine, dst, staged.drain(..))
}

/// Appends uploads. Bytes staged on a device that was replaced since are lost.
fn push_staged(
    engine: &Arc<Engine>,
    dst: &Arc<Storage>,
    staged: impl IntoIterator<Item = Cmd>,
) -> Result<()> {
    engine.append(|list, loss| {
        // A thread that sees the new version appends its reads after these.
        dst.bump_version(None);
        list.extend(staged.into_iter().map(|mut cmd| {
            loss.apply(&mut cmd);
            cmd
        }));
    })
}

/// Waits for staging memory: for a chunk whose submission ends, or for memory that reclaim frees.
/// `tries` are the attempts before. Returns those until now.
async fn more_staging(
    engine: &Arc<Engine>,
    dst: &Arc<Storage>,
    wanted_bytes: u64,
    tries: StagingTries,
) -> Result<StagingTries> {
    engine.check_lost()?;
    let dst = dst.clone();
    let work =
        move |pass: Pass| async move { find_staging(&pass, &dst, wanted_bytes, tries).await };
    Pass::run(engine, work).await
}

/// As [`more_staging`], for a caller that has the execution lock.
async fn find_staging(
    pass: &Pass,
    dst: &Arc<Storage>,
    wanted_bytes: u64,
    mut tries: StagingTries,
) -> Result<StagingTries> {
    let refused = |error| refuse::refused(pass, "staging memory", error, dst);
    pass.lock().counters.staging_waits += 1;
    // The staging may wait for commands of lower priorities, too.
    pass.execute_all().await?;
    pass.uploads.sweep().map_err(refused)?;
    if pass.uploads.wait().await.map_err(refused)? || pass.uploads.has_room() {
        return Ok(tries);
    }
    let way = reclaim::make_way_for_staging(pass, wanted_bytes, &mut tries);
    let tries_again = pass.for_memory(Some(dst), way).await?;
    if pass.uploads.grow(wanted_bytes).await.map_err(refused)? {
        return Ok(tries);
    }
    let left_behind = pass.lock().left_behind.uploads();
    if pass.uploads.will_return(left_behind) {
        // Another thread holds a chunk, or has staged uploads that run with the next execution
        // pass.
        std::thread::yield_now();
        return Ok(tries);
    }
    if tries_again || shrink::was_lowered(pass).await? {
        return Ok(tries);
    }
    // All staged uploads wait for commands that found no room.
    if give_way::others_give_way(pass, dst).await? {
        return Ok(tries);
    }
    let left = pass.lock().left_behind.first_error_of(dst.share());
    Err(left.unwrap_or_else(|| refused(DriverError::OutOfMemory)))
}
