//! Writes a state file: under a temporary name first, renamed at the end.

use std::path::{Path, PathBuf};

use super::format::{FRAME_BYTES, StateEntry, encode, lay_out};
use super::{StateFault, check_system, failed};
use crate::file_formats::replace::{FileOptions, Readers, Replacement};
use lapidary_core::{Result, failure::StateFailure};

/// A state file under construction. If it is dropped before `finish`, no file remains.
#[derive(Debug)]
pub(crate) struct StateWriter {
    /// The path to replace, as given, for errors.
    path: PathBuf,
    file: Replacement,
    entries: Vec<StateEntry>,
    table_bytes: u64,
    file_bytes: u64,
    /// The array that is being written, how many of its bytes are written, and the checksum of its
    /// last frame.
    current: usize,
    done_bytes: u64,
    frame: crc32fast::Hasher,
}

impl StateWriter {
    /// Starts a file with these arrays, whose bytes are then [appended](Self::append).
    ///
    /// # Errors
    /// [`Error::State`](crate::Error::State).
    pub(crate) fn create(
        path: &Path,
        mut entries: Vec<StateEntry>,
        options: &FileOptions,
    ) -> Result<StateWriter> {
        check_system(path)?;
        let (table_bytes, file_bytes) = lay_out(&mut entries).map_err(|fault| fault.at(path))?;
        let file = Replacement::create(path, Readers::Owner, options)
            .map_err(|failure| failed(path, failure))?;
        Ok(StateWriter {
            path: path.to_owned(),
            file,
            entries,
            table_bytes,
            file_bytes,
            current: 0,
            done_bytes: 0,
            frame: crc32fast::Hasher::new(),
        })
    }

    /// Appends the next bytes of the arrays, in the order of the entries.
    ///
    /// # Errors
    /// [`Error::State`](crate::Error::State).
    pub(crate) fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            self.skip_full();
            let Some(entry) = self.entries.get_mut(self.current) else {
                return Err(self.miscounted());
            };
            let (start, frame_bytes) = entry.frame(self.done_bytes / FRAME_BYTES);
            let left = start + frame_bytes - self.done_bytes;
            let (taken, rest) = bytes.split_at((bytes.len() as u64).min(left) as usize);
            self.frame.update(taken);
            let at = entry.offset_bytes + self.done_bytes;
            if taken.len() as u64 == left {
                let frame = std::mem::take(&mut self.frame);
                entry.checksums.push(frame.finalize());
            }
            self.write(taken, at)?;
            self.done_bytes += taken.len() as u64;
            bytes = rest;
        }
        Ok(())
    }

    /// Makes the file durable and renames it over the old one.
    ///
    /// # Errors
    /// [`Error::State`](crate::Error::State).
    pub(crate) fn finish(mut self) -> Result<()> {
        self.skip_full();
        if self.current < self.entries.len() {
            return Err(self.miscounted());
        }
        let head = encode(&self.entries, self.table_bytes, self.file_bytes);
        self.write(&head, 0)?;
        let StateWriter { path, file, .. } = self;
        file.finish().map_err(|failure| failed(&path, failure))
    }

    fn skip_full(&mut self) {
        let is_full = |entry: &StateEntry, done_bytes| entry.len_bytes == done_bytes;
        while self
            .entries
            .get(self.current)
            .is_some_and(|entry| is_full(entry, self.done_bytes))
        {
            self.current += 1;
            self.done_bytes = 0;
        }
    }

    fn write(&self, bytes: &[u8], offset_bytes: u64) -> Result<()> {
        let written = self.file.write(bytes, offset_bytes);
        written.map_err(|failure| failed(&self.path, failure))
    }

    fn miscounted(&self) -> lapidary_core::Error {
        let reason = "its arrays were not given as many bytes as their shapes hold";
        StateFault(StateFailure::Io, reason.into()).at(&self.path)
    }
}
