//! Reads: appended at the call, finished when somebody awaits them.

use std::sync::Arc;

use super::cmd::Cmd;
use super::{Engine, refusal};
use crate::driver::BoxFuture;
use crate::error::{Error, Result};
use crate::memory::Storage;
use crate::transfer::{Reading, Sink};

/// Tells the engine, on drop, that nobody wants the bytes.
#[derive(Debug)]
pub(super) struct Wanted(pub(super) Arc<Reading>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Engine {
    /// Reads bytes (any offset and length), once everything appended before has run, and hands
    /// them to `sink` piece by piece, in order. The read is appended at the call, not at the first
    /// poll. The sink is called from whichever thread walks, and must not call the engine.
    pub(crate) fn read_to(
        self: &Arc<Self>,
        src: &Arc<Storage>,
        offset_bytes: u64,
        len_bytes: u64,
        sink: Sink,
    ) -> Result<BoxFuture<'static, Result<()>>> {
        debug_assert!(offset_bytes + len_bytes <= src.size_bytes());
        self.check_lost()?;
        let (reading, pieces) =
            Reading::new(offset_bytes, len_bytes, self.readbacks.piece_bytes(), sink);
        self.push(pieces.into_iter().map(|piece| Cmd::Read {
            src: src.clone(),
            reading: reading.clone(),
            piece,
        }))?;
        let (engine, src, wanted) = (self.clone(), src.clone(), Wanted(reading));
        Ok(Box::pin(async move {
            engine.finish_read(&src, &wanted.0).await
        }))
    }

    async fn finish_read(&self, src: &Arc<Storage>, reading: &Arc<Reading>) -> Result<()> {
        self.check_lost()?;
        {
            let _turn = self.take_turn().await?;
            self.walk().await?;
            // What became of the source later is no concern of a read that has been submitted,
            // and the next walk will forget what this one has left behind.
            if !reading.is_submitted() {
                self.error_of(src)?;
                if let Some(error) = self.lock().left.reason_of_reading(reading) {
                    return Err(error);
                }
            }
        }
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
