//! Room in the spill file: which block has which range, and the length of the file.
//!
//! ```text
//!   file  │ piece │ hole │ piece │ piece │  hole  │ … │   hole   │
//!         └──────────── extent ───────────────────┘   └─ extent ─┘ cut off at the file's end
//! ```
//!
//! The file grows by extents, which are the slabs of a [`Carver`]. The file loses empty extents at
//! its end. The frames of a block lie in any holes, and small holes get smaller frames. So a block
//! fits if the holes and the rest of the quota are large enough together.

use std::io;
use std::sync::Arc;

use super::file::SpillFile;
use super::frame::{FRAME_BYTES, HEADER_BYTES};
use crate::alloc::{BlockId, Carver, SlabId};
use crate::units::{KIB, Level, MIB};

/// Ranges begin and end at page boundaries.
const GRANULE_BYTES: u64 = 4 * KIB;

/// The file grows by multiples of this, unless the quota allows less.
const EXTENT_BYTES: u64 = 4 * MIB;

/// A range of the file.
#[derive(Debug)]
pub(super) struct FileRange {
    id: BlockId,
    pub(super) offset_bytes: u64,
    pub(super) size_bytes: u64,
}

/// The reason why there is no room.
#[derive(Debug)]
pub(super) enum Refusal {
    Quota,
    Create(io::Error),
    Grow(io::Error),
}

#[derive(Debug)]
struct Extent {
    slab: SlabId,
    size_bytes: u64,
}

/// The file and its ranges. The file is created when the first range is asked for.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) quota_bytes: u64,
    carver: Carver,
    /// The extents from the start of the file to its end, without gaps.
    extents: Vec<Extent>,
    /// The start of each extent, by the index of its slab.
    begins: Vec<u64>,
    /// The bytes of all ranges.
    pub(super) used_bytes: Level,
    file: Option<Arc<SpillFile>>,
    /// The real length of the file. It is larger than the extents if the file could not be cut.
    pub(super) file_bytes: Level,
}

impl Room {
    pub(super) fn new(quota_bytes: u64) -> Room {
        Room {
            quota_bytes,
            carver: Carver::new(GRANULE_BYTES).expect("4 KiB is a power of two below 64 KiB"),
            extents: Vec::new(),
            begins: Vec::new(),
            used_bytes: Level::default(),
            file: None,
            file_bytes: Level::default(),
        }
    }

    pub(super) fn reset_peaks(&mut self) {
        self.used_bytes.reset_peak();
        self.file_bytes.reset_peak();
    }

    /// Reserves ranges for a block of `payload_bytes`, each with room for a header. Returns the
    /// file and the ranges, or takes none of them. `create` creates the file if there is none.
    pub(super) fn take(
        &mut self,
        payload_bytes: u64,
        create: impl FnOnce() -> io::Result<SpillFile>,
    ) -> Result<(Arc<SpillFile>, Vec<FileRange>), Refusal> {
        if payload_bytes > self.quota_bytes.saturating_sub(self.used_bytes.now) {
            return Err(Refusal::Quota);
        }
        let file = match &self.file {
            Some(file) => file.clone(),
            None => {
                let file = Arc::new(create().map_err(Refusal::Create)?);
                self.file.insert(file).clone()
            }
        };
        let mut pieces = Vec::new();
        match self.place(payload_bytes, &file, &mut pieces) {
            Ok(()) => Ok((file, pieces)),
            Err(refusal) => {
                self.give_back(pieces, false);
                Err(refusal)
            }
        }
    }

    fn place(
        &mut self,
        payload_bytes: u64,
        file: &SpillFile,
        pieces: &mut Vec<FileRange>,
    ) -> Result<(), Refusal> {
        let mut left_bytes = payload_bytes;
        let mut most_bytes = FRAME_BYTES;
        while left_bytes > 0 {
            let wanted_bytes = left_bytes.saturating_add(HEADER_BYTES).min(most_bytes);
            if let Some(piece) = self.allocate(wanted_bytes) {
                left_bytes -= wanted_bytes - HEADER_BYTES;
                pieces.push(piece);
                if self.used_bytes.now > self.quota_bytes {
                    return Err(Refusal::Quota);
                }
            } else if !self.grow(left_bytes, file)? {
                // No hole has this size, so the frame becomes smaller, down to one granule.
                if wanted_bytes <= GRANULE_BYTES {
                    return Err(Refusal::Quota);
                }
                most_bytes = wanted_bytes.next_power_of_two() / 2;
            }
        }
        Ok(())
    }

