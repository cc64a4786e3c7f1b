//! Reads a state file: the table at once, the arrays on demand, each frame checked.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::format::{
    ALIGNMENT_BYTES, FRAME_BYTES, HEADER_BYTES, StateEntry, decode_header, decode_table,
};
use super::{StateFault, check_system, io_error};
use crate::file_formats::replace::FileOptions;
use lapidary_core::internal::SpillFile;
#[cfg(any(test, feature = "sim"))]
use lapidary_core::sim::FileSite;
use lapidary_core::{DType, Result, failure::StateFailure};

/// An open state file with a valid table. If the file is replaced or removed meanwhile, this still
/// reads the old contents.
#[derive(Debug)]
pub(crate) struct StateReader {
    path: PathBuf,
    file: SpillFile,
    entries: Vec<StateEntry>,
}

impl StateReader {
    /// Opens a file and reads its table.
    ///
    /// # Errors
    /// [`Error::State`](crate::Error::State).
    pub(crate) fn open(path: &Path, options: &FileOptions) -> Result<StateReader> {
        check_system(path)?;
        let opened = |error| io_error(path, "open it", &error);
        #[cfg(any(test, feature = "sim"))]
        options
            .faults
            .strike_plain(FileSite::Open)
            .map_err(opened)?;
        #[cfg(not(any(test, feature = "sim")))]
        let FileOptions {} = options;
        // Check before opening: opening a pipe waits for its other end, and a device has no end.
        if !fs::metadata(path).map_err(opened)?.is_file() {
            return Err(StateFault(StateFailure::Io, "it is not a regular file".into()).at(path));
        }
        let file = File::open(path).map_err(opened)?;
        let file_bytes = file.metadata().map_err(opened)?.len();
        let file = SpillFile::over(file);
        #[cfg(any(test, feature = "sim"))]
        let file = file.with_faults(options.faults.clone());
        let mut reader = StateReader {
            path: path.to_owned(),
            file,
            entries: Vec::new(),
        };
        let mut header = vec![0; file_bytes.min(HEADER_BYTES) as usize];
        reader.read_raw(0, &mut header)?;
        let header = decode_header(&header, file_bytes).map_err(|fault| fault.at(path))?;
        let mut table = reader.room_for(header.table_bytes)?;
        reader.read_raw(HEADER_BYTES, &mut table)?;
        reader.entries = decode_table(&table, &header).map_err(|fault| fault.at(path))?;
        reader.check_gaps(HEADER_BYTES + header.table_bytes)?;
        Ok(reader)
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The arrays, in the order in which they were saved.
    pub(crate) fn entries(&self) -> &[StateEntry] {
        &self.entries
    }

    /// Fills `bytes` from an offset of an array on. Whole MiB are read in place; a partial MiB is
    /// read whole, to check it.
    ///
    /// # Errors
    /// [`Error::State`](crate::Error::State); the contents of `bytes` are then unspecified.
    pub(crate) fn read(&self, index: usize, offset_bytes: u64, bytes: &mut [u8]) -> Result<()> {
        let outside = || self.fault("the requested range is outside of the array");
        let entry = self.entries.get(index).ok_or_else(outside)?;
        let end = offset_bytes.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > entry.len_bytes) {
            return Err(outside());
        }
        let (mut at, mut rest, mut scratch) = (offset_bytes, bytes, Vec::new());
        while !rest.is_empty() {
            let (start, frame_bytes) = entry.frame(at / FRAME_BYTES);
            let skipped = (at - start) as usize;
            let taken = (frame_bytes as usize - skipped).min(rest.len());
            let (here, after) = rest.split_at_mut(taken);
            if taken as u64 == frame_bytes {
                self.read_frame(entry, at / FRAME_BYTES, here)?;
            } else {
                scratch.resize(frame_bytes as usize, 0);
                self.read_frame(entry, at / FRAME_BYTES, &mut scratch)?;
                here.copy_from_slice(&scratch[skipped..skipped + taken]);
            }
            at += taken as u64;
            rest = after;
        }
        Ok(())
    }

    /// Reads and checks the whole file.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub(crate) fn verify(&self) -> Result<()> {
        let mut scratch = Vec::new();
        for entry in &self.entries {
            for index in 0..entry.checksums.len() as u64 {
                let (_, frame_bytes) = entry.frame(index);
                scratch.resize(frame_bytes as usize, 0);
                self.read_frame(entry, index, &mut scratch)?;
            }
        }
        Ok(())
    }

    fn read_frame(&self, entry: &StateEntry, index: u64, bytes: &mut [u8]) -> Result<()> {
        let at = entry.offset_bytes + index * FRAME_BYTES;
        self.read_raw(at, bytes)?;
        let expected = entry.checksums.get(index as usize);
        if expected != Some(&crc32fast::hash(bytes)) {
            let name = crate::file_formats::quoted(&entry.name);
            let reason = format!("the checksum of {name} is wrong, in the MiB at byte {at}");
            return Err(self.fault(&reason));
        }
        if entry.dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
            let name = crate::file_formats::quoted(&entry.name);
            return Err(self.fault(&format!(
                "{name} holds a byte that is neither true nor false"
            )));
        }
        Ok(())
    }

    /// Checks that the bytes before and between the arrays are zero.
    fn check_gaps(&self, mut end: u64) -> Result<()> {
        let mut gap = [0; ALIGNMENT_BYTES as usize];
        for entry in self.entries.iter().filter(|entry| entry.len_bytes > 0) {
            let gap = &mut gap[..(entry.offset_bytes - end) as usize];
            self.read_raw(end, gap)?;
            if gap.iter().any(|&byte| byte != 0) {
                return Err(self.fault(&format!("the gap at byte {end} is not zero")));
            }
            end = entry.offset_bytes + entry.len_bytes;
        }
        Ok(())
    }

    fn read_raw(&self, offset_bytes: u64, bytes: &mut [u8]) -> Result<()> {
        match self.file.read(bytes, offset_bytes) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.fault("it became shorter while it was read")),
            Err(error) => Err(io_error(&self.path, "read it", &error)),
        }
    }

    fn room_for(&self, len_bytes: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(len_bytes as usize).is_err() {
            let reason = "the host has no room for its table";
            return Err(StateFault(StateFailure::Io, reason.into()).at(&self.path));
        }
        bytes.resize(len_bytes as usize, 0);
        Ok(bytes)
    }

    fn fault(&self, reason: &str) -> lapidary_core::Error {
        StateFault::damaged(reason).at(&self.path)
    }
}
