//! The spill store: blocks of bytes in a file, for tensors that fit neither on the device nor in
//! the host's memory.
//!
//! Each store has one file. It is created at the first spill, no other program can open it, and it
//! is gone when the process ends, even by a crash. Nothing is synced to the disk: after a crash the
//! bytes are useless. A block is stored in frames of at most 1 MiB. The reader checks a whole frame
//! before it hands out a byte of it. So bytes are either right or not returned at all.
//!
//! A failure concerns only the block of the call. If the file cannot be created, the next spill
//! tries again.
//!
//! `file` creates the file and reads and writes it. `room` knows which block has which range of it.
//! `frame` has the layout of a frame, `writer` fills a block. The simulation can make every call
//! fail.

mod file;
mod frame;
mod room;
mod writer;

#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use parking_lot::Mutex;

#[cfg(any(test, feature = "sim"))]
use crate::driver::sim::FileFaults;
use crate::error::{Error, Result, SpillError, SpillFailure};
use crate::units::Level;
use crate::waits::{self, WaitsFor};
use crate::worker::Worker;
use frame::{Frame, HEADER_BYTES};
use room::{Refusal, Room};

pub use file::{SpillFile, random};
pub(crate) use writer::SpillWriter;

/// The folder, the quota and the compression of a store.
#[derive(Clone, Debug)]
pub(crate) struct SpillOptions {
    /// The folder for the file, created with mode 0700 if it does not exist. By default the
    /// system's folder for temporary files. A folder in memory, as some systems have, saves no
    /// memory.
    pub(crate) folder: Option<PathBuf>,
    /// The largest size of the file in bytes.
    pub(crate) quota_bytes: u64,
    /// Whether to compress frames with LZ4 if that makes them smaller; needs the feature `lz4`.
    pub(crate) compress: bool,
    /// Whether blocks have only sizes, as in a dry run. Then there is no file, and nothing reads
    /// the blocks.
    pub(crate) sizes_only: bool,
    /// The faults to inject.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) faults: FileFaults,
}

impl Default for SpillOptions {
    fn default() -> Self {
        SpillOptions {
            folder: None,
            quota_bytes: u64::MAX,
            compress: false,
            sizes_only: false,
            #[cfg(any(test, feature = "sim"))]
            faults: FileFaults::default(),
        }
    }
}

/// Keeps blocks of bytes in a file. Clones share one store. The store lives as long as a clone or
/// one of its blocks lives.
#[derive(Clone, Debug)]
pub(crate) struct SpillStore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    #[cfg(feature = "lz4")]
    compress: bool,
    sizes_only: bool,
    /// Writes large blocks.
    writes: Worker,
    /// The bytes that are on their way to it.
    out_bytes: AtomicUsize,
    state: Mutex<State>,
    #[cfg(any(test, feature = "sim"))]
    faults: FileFaults,
}

/// The lock is held for bookkeeping, and while the file is created or resized, but not for copies.
#[derive(Debug)]
struct State {
    room: Room,
    next_generation: u64,
    /// Whether the file has failed since it was created.
    file_failed: bool,
    /// The buffer of the last reader, for reuse.
    spare: Vec<u8>,
}

impl SpillStore {
    /// A store without a file. It does not access the disk yet.
    ///
    /// # Errors
    /// [`Error::Option`] for compression without the feature.
    pub(crate) fn new(options: SpillOptions) -> Result<SpillStore> {
        if options.compress && cfg!(not(feature = "lz4")) {
            return Err(Error::option(
                "spill_compress",
                "compressing what is evicted to disk needs the feature `lz4`",
            ));
        }
        let folder = match options.folder {
            Some(folder) => folder,
            // A browser has no such folder, and asking for it would not return.
            None if cfg!(not(any(unix, windows))) => PathBuf::new(),
            None => std::env::temp_dir(),
        };
        Ok(SpillStore(Arc::new(Shared {
            folder,
            #[cfg(feature = "lz4")]
            compress: options.compress,
            sizes_only: options.sizes_only,
            writes: Worker::new("lapidary writes"),
            out_bytes: AtomicUsize::new(0),
            state: Mutex::new(State {
                room: Room::new(options.quota_bytes),
                // A random start, so that blocks of different stores have different generations.
                next_generation: random(),
                file_failed: false,
                spare: Vec::new(),
            }),
            #[cfg(any(test, feature = "sim"))]
            faults: options.faults,
        })))
    }

