//! Bytes of buffers on their way through the host, piece by piece, from devices and to them.
//!
//! Where host and device share memory, a piece is seen in its slab and written to its slab. On
//! other devices it is seen in the read-back buffer, and the next pieces are read while the host
//! works on it.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Buffer;
use super::landing::Landing;
use crate::engine::{SeenRead, UploadPart, block_on};
use crate::error::Result;
use crate::units::MIB;

/// The size of a piece. Two cores sum or copy it faster than one, and it stays in their caches.
pub const PIECE_BYTES: u64 = 4 * MIB;

/// Reads that are queued ahead of the piece that the host works on.
const AHEAD: usize = 3;

/// What became of a piece.
#[derive(Debug)]
pub enum Next {
    /// There is none: all were seen.
    End,
    /// The caller needs its bytes no longer.
    Done,
    /// The caller keeps the bytes. [`Pieces::take_back`] reuses their memory.
    Kept(Vec<u8>),
}

/// How a piece is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Where it arrived. The function may wait for another device.
    Arrived,
    /// In its slab. The execution lock of the device is held, so the function may not wait for a
    /// lock of another one.
    InPlace,
}

/// A piece on its way.
struct Ahead {
    read: SeenRead,
    landing: Arc<Mutex<Landing<u8>>>,
}

/// The bytes of buffers of one device, in pieces of [`PIECE_BYTES`]. Each buffer ends a piece.
pub struct Pieces {
    to_read: VecDeque<Buffer>,
    ahead: VecDeque<Ahead>,
    spares: Vec<Vec<u8>>,
}

debug_by_name!(Pieces);

impl Pieces {
    /// # Errors
    /// None for whole buffers and slices of them.
    pub fn new(buffers: impl IntoIterator<Item = Buffer>) -> Result<Self> {
        let mut to_read = VecDeque::new();
        for buffer in buffers {
            let mut at_bytes = 0;
            while at_bytes < buffer.size_bytes {
                let end_bytes = buffer.size_bytes.min(at_bytes + PIECE_BYTES);
                to_read.push_back(buffer.slice(at_bytes..end_bytes)?);
                at_bytes = end_bytes;
            }
        }
        Ok(Pieces {
            to_read,
            ahead: VecDeque::new(),
            spares: Vec::new(),
        })
    }

    /// Queues the reads of the first pieces and submits them, so that several devices work at once.
    ///
    /// # Errors
    /// [`DeviceLost`](crate::Error::DeviceLost).
    #[track_caller]
    pub fn start(&mut self) -> Result<()> {
        let engine = self.to_read.front().map(|first| first.engine.clone());
        self.read_ahead(AHEAD)?;
        if let Some(engine) = engine {
            engine.here().try_run_queue();
        }
        Ok(())
    }

    /// Queues the reads of all pieces, so that they come before what is recorded later. Not where
    /// the host sees the device's memory: there a read waits for the device.
    ///
    /// # Errors
    /// [`DeviceLost`](crate::Error::DeviceLost).
    #[track_caller]
    pub fn queue_all(&mut self) -> Result<()> {
        self.read_ahead(usize::MAX)
    }

    /// Waits for the next piece and shows it. `look` says whether it is done with the bytes.
    /// Otherwise the caller gets them. While `look` runs, this thread cannot wait for the device of
    /// the buffers.
    ///
    /// # Errors
    /// Those of [`Buffer::to_vec_async`].
    pub async fn next(&mut self, look: &mut impl FnMut(&[u8], Seen) -> bool) -> Result<Next> {
        self.read_ahead(AHEAD)?;
        let Ahead { read, landing } = match self.ahead.pop_front() {
            Some(ahead) => ahead,
            None => {
                let Some(piece) = self.to_read.pop_front() else {
                    return Ok(Next::End);
                };
                #[cfg(not(target_arch = "wasm32"))]
                if let Some(next) = self.show_in_place(&piece, look)? {
                    return Ok(next);
                }
                self.begin(&piece)?
            }
        };
        let (mut next, spares) = (Next::Done, &mut self.spares);
        let mut seen = |bytes: &[u8]| next = keep(bytes, Seen::Arrived, spares, look);
        if read.see(&mut seen).await? {
            return Ok(next);
        }
        let bytes = landing.lock().take()?;
        match look(&bytes, Seen::Arrived) {
            false => Ok(Next::Kept(bytes)),
            true => {
                self.take_back(bytes);
                Ok(Next::Done)
            }
        }
    }

    /// Reuses the memory of a piece.
    pub fn take_back(&mut self, bytes: Vec<u8>) {
        self.spares.push(bytes);
    }

