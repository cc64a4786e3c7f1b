//! Bringing storages back that were put out, and reading them where they are.
//!
//! The bytes come from the best copy there is: the host's memory, else the source. They go into
//! staging of the walk's own, so that they never wait for an app's uploads, and from there by copies
//! in the batch; or straight into the slab, where host and device share memory and the
//! slab is idle.

use std::sync::Arc;

use super::{Engine, refusal};
use crate::driver::{DriverError, MapMode, Op};
use crate::error::{Error, Result};
use crate::memory::{Arrival, Copies, Place, Source, Storage};
use crate::transfer::{Piece, Reading, Region};
use crate::units::MIB;

/// A source is asked for so many bytes at a time.
const SOURCE_PIECE_BYTES: u64 = MIB;

/// A block for a storage on its way back; given up on drop, also if the walk is dropped.
struct Arriving<'a>(&'a Engine, Option<Arrival>);

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        if let Some(arrival) = self.1.take() {
            self.0.lock().memory.turn_away(arrival);
        }
    }
}

/// The bytes of a storage that is not on the device, piece by piece.
struct Supply<'a> {
    storage: &'a Storage,
    copies: &'a Copies,
    scratch: Vec<u8>,
}

impl Supply<'_> {
    /// Some of the bytes from an offset on, at most so many.
    fn piece(&mut self, offset_bytes: u64, most_bytes: u64) -> Result<&[u8]> {
        let left_bytes = self.storage.len_bytes() - offset_bytes;
        let piece_bytes = left_bytes.min(most_bytes);
        if let Some(host) = &self.copies.host {
            let start = offset_bytes as usize;
            return Ok(&host.bytes[start..start + piece_bytes as usize]);
        }
        let piece_bytes = piece_bytes.min(SOURCE_PIECE_BYTES);
        if let Some(disk) = &self.copies.disk {
            let scratch = &mut self.scratch;
            scratch.clear();
            let mut keep = |piece: &[u8]| {
                scratch.extend_from_slice(piece);
                Ok(())
            };
            disk.read(offset_bytes, piece_bytes, &mut keep)?;
            return Ok(&self.scratch);
        }
        self.scratch.resize(piece_bytes as usize, 0);
        if let Some(source) = &self.copies.source {
            let read = source.read(offset_bytes, &mut self.scratch);
            read.map_err(|error| Error::Source {
                made_at: self.storage.tag().to_string(),
                offset_bytes,
                message: error.to_string(),
            })?;
        }
        Ok(&self.scratch)
    }
}

impl Engine {
    /// Brings a storage back that was put out. The inner error is the command's that wants it.
    pub(super) async fn bring_in(&self, storage: &Arc<Storage>) -> Result<Result<()>> {
        let mut arriving = Arriving(self, None);
        let place = loop {
            {
                let mut state = self.lock();
                if !state.memory.is_away(storage) {
                    return Ok(Ok(()));
                }
                let received = state.memory.receive(storage);
                state.memory.anywhere = false;
                match received {
                    Ok(Some(arrival)) => {
                        let place = arrival.place;
                        arriving.1 = Some(arrival);
                        break place;
                    }
                    Ok(None) => {}
                    Err(error) => return Ok(Err(super::needs::never_fits(storage, &error))),
                }
            }
            if let Err(error) = self.make_room(storage).await? {
                return Ok(Err(error));
            }
        };
        let Some(copies) = self.lock().memory.away(storage) else {
            return Ok(Ok(()));
        };
        if let Err(error) = self.fill(storage, &copies, place).await {
            self.check_lost()?;
            if error.is_final() {
                // The bytes are gone: whoever wants them is told why.
                self.lock().memory.poison(storage, &Arc::new(error));
                return Ok(Ok(()));
            }
            return Ok(Err(error));
        }
        let mut state = self.lock();
        if let Some(arrival) = arriving.1.take() {
            state.memory.arrive(storage, arrival);
            state.memory.used(storage);
            state.batch.arrived.push(Arc::downgrade(storage));
            state.counters.brought_in_bytes += storage.len_bytes();
        }
        Ok(Ok(()))
    }

