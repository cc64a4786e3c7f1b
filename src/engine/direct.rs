//! Transfers without staging, where host and device share memory: a slab is mapped where it lies.
//!
//! While a slab is mapped no submission may name it, so both directions need the slab idle and
//! the turn: nobody else encodes meanwhile. In exchange the bytes are copied once, at the speed of
//! memory.

use std::sync::Arc;

use super::{Engine, block_on, refusal};
use crate::driver::{BufferId, DriverResult, MapMode};
use crate::error::Result;
use crate::memory::{Place, Storage};
use crate::transfer::{Piece, Reading};

/// Uploads from this on look for an idle slab; below, the copy out of staging costs less than
/// two calls to the driver.
const DIRECT_BYTES: usize = 32 << 10;

/// A slab that is mapped, or about to be, until this is dropped: also if the walk is dropped
/// while it waits.
pub(super) struct Mapped<'a>(pub(super) &'a Engine, pub(super) BufferId);

impl Drop for Mapped<'_> {
    fn drop(&mut self) {
        self.0.driver.unmap(self.1);
    }
}

impl Engine {
    /// Uploads into a storage that has no place yet by mapping the one it gets. `false` where
    /// that cannot be or does not pay: then nothing is lost, and staging does it.
    pub(super) fn upload_in_place(&self, dst: &Arc<Storage>, bytes: &[u8]) -> Result<bool> {
        let fresh = dst.slot().is_none() && Arc::strong_count(dst) == 1;
        if !self.caps().maps_slabs || bytes.len() < DIRECT_BYTES || !fresh {
            return Ok(false);
        }
        let Some(_turn) = self.turn.try_take() else {
            return Ok(false);
        };
        // What was finished meanwhile makes slabs idle; a loss shows below.
        let _ = self.driver.poll();
        self.check_lost()?;
        let Some(place) = self.place_now(dst)? else {
            return Ok(false);
        };
        if self.lock().memory.idle(place, self.driver.completed()) != Some(true) {
            return Ok(false);
        }
        let written = block_on("an upload", async {
            Ok(self.write_in_place(place, bytes).await)
        })?;
        self.check_lost()?;
        Ok(written.is_ok())
    }

    /// A place for a storage without waiting for its first command.
    fn place_now(&self, storage: &Arc<Storage>) -> Result<Option<Place>> {
        for _ in 0..2 {
            {
                let mut state = self.lock();
                state.bury();
                let placed = state.memory.place(storage);
                state.memory.anywhere = false;
                if let Ok(Some(place)) = placed {
                    return Ok(Some(place));
                }
            }
            if block_on("an upload", self.make_room(storage))?.is_err() {
                break;
            }
        }
        self.lock().memory.anywhere = false;
        Ok(None)
    }

    async fn write_in_place(&self, place: Place, bytes: &[u8]) -> DriverResult<()> {
        let (buffer, at) = (place.buffer, place.offset_bytes);
        let size_bytes = (bytes.len() as u64).next_multiple_of(4);
        let signal = self.driver.map(buffer, MapMode::Write, at, size_bytes)?;
        let _mapped = Mapped(self, buffer);
        self.driver.wait(&signal).await?;
        self.driver.write_mapped(buffer, at, bytes)
    }

    /// Maps a range of an idle slab and hands it to the reading at the head of the queue.
    pub(super) async fn read_in_place(
        &self,
        reading: &Arc<Reading>,
        piece: Piece,
        place: Place,
    ) -> Result<()> {
        if !self.lock().batch.is_empty() {
            // A refusal would leave nothing to read: look again.
            return self.submit();
        }
        if self.lock().memory.idle(place, self.driver.completed()) == Some(false) {
            let waited = self.wait_idle().await;
            self.check_lost()?;
            if let Err(error) = waited {
                reading.fail(error);
                self.lock().pop_head();
                return Ok(());
            }
        }
        let (start, size_bytes) = piece.words();
        let from = place.offset_bytes + start;
        // A mapping starts at a multiple of 8.
        let (map_at, map_bytes) = (from & !7, size_bytes + (from & 7));
        let mapped = self
            .driver
            .map(place.buffer, MapMode::Read, map_at, map_bytes);
        let read = match mapped {
            Ok(signal) => {
                let _mapped = Mapped(self, place.buffer);
                let mut read = self.driver.wait(&signal).await;
                if read.is_ok() {
                    let skip = (from - map_at + (piece.offset_bytes & 3)) as usize;
                    let end = skip + piece.size_bytes as usize;
                    let mut deliver = |bytes: &[u8]| reading.deliver(&bytes[skip..end]);
                    read = self
                        .driver
                        .read_mapped(place.buffer, map_at, map_bytes, &mut deliver);
                }
                read
            }
            Err(error) => Err(error),
        };
        self.check_lost()?;
        if let Err(error) = read {
            reading.fail(refusal("to map a slab", error));
        }
        // The command has been carried out here.
        self.lock().pop_head();
        Ok(())
    }
}