    /// Keeps reads queued, on devices whose memory the host does not see.
    #[track_caller]
    fn read_ahead(&mut self, count: usize) -> Result<()> {
        while self.ahead.len() < count {
            let waits = |piece: &Buffer| !piece.engine.caps().maps_slabs;
            if !self.to_read.front().is_some_and(waits) {
                break;
            }
            let Some(piece) = self.to_read.pop_front() else {
                break;
            };
            let ahead = self.begin(&piece)?;
            self.ahead.push_back(ahead);
        }
        Ok(())
    }

    /// Queues the read of a piece.
    #[track_caller]
    fn begin(&mut self, piece: &Buffer) -> Result<Ahead> {
        let spare = self.spares.pop().unwrap_or_default();
        let (landing, sink) = Landing::shared(spare, piece.size_bytes as usize);
        let (engine, storage) = (piece.engine.here(), piece.storage.here());
        let read = SeenRead::begin(&engine, &storage, piece.piece(), sink)?;
        Ok(Ahead { read, landing })
    }

    /// Shows a piece in its slab. `None` if that is impossible.
    #[cfg(not(target_arch = "wasm32"))]
    fn show_in_place(
        &mut self,
        piece: &Buffer,
        look: &mut impl FnMut(&[u8], Seen) -> bool,
    ) -> Result<Option<Next>> {
        let (engine, mut next) = (&*piece.engine.here(), Next::Done);
        let spares = &mut self.spares;
        let mut seen = |bytes: &[u8]| {
            next = engine.call_theirs(|| keep(bytes, Seen::InPlace, spares, look));
        };
        let is_shown = engine.show_in_place(&piece.storage.here(), piece.piece(), &mut seen)?;
        Ok(is_shown.then_some(next))
    }
}

/// Shows a piece, and copies it if the function is not done with it.
fn keep(
    bytes: &[u8],
    seen: Seen,
    spares: &mut Vec<Vec<u8>>,
    look: &mut impl FnMut(&[u8], Seen) -> bool,
) -> Next {
    if look(bytes, seen) {
        return Next::Done;
    }
    let mut kept = spares.pop().unwrap_or_default();
    kept.clear();
    kept.extend_from_slice(bytes);
    Next::Kept(kept)
}

/// A new buffer that gets its bytes piece by piece, in order. Nothing else may use its memory
/// before it has all of them.
#[derive(Debug)]
pub struct Filling {
    buffer: Buffer,
    filled_bytes: u64,
}

impl Filling {
    /// The buffer is a new one, without another holder.
    pub fn new(buffer: Buffer) -> Self {
        Filling {
            buffer,
            filled_bytes: 0,
        }
    }

    /// Writes the next piece to its slab, if that needs no wait for another thread. Otherwise
    /// returns `false`, and nothing is written.
    ///
    /// # Errors
    /// [`DeviceLost`](crate::Error::DeviceLost).
    pub fn try_write(&mut self, bytes: &[u8]) -> Result<bool> {
        let (engine, storage) = (self.buffer.engine.here(), self.buffer.storage.here());
        let is_written = self.part(bytes).write_in_place(&engine, &storage)?;
        if is_written {
            self.filled_bytes += bytes.len() as u64;
        }
        Ok(is_written)
    }

    /// Writes the next piece where it is seen, and waits for this device if that is allowed there.
    /// Otherwise as [`try_write`](Self::try_write).
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn write_seen(&mut self, bytes: &[u8], seen: Seen) -> Result<bool> {
        match seen {
            Seen::Arrived => self.write_now(bytes).map(|()| true),
            Seen::InPlace => self.try_write(bytes),
        }
    }

    /// Writes the next piece: a multiple of 4 bytes, except for the last.
    ///
    /// # Errors
    /// Those of [`Buffer::write_async`]. The buffer then has no value.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if !self.try_write(bytes)? {
            let (engine, storage) = (self.buffer.engine.here(), self.buffer.storage.here());
            self.part(bytes).stage(&engine, &storage).await?;
            self.filled_bytes += bytes.len() as u64;
        }
        Ok(())
    }

    /// As [`write`](Self::write), and waits. A browser does not wait, but refuses.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn write_now(&mut self, bytes: &[u8]) -> Result<()> {
        block_on("an upload", self.write(bytes))
    }

    /// The buffer with all bytes.
    pub fn end(self) -> Buffer {
        self.buffer
    }

    fn part<'a>(&self, bytes: &'a [u8]) -> UploadPart<'a> {
        UploadPart {
            offset_bytes: self.filled_bytes,
            bytes,
        }
    }
}
