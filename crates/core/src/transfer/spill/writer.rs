//! Filling a block: bytes go to the file as they come. When a frame is full, its header follows.
//!
//! A thread of the store writes large blocks, behind the work of the caller. A few MiB are on their
//! way to it. Frames that are compressed are collected first.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::frame::HEADER_BYTES;
use super::{Shared, SpillBlock};
use crate::error::{Error, Result, SpillFailure};
use crate::units::{KIB, MIB};
use crate::waits::{self, WaitsFor};
use crate::worker::Task;

/// A block of at least this size is written by the thread. To hand over less costs as much as to
/// write it.
const LEAST_BEHIND_BYTES: u64 = 64 * KIB;

/// The bytes of a block that are on their way to the thread.
const MOST_OUT_BYTES: usize = 4 * MIB as usize;

/// And those of all blocks of a store. Beyond that the caller writes itself.
const MOST_OF_ALL_BYTES: usize = 16 * MIB as usize;

/// The writes of a block that have not ended. On drop it waits for the one that runs: after that
/// another block may get the room in the file.
#[derive(Debug)]
struct Out {
    /// In order, each with its size.
    writes: VecDeque<(Task<io::Result<()>>, usize)>,
    bytes: usize,
    shared: Arc<Shared>,
}

impl Out {
    fn push(&mut self, write: Task<io::Result<()>>, size: usize) {
        self.writes.push_back((write, size));
        self.bytes += size;
        self.shared.out_bytes.fetch_add(size, Ordering::Relaxed);
    }

    fn lower(&mut self, size: usize) {
        self.bytes -= size;
        self.shared.out_bytes.fetch_sub(size, Ordering::Relaxed);
    }

    /// Waits for the oldest writes, until at most `most_bytes` are on their way.
    fn wait(&mut self, most_bytes: usize) -> io::Result<()> {
        while self.bytes > most_bytes {
            self.wait_for_oldest()?;
        }
        Ok(())
    }

    /// Takes in the oldest writes, as far as they have ended.
    fn take_ended(&mut self) -> io::Result<()> {
        while (self.writes.front()).is_some_and(|(write, _)| write.has_ended()) {
            self.wait_for_oldest()?;
        }
        Ok(())
    }

    fn wait_for_oldest(&mut self) -> io::Result<()> {
        let Some((write, size)) = self.writes.pop_front() else {
            return Ok(());
        };
        self.lower(size);
        let lost = || Err(io::Error::other("the thread of the file ended"));
        write.wait().unwrap_or_else(lost)
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        // The last first, so that none of them begins while another is waited for.
        while let Some((write, size)) = self.writes.pop_back() {
            write.stop();
            self.lower(size);
        }
    }
}

const WRITE: &str = "write a block";

/// A block that is being filled. If it is dropped before `finish`, its room is freed.
#[derive(Debug)]
pub(crate) struct SpillWriter {
    // Dropped before the block, which frees the room.
    out: Out,
    block: SpillBlock,
    /// The frame that is being filled, and the number of bytes in it.
    frame: usize,
    filled_bytes: u32,
    written_bytes: u64,
    checksum: crc32fast::Hasher,
    /// The bytes of a frame that is compressed once it is complete.
    #[cfg(feature = "lz4")]
    collected: Vec<u8>,
    /// The first error. Nothing can be written after it.
    failed: Option<Error>,
}

impl SpillWriter {
    pub(super) fn new(block: SpillBlock) -> SpillWriter {
        SpillWriter {
            out: Out {
                writes: VecDeque::new(),
                bytes: 0,
                shared: block.shared.clone(),
            },
            block,
            frame: 0,
            filled_bytes: 0,
            written_bytes: 0,
            checksum: crc32fast::Hasher::new(),
            #[cfg(feature = "lz4")]
            collected: Vec::new(),
            failed: None,
        }
    }