    /// Reserves room for a block of `len_bytes` that belongs to `share`. The writer fills the
    /// block.
    ///
    /// # Errors
    /// [`Error::Spill`] when the quota or the disk is full, or the file cannot be created.
    pub(crate) fn begin(&self, len_bytes: u64, share: u64) -> Result<SpillWriter> {
        let shared = &self.0;
        let mut state = shared.state.lock();
        let generation = state.next_generation;
        state.next_generation = generation.wrapping_add(1);
        let mut block = SpillBlock {
            shared: shared.clone(),
            file: None,
            len_bytes,
            frames: Vec::new(),
        };
        if len_bytes > 0 {
            let taken = state.room.take(len_bytes, || shared.create_file());
            drop(state);
            let (file, pieces) = taken.map_err(|refusal| shared.refusal(len_bytes, refusal))?;
            block.file = Some(file);
            block.frames = frame::plan(pieces, len_bytes, share, generation);
        }
        Ok(SpillWriter::new(block))
    }

    /// The faults of its file.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn faults(&self) -> FileFaults {
        self.0.faults.clone()
    }

    /// The bytes of the file that blocks take, with headers and rounded up to pages.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.0.state.lock().room.used_bytes.now
    }

    /// The bytes of the file that blocks take, and the length of the file. Blocks include headers
    /// and are rounded up to pages. The quota limits the length.
    pub(crate) fn levels(&self) -> (Level, Level) {
        let state = self.0.state.lock();
        (state.room.used_bytes, state.room.file_bytes)
    }

    /// Sets the peaks to the present levels.
    pub(crate) fn reset_peaks(&self) {
        self.0.state.lock().room.reset_peaks();
    }

    /// Changes the quota. Blocks stay. If the quota is below the used bytes, no more is spilled,
    /// and the file shrinks as blocks at its end are dropped.
    pub(crate) fn set_quota(&self, quota_bytes: u64) {
        self.0.state.lock().room.quota_bytes = quota_bytes;
    }
}

impl Shared {
    fn create_file(&self) -> io::Result<SpillFile> {
        if self.sizes_only {
            return Ok(SpillFile::default());
        }
        if cfg!(not(any(unix, windows))) {
            return Err(ErrorKind::Unsupported.into());
        }
        SpillFile::create(
            &self.folder,
            #[cfg(any(test, feature = "sim"))]
            self.faults.clone(),
        )
    }

    /// Converts an error of the system into the error of the crate. Takes the lock.
    fn failed(&self, operation: &'static str, requested_bytes: u64, error: &io::Error) -> Error {
        let failure = match error.kind() {
            ErrorKind::Unsupported => SpillFailure::Unavailable,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                SpillFailure::DiskFull
            }
            _ => SpillFailure::Io,
        };
        if failure == SpillFailure::Io {
            self.state.lock().file_failed = true;
        }
        self.error(failure, operation, requested_bytes, error.to_string())
    }

    fn refusal(&self, requested_bytes: u64, refusal: Refusal) -> Error {
        match refusal {
            Refusal::Quota => {
                let operation = "find room";
                self.error(SpillFailure::QuotaFull, operation, requested_bytes, "")
            }
            Refusal::Grow(error) => self.failed("make the file longer", requested_bytes, &error),
            Refusal::Create(error) => {
                let failure = match error.kind() {
                    ErrorKind::Unsupported => SpillFailure::Unavailable,
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded => SpillFailure::DiskFull,
                    _ => SpillFailure::Folder,
                };
                let operation = "make a file";
                self.error(failure, operation, requested_bytes, error.to_string())
            }
        }
    }

    fn error(
        &self,
        failure: SpillFailure,
        operation: &'static str,
        requested_bytes: u64,
        cause: impl Into<String>,
    ) -> Error {
        let state = self.state.lock();
        Error::Spill(Arc::new(SpillError {
            failure,
            operation,
            requested_bytes,
            used_bytes: state.room.used_bytes.now,
            quota_bytes: state.room.quota_bytes,
            folder: self.folder.display().to_string(),
            cause: cause.into(),
        }))
    }
}

