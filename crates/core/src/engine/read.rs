//! Reads: the call appends them, and the awaiting task finishes them.

pub(super) mod seen;

use std::sync::Arc;

use super::handle::Engine;
use super::pass::Pass;
use super::queue::cmd::Cmd;
use crate::error::{Error, Result};
use crate::memory::Storage;
use crate::transfer::{Piece, Reading, ReadingGuard, Sink, refusal};

/// Appends a read of `whole` in pieces.
pub(super) fn begin_read(
    engine: &Arc<Engine>,
    src: &Arc<Storage>,
    whole: Piece,
    piece_bytes: u64,
    sink: Sink,
) -> Result<ReadingGuard> {
    let (offset_bytes, len_bytes) = (whole.offset_bytes, whole.size_bytes);
    debug_assert!(offset_bytes + len_bytes <= src.size_bytes());
    engine.check_lost()?;
    let (reading, pieces) = Reading::new(offset_bytes, len_bytes, piece_bytes, sink);
    let read = |piece| Cmd::Read {
        src: src.clone(),
        reading: reading.clone(),
        piece,
        by: engine.share().cloned(),
    };
    engine.append(|list, _| list.extend(pieces.into_iter().map(read)))?;
    Ok(ReadingGuard(reading))
}

pub(super) async fn finish_read(
    engine: &Arc<Engine>,
    src: &Arc<Storage>,
    reading: &Arc<Reading>,
) -> Result<()> {
    submit_read(engine, src, reading, true).await?;
    take_in(engine, reading).await
}

/// Runs the read and the commands before it. If `takes_in`, also takes in the bytes that arrive
/// meanwhile.
async fn submit_read(
    engine: &Arc<Engine>,
    src: &Arc<Storage>,
    reading: &Arc<Reading>,
    takes_in: bool,
) -> Result<()> {
    engine.check_lost()?;
    let (src, reading, wanted) = (src.clone(), reading.clone(), reading.clone());
    let work = move |pass: Pass| async move {
        if takes_in {
            reading.await_now();
        }
        pass.execute().await?;
        // The later fate of the source does not matter to a submitted read. For other reads the
        // error is taken here, because the next pass forgets the commands that this one left
        // behind.
        if !reading.is_submitted() {
            pass.error_of(&src)?;
            if let Some(error) = pass.lock().left_behind.error_of_reading(&reading) {
                return Err(error);
            }
        }
        Ok(())
    };
    let is_done = || engine.lock().has_priorities && wanted.is_submitted();
    Pass::run_unless(engine, is_done, work).await
}

/// Takes in the submitted pieces of a read, one by one.
pub(super) async fn take_in(engine: &Engine, reading: &Arc<Reading>) -> Result<()> {
    while !reading.is_done() {
        engine.check_lost()?;
        if let Some(error) = reading.failure() {
            return Err(error);
        }
        if !reading.is_submitted() {
            return Err(Error::driver("a read", "its copy was not submitted"));
        }
        let taken_in = engine.readbacks.take_in(reading).await;
        engine.check_lost()?;
        taken_in.map_err(|error| refusal("a read", error))?;
    }
    Ok(())
}
