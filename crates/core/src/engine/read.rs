//! Reads: appended at the call, finished when somebody awaits them.

use std::sync::Arc;

#[cfg(not(target_arch = "wasm32"))]
use super::block_on;
use super::cmd::Cmd;
use super::{Engine, refusal};
use crate::driver::BoxFuture;
use crate::error::{Error, Result};
use crate::memory::Storage;
use crate::transfer::{Piece, Reading, Sink};

/// Tells the engine, on drop, that nobody wants the bytes.
#[derive(Debug)]
pub(super) struct Wanted(pub(super) Arc<Reading>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Engine {
    /// Reads bytes (any offset and length), once everything appended before has run, and hands them
    /// to `sink` piece by piece, in order. The read is appended at the call, not at the first poll.
    /// The sink is called from whichever thread executes the queue, and must not call the engine.
    pub(crate) fn read_to(
        self: &Arc<Self>,
        src: &Arc<Storage>,
        whole: Piece,
        sink: Sink,
    ) -> Result<BoxFuture<'static, Result<()>>> {
        let wanted = self.begin_read(src, whole, self.readbacks.piece_bytes(), sink)?;
        let (engine, src) = (self.clone(), src.clone());
        Ok(Box::pin(async move {
            engine.finish_read(&src, &wanted.0).await
        }))
    }

    /// Shows bytes (any offset and length) to `look` where they lie or arrive, once everything
    /// appended before has run; where they cannot be seen there, hands them to `sink` instead, as
    /// [`read_to`](Self::read_to) does, and returns `false`. What waits for the device is refused
    /// inside `look`, on this thread.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn show(
        self: &Arc<Self>,
        src: &Arc<Storage>,
        whole: Piece,
        sink: Sink,
        look: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        let mut look = |bytes: &[u8]| self.call_theirs(|| look(bytes));
        if self.show_in_place(src, whole, &mut look)? {
            return Ok(true);
        }
        let (_, size_bytes) = whole.words();
        let shows = !self.caps().maps_slabs && self.readbacks.shows(size_bytes);
        let piece_bytes = match shows {
            true => size_bytes,
            false => self.readbacks.piece_bytes(),
        };
        let wanted = self.begin_read(src, whole, piece_bytes, sink)?;
        block_on("a read", async {
            if !shows {
                self.finish_read(src, &wanted.0).await?;
                return Ok(false);
            }
            // What is to be shown is left where it arrives.
            self.submit_read(src, &wanted.0, false).await?;
            let shown = self.readbacks.show(&wanted.0, &mut look).await;
            self.check_lost()?;
            let is_shown = shown.map_err(|error| refusal("a read", error))?;
            if !is_shown {
                self.take_in(&wanted.0).await?;
            }
            Ok(is_shown)
        })
    }

    /// Appends a read of `whole` in pieces.
    fn begin_read(
        self: &Arc<Self>,
        src: &Arc<Storage>,
        whole: Piece,
        piece_bytes: u64,
        sink: Sink,
    ) -> Result<Wanted> {
        let (offset_bytes, len_bytes) = (whole.offset_bytes, whole.size_bytes);
        debug_assert!(offset_bytes + len_bytes <= src.size_bytes());
        self.check_lost()?;
        let (reading, pieces) = Reading::new(offset_bytes, len_bytes, piece_bytes, sink);
        self.push(pieces.into_iter().map(|piece| Cmd::Read {
            src: src.clone(),
            reading: reading.clone(),
            piece,
        }))?;
        Ok(Wanted(reading))
    }

    async fn finish_read(
        self: &Arc<Self>,
        src: &Arc<Storage>,
        reading: &Arc<Reading>,
    ) -> Result<()> {
        self.submit_read(src, reading, true).await?;
        self.take_in(reading).await
    }

    /// Runs what a read waits for, and the read; and takes in what arrives meanwhile, if that is
    /// asked for.
    async fn submit_read(
        self: &Arc<Self>,
        src: &Arc<Storage>,
        reading: &Arc<Reading>,
        takes_in: bool,
    ) -> Result<()> {
        self.check_lost()?;
        let execution_lock = self.lock_execution().await?;
        let (src, reading) = (src.clone(), reading.clone());
        let work = move |engine: Arc<Self>| async move {
            if takes_in {
                reading.await_now();
            }
            engine.execute().await?;
            // What became of the source later is no concern of a read that has been submitted,
            // and the next execution pass will forget what this one has left behind.
            if !reading.is_submitted() {
                engine.error_of(&src)?;
                if let Some(error) = engine.lock().left.reason_of_reading(&reading) {
                    return Err(error);
                }
            }
            Ok(())
        };
        self.with_execution_lock(execution_lock, work).await
    }

    /// Takes in what has been submitted of a read, piece by piece.
    pub(super) async fn take_in(&self, reading: &Arc<Reading>) -> Result<()> {
        while !reading.is_done() {
            self.check_lost()?;
            if let Some(error) = reading.failure() {
                return Err(error);
            }
            if !reading.is_submitted() {
                let message = "its copy was not submitted".into();
                return Err(Error::Driver {
                    what: "a read",
                    message,
                });
            }
            let taken_in = self.readbacks.take_in(reading).await;
            self.check_lost()?;
            taken_in.map_err(|error| refusal("a read", error))?;
        }
        Ok(())
    }
}