/// A block in the file. Dropping it frees its room.
#[derive(Debug)]
pub(crate) struct SpillBlock {
    shared: Arc<Shared>,
    /// `None` for a block without bytes.
    file: Option<Arc<SpillFile>>,
    len_bytes: u64,
    /// Sorted by their start in the block, without gaps.
    frames: Vec<Frame>,
}

impl SpillBlock {
    /// Passes `len_bytes` from `offset_bytes` on to `sink`, in order, in pieces of less than 1 MiB.
    /// Every piece is checked before. An error of `sink` ends the reading.
    ///
    /// # Errors
    /// [`Error::SpillCorrupt`] when the file holds other bytes than were written, [`Error::Spill`]
    /// when it cannot be read now. Pieces that were passed before are right.
    pub(crate) fn read(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let end_bytes = offset_bytes.checked_add(len_bytes);
        let Some(end_bytes) = end_bytes.filter(|end| *end <= self.len_bytes) else {
            let cause = format!("{len_bytes} bytes at {offset_bytes} exceed the block");
            let (failure, operation) = (SpillFailure::Io, "read a block");
            return Err(self.shared.error(failure, operation, self.len_bytes, cause));
        };
        if len_bytes == 0 {
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.shared.state.lock().spare);
        let result = waits::time(WaitsFor::Disk, || {
            self.read_frames(offset_bytes, end_bytes, &mut buffer, sink)
        });
        self.shared.state.lock().spare = buffer;
        result
    }

    fn read_frames(
        &self,
        offset_bytes: u64,
        end_bytes: u64,
        buffer: &mut Vec<u8>,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let first = (self.frames).partition_point(|frame| frame.header.end_bytes() <= offset_bytes);
        for frame in &self.frames[first..] {
            let start_bytes = frame.header.start_bytes;
            if start_bytes >= end_bytes {
                break;
            }
            let stored = self.read_frame(frame, buffer)?;
            let unpacked = frame.header.unpack(stored);
            let raw = unpacked.map_err(|reason| self.corrupt(frame, reason))?;
            let from = offset_bytes.saturating_sub(start_bytes) as usize;
            let to = (end_bytes.min(frame.header.end_bytes()) - start_bytes) as usize;
            let part = raw.get(from..to);
            sink(part.ok_or_else(|| self.corrupt(frame, "the frame is cut off"))?)?;
        }
        Ok(())
    }

    /// Reads and checks the stored bytes of a frame.
    fn read_frame<'a>(&self, frame: &Frame, buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let size = HEADER_BYTES as usize + frame.header.stored_bytes as usize;
        if buffer.len() < size {
            buffer.resize(size, 0);
        }
        let bytes = &mut buffer[..size];
        let read = match &self.file {
            Some(file) => file.read(bytes, frame.piece.offset_bytes),
            None => Ok(false),
        };
        match read {
            Ok(true) => {
                let checked = frame.header.check(bytes);
                checked.map_err(|reason| self.corrupt(frame, reason))
            }
            Ok(false) => Err(self.corrupt(frame, "the file ends before it")),
            Err(error) => Err(self.shared.failed("read a block", self.len_bytes, &error)),
        }
    }

    fn corrupt(&self, frame: &Frame, reason: &'static str) -> Error {
        self.shared.state.lock().file_failed = true;
        Error::SpillCorrupt {
            folder: self.shared.folder.display().to_string(),
            block_bytes: self.len_bytes,
            offset_bytes: frame.piece.offset_bytes,
            reason,
        }
    }
}

impl Drop for SpillBlock {
    fn drop(&mut self) {
        if self.frames.is_empty() {
            return;
        }
        let pieces = self.frames.drain(..).map(|frame| frame.piece).collect();
        let mut state = self.shared.state.lock();
        let file_failed = state.file_failed;
        state.room.give_back(pieces, file_failed);
        if state.room.used_bytes.now == 0 {
            state.file_failed = false;
            state.spare = Vec::new();
        }
    }
}