    /// Records, or does, what fills a place with the bytes of a storage.
    async fn fill(&self, storage: &Arc<Storage>, copies: &Copies, place: Place) -> Result<()> {
        let scratch = Vec::new();
        let mut supply = Supply {
            storage,
            copies,
            scratch,
        };
        let len_bytes = storage.len_bytes();
        if len_bytes == 0 {
            return Ok(());
        }
        let idle = self.lock().memory.idle(place, self.driver.completed());
        if self.caps().maps_slabs && idle == Some(true) {
            return self.fill_in_place(&mut supply, place, len_bytes).await;
        }
        let mut at = 0;
        while at < len_bytes {
            let mut piece = supply.piece(at, u64::MAX)?;
            // To its end before the next is asked for: the rest of it would be read again.
            while !piece.is_empty() {
                let (region, taken) = self.stage_arrival(piece).await?;
                let mut state = self.lock();
                state.memory.touch(place);
                state.batch.ops.push(Op::Copy {
                    src: region.buffer,
                    src_offset_bytes: region.offset_bytes,
                    dst: place.buffer,
                    dst_offset_bytes: place.offset_bytes + at,
                    size_bytes: region.size_bytes,
                });
                state.batch.regions.push(region);
                at += taken as u64;
                piece = &piece[taken..];
            }
        }
        Ok(())
    }

    async fn fill_in_place(
        &self,
        supply: &mut Supply<'_>,
        place: Place,
        len_bytes: u64,
    ) -> Result<()> {
        let refused = |error| refusal("to map a slab", error);
        let (buffer, size_bytes) = (place.buffer, len_bytes.next_multiple_of(4));
        let mapping = self
            .driver
            .map(buffer, MapMode::Write, place.offset_bytes, size_bytes);
        let signal = mapping.map_err(refused)?;
        let _mapped = super::direct::Mapped(self, buffer);
        self.driver.wait(&signal).await.map_err(refused)?;
        let mut at = 0;
        while at < len_bytes {
            let piece = supply.piece(at, u64::MAX)?;
            let written = self
                .driver
                .write_mapped(buffer, place.offset_bytes + at, piece);
            written.map_err(refused)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Copies the first of `bytes` into the walk's own staging, and says how many those are.
    async fn stage_arrival(&self, bytes: &[u8]) -> Result<(Region, usize)> {
        let refused = |error| refusal("staging memory", error);
        loop {
            if let Some(staged) = self.arrivals.stage(bytes).map_err(refused)? {
                return Ok(staged);
            }
            match self.arrivals.grow(bytes.len() as u64).await {
                Ok(true) => continue,
                Ok(false) | Err(DriverError::OutOfMemory | DriverError::OverBudget) => {}
                Err(error) => return Err(refused(error)),
            }
            // All of it is on its way: what was recorded so far must go, and come back.
            self.submit()?;
            self.arrivals.sweep().map_err(refused)?;
            if !self.arrivals.wait().await.map_err(refused)? && !self.arrivals.has_room() {
                self.make_way().await?;
                let grown = self.arrivals.grow(bytes.len() as u64).await;
                if !grown.map_err(refused)? && !self.arrivals.has_room() {
                    return Err(refused(DriverError::OutOfMemory));
                }
            }
        }
    }

    /// Hands a piece of a storage that is not on the device to the reading at the head of the
    /// queue: what is only looked at need not come back for it.
    pub(super) fn read_away(
        &self,
        storage: &Arc<Storage>,
        reading: &Arc<Reading>,
        piece: Piece,
    ) -> Result<()> {
        let Some(copies) = self.lock().memory.away(storage) else {
            return Ok(());
        };
        let scratch = Vec::new();
        let mut supply = Supply {
            storage,
            copies: &copies,
            scratch,
        };
        let (mut at, end) = (piece.offset_bytes, piece.offset_bytes + piece.size_bytes);
        let mut bytes = Vec::new();
        while at < end {
            match supply.piece(at, end - at) {
                Ok(piece) => {
                    bytes.extend_from_slice(piece);
                    at += piece.len() as u64;
                }
                Err(error) => {
                    reading.fail(error);
                    break;
                }
            }
        }
        if at == end {
            reading.deliver(&bytes);
        }
        let mut state = self.lock();
        state.memory.used(storage);
        state.queue.pop_front();
        Ok(())
    }

    /// Asks for a storage to be back on the device when the queue comes to it.
    pub(crate) fn prefetch(&self, storage: &Arc<Storage>) -> Result<()> {
        self.push_one(super::cmd::Cmd::Prefetch(storage.clone()))
    }

    /// Lets a source stand in for the bytes that a storage has now, once what is queued has run.
    pub(crate) async fn back(&self, storage: &Arc<Storage>, source: Source) -> Result<()> {
        self.check_lost()?;
        let _turn = self.take_turn().await?;
        self.walk().await?;
        self.error_of(storage)?;
        let mut state = self.lock();
        state
            .memory
            .copied(storage, |copies| copies.source = Some(source));
        Ok(())
    }

    /// A storage whose bytes its source will give when somebody uses it.
    pub(crate) fn back_new(&self, storage: &Arc<Storage>, source: Source) {
        let copies = Copies {
            source: Some(source),
            ..Copies::default()
        };
        self.lock().memory.back(storage, copies);
    }
}
