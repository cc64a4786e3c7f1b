//! Supplies the bytes of an evicted storage: from the host's memory, a store, the disk or a source.

use std::future::poll_fn;
use std::ops::{Deref, Range};
use std::pin::pin;
use std::time::Duration;

use crate::driver::{DriverError, MapMode};
use crate::engine::handle::Engine;
use crate::engine::inside::Inside;
use crate::engine::mapped::Mapped;
use crate::engine::pass::Pass;
use crate::engine::state::cost::Stopwatch;
use crate::error::{Error, Result};
use crate::memory::{Copies, HostCopy, Place, Source, Storage, Tag, Tier};
use crate::transfer::{SpillBlock, StoreReader, refusal};
use crate::units::MIB;
use crate::waits::{self, WaitsFor};

/// The engine asks a source for this many bytes at a time.
pub(super) const SOURCE_PIECE_BYTES: u64 = MIB;

/// And awaits this many from an asynchronous one: each request to a server takes a while by itself.
const AWAITED_BYTES: u64 = 4 * MIB;

/// The bytes of an evicted storage, piece by piece.
pub(crate) struct Supply<'a> {
    engine: &'a Engine,
    storage: &'a Storage,
    copies: &'a Copies,
    /// The reader of the copy in a store.
    reader: Option<StoreReader<'a>>,
    /// The block in the heap of the host's memory, while its slab is mapped.
    mapped: Option<(Place, Mapped<'a>)>,
    /// The last piece that a thread has read ahead or that was awaited, and where it begins.
    ahead: Option<(u64, Vec<u8>)>,
    /// The time of such reads for which nobody waited.
    pub(crate) hidden: Duration,
    /// The engine's scratch buffer, borrowed until this is dropped. Its old contents do not matter.
    scratch: Vec<u8>,
}

impl Drop for Supply<'_> {
    fn drop(&mut self) {
        *self.engine.lock_scratch() = std::mem::take(&mut self.scratch);
    }
}

impl<'a> Supply<'a> {
    pub(crate) fn new(engine: &'a Engine, storage: &'a Storage, copies: &'a Copies) -> Self {
        let scratch = std::mem::take(&mut *engine.lock_scratch());
        Supply {
            engine,
            storage,
            copies,
            reader: (copies.store.as_ref()).map(|(_, block)| block.reader()),
            mapped: None,
            ahead: None,
            hidden: Duration::ZERO,
            scratch,
        }
    }

    /// As [`new`](Self::new), for a caller that would read a copy in the heap of the host's memory,
    /// too. Maps its slab until this is dropped. The caller submits nothing meanwhile.
    pub(crate) async fn mapping(
        pass: &'a Pass,
        storage: &'a Storage,
        copies: &'a Copies,
    ) -> Result<Self> {
        let mut supply = Supply::new(pass, storage, copies);
        let place = pass.lock().memory.heap_place(storage);
        let Some(place) = place else {
            return Ok(supply);
        };
        pass.submit()?;
        let is_ready = {
            let state = pass.lock();
            let is_there = state.memory.heap_place(storage) == Some(place);
            is_there && !state.refused_changes.are_left()
        };
        if !is_ready {
            // The driver refused the batch, and perhaps the bytes have not arrived.
            return Err(refusal("a submission", DriverError::OutOfMemory));
        }
        let refused = |error| refusal("to map a slab in the host's memory", error);
        let mapping = Mapped::begin(pass, MapMode::Read, place.at(0), storage.size_bytes());
        let mapped = pass.unless_lost(mapping.await)?.map_err(refused)?;
        supply.mapped = Some((place, mapped));
        Ok(supply)
    }

    /// The tier of the bytes. A source counts as a disk.
    pub(crate) fn tier(&self) -> Tier {
        self.copies.tier()
    }

    /// A part of the scratch buffer, with any contents.
    fn room(&mut self, size_bytes: u64) -> &mut [u8] {
        let size = size_bytes as usize;
        if self.scratch.len() < size {
            self.scratch.resize(size, 0);
        }
        &mut self.scratch[..size]
    }