    /// Appends bytes. Large slices are best: each costs at least one system call.
    ///
    /// # Errors
    /// [`Error::Spill`] when the disk is full or fails, or when more bytes come than
    /// [`SpillStore::begin`](super::SpillStore::begin) announced. Then the block cannot be
    /// finished.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let ended = self.out.take_ended();
        let ended = ended.map_err(|error| self.write_failed(&error));
        let result = match self.is_behind() && self.has_room_for(bytes.len()) {
            true => ended.and_then(|()| self.append(bytes)),
            false => waits::time(WaitsFor::Disk, || ended.and_then(|()| self.append(bytes))),
        };
        self.failed = result.as_ref().err().cloned();
        result
    }

    /// Whether all bytes that came are in the file, or one write has failed.
    pub(crate) fn is_written(&self) -> bool {
        self.out.writes.iter().all(|(write, _)| write.has_ended())
    }

    /// The block, once all of its bytes are written. Waits for that.
    ///
    /// # Errors
    /// As [`write`](Self::write), and when fewer bytes came than were announced.
    pub(crate) fn finish(mut self) -> Result<SpillBlock> {
        if self.failed.is_none() && !self.out.writes.is_empty() {
            let written = waits::time(WaitsFor::Disk, || self.wait_for_writes(0));
            self.failed = written.err();
        }
        match self.failed {
            Some(error) => Err(error),
            None if self.written_bytes < self.block.len_bytes => {
                Err(self.wrong_length(self.written_bytes))
            }
            None => Ok(self.block),
        }
    }

    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        let left_bytes = self.block.len_bytes - self.written_bytes;
        if bytes.len() as u64 > left_bytes {
            return Err(self.wrong_length(self.written_bytes + bytes.len() as u64));
        }
        if self.block.shared.sizes_only {
            self.written_bytes += bytes.len() as u64;
            return Ok(());
        }
        while !bytes.is_empty() {
            let frame_bytes = self.block.frames[self.frame].header.raw_bytes;
            let room = (frame_bytes - self.filled_bytes) as usize;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.fill(now)?;
            self.filled_bytes += now.len() as u32;
            self.written_bytes += now.len() as u64;
            if self.filled_bytes == frame_bytes {
                self.close_frame()?;
                self.frame += 1;
                self.filled_bytes = 0;
            }
            bytes = later;
        }
        Ok(())
    }

    /// Adds bytes to the current frame.
    fn fill(&mut self, bytes: &[u8]) -> Result<()> {
        #[cfg(feature = "lz4")]
        if self.block.shared.compress {
            self.collected.extend_from_slice(bytes);
            return Ok(());
        }
        self.checksum.update(bytes);
        self.store(bytes, HEADER_BYTES + u64::from(self.filled_bytes))
    }

    /// Writes the header of the current frame, which is complete.
    fn close_frame(&mut self) -> Result<()> {
        #[cfg(feature = "lz4")]
        if self.block.shared.compress {
            self.store_collected()?;
        }
        let checksum = std::mem::take(&mut self.checksum).finalize();
        let header = &mut self.block.frames[self.frame].header;
        header.checksum = checksum;
        let header = header.encode();
        self.store(&header, 0)
    }

    #[cfg(feature = "lz4")]
    fn store_collected(&mut self) -> Result<()> {
        let raw = std::mem::take(&mut self.collected);
        let packed = lz4_flex::block::compress(&raw);
        let frame = &mut self.block.frames[self.frame];
        let stored = frame.header.choose(&raw, &packed);
        let wanted_bytes = HEADER_BYTES + stored.len() as u64;
        let mut state = self.block.shared.state.lock();
        state.room.refit(&mut frame.piece, wanted_bytes);
        drop(state);
        self.checksum.update(stored);
        let result = self.store(stored, HEADER_BYTES);
        self.collected = raw;
        self.collected.clear();
        result
    }

    /// Whether a thread writes the block.
    fn is_behind(&self) -> bool {
        self.block.len_bytes >= LEAST_BEHIND_BYTES
    }

    /// Writes at an offset of the current frame.
    fn store(&mut self, bytes: &[u8], offset_bytes: u64) -> Result<()> {
        let at_bytes = self.block.frames[self.frame].piece.offset_bytes + offset_bytes;
        let Some(file) = self.block.file.clone() else {
            return Ok(());
        };
        let out_bytes = self.out.shared.out_bytes.load(Ordering::Relaxed);
        if self.is_behind() && out_bytes + bytes.len() <= MOST_OF_ALL_BYTES {
            self.wait_for_writes(MOST_OUT_BYTES.saturating_sub(bytes.len()))?;
            let (file, bytes) = (file.clone(), bytes.to_vec());
            let size = bytes.len();
            let writes = &self.block.shared.writes;
            if let Some(write) = writes.begin(move || file.write(&bytes, at_bytes)) {
                self.out.push(write, size);
                return Ok(());
            }
        }
        let written = file.write(bytes, at_bytes);
        written.map_err(|error| self.write_failed(&error))
    }

    /// Whether so many bytes go to the thread at once.
    fn has_room_for(&self, size: usize) -> bool {
        let out_bytes = self.out.shared.out_bytes.load(Ordering::Relaxed);
        self.out.bytes + size <= MOST_OUT_BYTES && out_bytes + size <= MOST_OF_ALL_BYTES
    }

    fn wait_for_writes(&mut self, most_bytes: usize) -> Result<()> {
        let written = self.out.wait(most_bytes);
        written.map_err(|error| self.write_failed(&error))
    }

    fn write_failed(&self, error: &io::Error) -> Error {
        let block = &self.block;
        block.shared.failed(WRITE, block.len_bytes, error)
    }

    fn wrong_length(&self, got_bytes: u64) -> Error {
        let len_bytes = self.block.len_bytes;
        let cause = format!("{len_bytes} bytes were announced, and {got_bytes} came");
        let shared = &self.block.shared;
        shared.error(SpillFailure::Io, WRITE, len_bytes, cause)
    }
}
