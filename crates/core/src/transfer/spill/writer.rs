//! Filling a block: bytes go to the file as they come. When a frame is full, its header follows.
//!
//! Frames that are compressed are collected first. All others are not copied on the way.

use super::SpillBlock;
use super::frame::HEADER_BYTES;
use crate::error::{Error, Result, SpillFailure};
use crate::waits::{self, WaitsFor};

const WRITE: &str = "write a block";

/// A block that is being filled. If it is dropped before `finish`, its room is freed.
#[derive(Debug)]
pub(crate) struct SpillWriter {
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
        let result = waits::time(WaitsFor::Disk, || self.append(bytes));
        self.failed = result.as_ref().err().cloned();
        result
    }

    /// The block, once all of its bytes are written.
    ///
    /// # Errors
    /// As [`write`](Self::write), and when fewer bytes came than were announced.
    pub(crate) fn finish(self) -> Result<SpillBlock> {
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
        let packed = super::frame::pack(&raw);
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

    /// Writes at an offset of the current frame.
    fn store(&self, bytes: &[u8], offset_bytes: u64) -> Result<()> {
        let block = &self.block;
        let at_bytes = block.frames[self.frame].piece.offset_bytes + offset_bytes;
        let written = match &block.file {
            Some(file) => file.write(bytes, at_bytes),
            None => Ok(()),
        };
        written.map_err(|error| block.shared.failed(WRITE, block.len_bytes, &error))
    }

    fn wrong_length(&self, got_bytes: u64) -> Error {
        let len_bytes = self.block.len_bytes;
        let cause = format!("{len_bytes} bytes were announced, and {got_bytes} came");
        let shared = &self.block.shared;
        shared.error(SpillFailure::Io, WRITE, len_bytes, cause)
    }
}