    /// Passes the bytes of a range to `take`, piece by piece.
    pub(crate) async fn each(
        &mut self,
        range: Range<u64>,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            self.fetch(at, range.end - at).await?;
            let piece = self.piece(at, range.end - at)?;
            at += piece.len() as u64;
            take(piece)?;
        }
        Ok(())
    }

    /// Whether the pass awaits what a source gives. Otherwise a thread waits for it.
    fn awaits(&self, source: &Source) -> bool {
        source.comes_later() && self.engine.driver.returns_early()
    }

    /// Awaits the next bytes from an offset on, if the source is asynchronous.
    /// [`piece`](Self::piece), which waits for nothing of that kind, then has them.
    pub(crate) async fn fetch(&mut self, offset_bytes: u64, most_bytes: u64) -> Result<()> {
        let copies = self.copies;
        let Some(source) = copies.source.as_ref().filter(|source| self.awaits(source)) else {
            return Ok(());
        };
        let is_nearer = copies.host.is_some() || copies.disk.is_some() || self.reader.is_some();
        if is_nearer || self.engine.is_dry() || self.is_ahead(offset_bytes) {
            return Ok(());
        }
        let left_bytes = self.storage.len_bytes() - offset_bytes;
        let wanted_bytes = left_bytes.min(most_bytes).min(AWAITED_BYTES);
        let mut reading = pin!(source.give(offset_bytes, wanted_bytes as usize));
        let engine = self.engine.address();
        let reading = poll_fn(|context| {
            let _inside = Inside::enter(engine);
            reading.as_mut().poll(context)
        });
        match waits::wait(WaitsFor::Disk, reading).await {
            Ok(bytes) => {
                self.ahead = Some((offset_bytes, bytes));
                Ok(())
            }
            Err(error) => {
                let message = error.to_string();
                Err(source_failure(self.storage.tag(), offset_bytes, &message))
            }
        }
    }

    /// The bytes from an offset on: at least one, at most `most_bytes`.
    pub(crate) fn piece(&mut self, offset_bytes: u64, most_bytes: u64) -> Result<&[u8]> {
        let left_bytes = self.storage.len_bytes() - offset_bytes;
        let piece_bytes = left_bytes.min(most_bytes);
        let has_contents = self.engine.driver.has_contents();
        if self.engine.is_dry() || (!has_contents && self.copies.host.is_some()) {
            // The buffers have no contents, so any bytes will do.
            return Ok(self.room(piece_bytes.min(SOURCE_PIECE_BYTES)));
        }
        if let Some(HostCopy::Plain { bytes, .. }) = self.copies.host.as_deref() {
            let range = offset_bytes as usize..(offset_bytes + piece_bytes) as usize;
            let too_short = || {
                let message = "the copy in the host's memory is too short";
                source_failure(self.storage.tag(), offset_bytes, message)
            };
            return bytes.get(range).ok_or_else(too_short);
        }
        let piece_bytes = piece_bytes.min(SOURCE_PIECE_BYTES);
        if let Some((place, _)) = &self.mapped {
            return self.mapped_piece(*place, offset_bytes, piece_bytes);
        }
        if self.has_ahead(offset_bytes) {
            return Ok(self.piece_ahead(offset_bytes, piece_bytes));
        }
        let mut missing = None;
        if let Some(reader) = &mut self.reader {
            match reader.fetch(offset_bytes, most_bytes) {
                Ok(()) => {
                    let bytes = (self.reader.as_ref()).map(|reader| reader.fetched(offset_bytes));
                    let bytes = bytes.unwrap_or_default();
                    return Ok(&bytes[..bytes.len().min(piece_bytes as usize)]);
                }
                Err(error) => missing = Some(error),
            }
        }
        let (engine, storage, copies) = (self.engine, self.storage, self.copies);
        let origin = Origin {
            disk: copies.disk.as_deref(),
            source: (copies.source.as_ref()).filter(|source| !self.awaits(source)),
        };
        let made_at = || storage.tag();
        let read = origin.read(
            engine.address(),
            offset_bytes,
            self.room(piece_bytes),
            &made_at,
        );
        match read {
            Ok(()) => Ok(self.room(piece_bytes)),
            Err(error) if origin.is_nothing() => Err(missing.unwrap_or(error)),
            Err(error) => Err(error),
        }
    }

    /// Whether the last piece that was read ahead has this byte.
    fn is_ahead(&self, offset_bytes: u64) -> bool {
        (self.ahead.as_ref()).is_some_and(|(start, bytes)| {
            (*start..start + bytes.len() as u64).contains(&offset_bytes)
        })
    }

    /// Takes the piece that begins here, if a thread reads ahead. `false` if there is none.
    fn has_ahead(&mut self, offset_bytes: u64) -> bool {
        if self.is_ahead(offset_bytes) {
            return true;
        }
        if self.reader.is_some() {
            return false;
        }
        let Some((bytes, hidden)) = self.engine.next_ahead(self.storage, offset_bytes) else {
            return false;
        };
        self.hidden += hidden;
        match bytes {
            Ok(bytes) => {
                self.ahead = Some((offset_bytes, bytes));
                true
            }
            Err(_) => {
                // Perhaps the cause has gone since. The pass tries again, and has the error.
                self.engine.end_read(self.storage);
                false
            }
        }
    }

    fn piece_ahead(&self, offset_bytes: u64, most_bytes: u64) -> &[u8] {
        let Some((start, bytes)) = &self.ahead else {
            return &[];
        };
        let rest = &bytes[(offset_bytes - start) as usize..];
        &rest[..rest.len().min(most_bytes as usize)]
    }

    /// A piece of the mapped block.
    fn mapped_piece(&mut self, place: Place, offset_bytes: u64, piece_bytes: u64) -> Result<&[u8]> {
        // Mapped ranges begin at multiples of 8 and have multiples of 4 bytes.
        let before_bytes = offset_bytes % 8;
        let size_bytes = (before_bytes + piece_bytes).next_multiple_of(4);
        let start = place.at(offset_bytes - before_bytes);
        let engine = self.engine;
        let scratch = self.room(piece_bytes);
        let mut keep = |bytes: &[u8]| {
            let wanted = before_bytes as usize..(before_bytes + piece_bytes) as usize;
            scratch.copy_from_slice(&bytes[wanted]);
        };
        let mut watch = Stopwatch::new(engine.driver.has_clock());
        let read = watch.time(|| (engine.driver).read_mapped(start, size_bytes, &mut keep));
        read.map_err(|error| refusal("to read a slab in the host's memory", error))?;
        engine.note_host_read(piece_bytes, watch.spent());
        Ok(self.room(piece_bytes))
    }
}