    fn allocate(&mut self, wanted_bytes: u64) -> Option<FileRange> {
        let id = self.carver.allocate(wanted_bytes).ok()?;
        let block = self.carver.block(id).ok()?;
        self.used_bytes.raise(block.size_bytes);
        Some(FileRange {
            id,
            offset_bytes: self.begins[block.slab.index()] + block.offset_bytes,
            size_bytes: block.size_bytes,
        })
    }

    /// Makes the file longer by the bytes that a block still needs, within the quota. `false` if
    /// the quota leaves nothing.
    fn grow(&mut self, left_bytes: u64, file: &SpillFile) -> Result<bool, Refusal> {
        let end_bytes = self.end_bytes();
        let frames = left_bytes.div_ceil(FRAME_BYTES - HEADER_BYTES);
        let needed_bytes = left_bytes
            .saturating_add(frames * HEADER_BYTES)
            .checked_next_multiple_of(EXTENT_BYTES)
            .unwrap_or(u64::MAX);
        let allowed_bytes = self.quota_bytes.max(self.file_bytes.now) - end_bytes;
        let grown_bytes = needed_bytes.min(allowed_bytes) / GRANULE_BYTES * GRANULE_BYTES;
        let new_end_bytes = end_bytes.saturating_add(grown_bytes);
        if grown_bytes == 0 {
            return Ok(false);
        }
        if new_end_bytes > self.file_bytes.now {
            file.set_len(new_end_bytes).map_err(Refusal::Grow)?;
            self.file_bytes.set(new_end_bytes);
        }
        let mut begin_bytes = end_bytes;
        while begin_bytes < new_end_bytes {
            let size_bytes = EXTENT_BYTES.min(new_end_bytes - begin_bytes);
            let Ok(slab) = self.carver.add_slab(size_bytes) else {
                // The tables are full: 2^21 extents.
                return Ok(begin_bytes > end_bytes);
            };
            if self.begins.len() <= slab.index() {
                self.begins.resize(slab.index() + 1, 0);
            }
            self.begins[slab.index()] = begin_bytes;
            self.extents.push(Extent { slab, size_bytes });
            begin_bytes += size_bytes;
        }
        Ok(true)
    }

    fn end_bytes(&self) -> u64 {
        let last = self.extents.last();
        last.map_or(0, |last| self.begins[last.slab.index()] + last.size_bytes)
    }

    /// Exchanges a range that is too large for its frame for one that fits.
    #[cfg(feature = "lz4")]
    pub(super) fn refit(&mut self, piece: &mut FileRange, wanted_bytes: u64) {
        // The search may overlook a hole that is less than an eighth larger than the request.
        if wanted_bytes.next_multiple_of(GRANULE_BYTES) > piece.size_bytes / 8 * 7 {
            return;
        }
        self.release(piece.id, piece.size_bytes);
        *piece = self
            .allocate(wanted_bytes)
            .expect("a hole that is larger by an eighth was made just now");
    }

    /// Frees ranges, and cuts off the end of the file if it is unused. After a failure the file is
    /// closed when its last range is freed: the next file may work.
    pub(super) fn give_back(&mut self, pieces: Vec<FileRange>, file_failed: bool) {
        for piece in pieces {
            self.release(piece.id, piece.size_bytes);
        }
        while let Some(last) = self.extents.last() {
            if self.carver.remove_slab(last.slab).is_err() {
                break;
            }
            self.extents.pop();
        }
        if self.extents.is_empty() && file_failed {
            self.file = None;
            self.file_bytes.set(0);
        }
        let end_bytes = self.end_bytes();
        let is_too_long = end_bytes < self.file_bytes.now;
        if let Some(file) = self.file.as_ref().filter(|_| is_too_long) {
            // If the file cannot be cut now, the end is reused, or cut the next time.
            if file.set_len(end_bytes).is_ok() {
                self.file_bytes.set(end_bytes);
            }
        }
    }

    fn release(&mut self, id: BlockId, size_bytes: u64) {
        if self.carver.free(id).is_ok() {
            self.used_bytes.lower(size_bytes);
        }
    }
}