/// Where bytes come from that are neither in the host's memory nor in a store.
pub(super) struct Origin<'a> {
    pub(super) disk: Option<&'a SpillBlock>,
    pub(super) source: Option<&'a Source>,
}

impl Origin<'_> {
    fn is_nothing(&self) -> bool {
        self.disk.is_none() && self.source.is_none()
    }

    /// Fills a slice with the bytes from an offset on. `engine` is the address of the engine that
    /// a source must not call.
    pub(super) fn read(
        &self,
        engine: usize,
        offset_bytes: u64,
        into: &mut [u8],
        made_at: &dyn Fn() -> Tag,
    ) -> Result<()> {
        let failure = |message: &str| source_failure(made_at(), offset_bytes, message);
        let mut missing = None;
        if let Some(disk) = self.disk {
            let (mut at, len_bytes) = (0, into.len() as u64);
            let mut keep = |piece: &[u8]| {
                into[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
                Ok(())
            };
            match disk.read(offset_bytes, len_bytes, &mut keep) {
                Ok(()) => return Ok(()),
                Err(error) => missing = Some(error),
            }
        }
        if let Some(source) = self.source {
            let read = || {
                let _inside = Inside::enter(engine);
                source.read(offset_bytes, into)
            };
            match waits::time(WaitsFor::Disk, read) {
                Ok(()) => return Ok(()),
                Err(error) => missing = Some(failure(&error.to_string())),
            }
        }
        Err(missing.unwrap_or_else(|| failure("the tensor has no source")))
    }
}

fn source_failure(made_at: Tag, offset_bytes: u64, message: &str) -> Error {
    Error::Source {
        made_at: made_at.to_string(),
        offset_bytes,
        message: message.to_owned(),
    }
}

/// Copies of a storage for a while. The storage may drop them meanwhile, and this may be their last
/// holder. They may hold a source of the app, so they are dropped as the app's values are.
pub(crate) struct CopiesGuard<'a>(&'a Engine, Copies);

impl Deref for CopiesGuard<'_> {
    type Target = Copies;

    fn deref(&self) -> &Copies {
        &self.1
    }
}

impl Drop for CopiesGuard<'_> {
    fn drop(&mut self) {
        self.0.drop_app_value(std::mem::take(&mut self.1));
    }
}

/// The copies of an evicted storage, if it has any.
pub(crate) fn evicted_copies<'a>(engine: &'a Engine, storage: &Storage) -> Option<CopiesGuard<'a>> {
    let copies = engine.lock().memory.slots.evicted_copies(storage);
    copies.map(|copies| CopiesGuard(engine, copies))
}
