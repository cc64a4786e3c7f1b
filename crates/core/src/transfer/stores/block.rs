//! A block in a store: its bytes in parts, each a value with a key, and their checksums.
//!
//! While bytes come from the device, full parts are on their way to the store. While the first
//! parts of a block are used, the next ones are on their way back. A few MiB are in between.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::open::Shared;
use super::store::{Key, MOST_VALUE_BYTES};
use super::worker::{Call, Removal};
use crate::error::{Error, Result, StoreFailure};
use crate::waits::{self, WaitsFor};

/// Parts of a block that are on their way to the store at the same time.
const PARTS_OUT: usize = 4;

/// Parts that are read ahead.
const PARTS_AHEAD: u32 = 2;

/// The pause before a read is repeated. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// A block in a store. Dropping it removes its values.
#[derive(Debug)]
pub(crate) struct StoreBlock {
    shared: Arc<Shared>,
    /// The key of the first part. The others follow.
    first: Key,
    len_bytes: u64,
    /// The CRC-32 of each part whose write has begun.
    checksums: Vec<u32>,
}

impl StoreBlock {
    pub(super) fn new(shared: Arc<Shared>, first: Key, len_bytes: u64) -> StoreBlock {
        StoreBlock {
            shared,
            first,
            len_bytes,
            checksums: Vec::new(),
        }
    }

    pub(crate) fn reader(&self) -> StoreReader<'_> {
        StoreReader {
            block: self,
            part: None,
            ahead: VecDeque::new(),
        }
    }

    fn part_bytes(&self, part: u32) -> u64 {
        (self.len_bytes - u64::from(part) * MOST_VALUE_BYTES).min(MOST_VALUE_BYTES)
    }

    fn key(&self, part: u32) -> Key {
        self.first.of_part(part)
    }

    fn error(&self, operation: &'static str, failure: StoreFailure) -> Error {
        self.shared.error(operation, self.len_bytes, failure)
    }
}

impl Drop for StoreBlock {
    fn drop(&mut self) {
        self.shared.worker.remove(Removal {
            first: self.first,
            part: 0,
            parts: self.checksums.len() as u32,
            left_bytes: self.len_bytes,
        });
    }
}

/// A block that is being filled. If it is dropped before `finish`, its values are removed.
pub(crate) struct StoreWriter {
    /// Writes under way, the oldest first, each with its size. Dropped before the block, so that
    /// those that have not begun never do.
    out: VecDeque<(Call, u64)>,
    block: StoreBlock,
    /// The bytes of the next part.
    part: Vec<u8>,
    written_bytes: u64,
    /// The first failure. Nothing can be written after it.
    failed: Option<StoreFailure>,
}

debug_by_name!(StoreWriter);

impl StoreWriter {
    pub(super) fn new(block: StoreBlock) -> StoreWriter {
        StoreWriter {
            out: VecDeque::new(),
            block,
            part: Vec::new(),
            written_bytes: 0,
            failed: None,
        }
    }

    /// Appends bytes. May wait for writes of earlier ones.
    ///
    /// # Errors
    /// [`Error::Store`] when the store did not take the bytes, or when more come than were
    /// announced. Then the block cannot be finished.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let result = match self.failed.take() {
            Some(failure) => Err(failure),
            None => self.append(bytes),
        };
        result.map_err(|failure| {
            self.failed = Some(failure.clone());
            self.block.error("write", failure)
        })
    }

    /// Whether the store has all bytes that came, or one write has failed.
    pub(crate) fn is_written(&self) -> bool {
        self.out.iter().all(|(call, _)| call.has_ended())
    }

    /// The block, once the store has all of its bytes. Waits for that.
    ///
    /// # Errors
    /// As [`write`](Self::write), and when fewer bytes came than were announced.
    pub(crate) fn finish(mut self) -> Result<Arc<StoreBlock>> {
        let result = match self.failed.take() {
            Some(failure) => Err(failure),
            None => self.finish_parts(),
        };
        match result {
            Ok(()) => Ok(Arc::new(self.block)),
            Err(failure) => Err(self.block.error("write", failure)),
        }
    }

    fn append(&mut self, mut bytes: &[u8]) -> Result<(), StoreFailure> {
        let got_bytes = self.written_bytes + bytes.len() as u64;
        if got_bytes > self.block.len_bytes {
            return Err(self.wrong_length(got_bytes));
        }
        self.written_bytes = got_bytes;
        if self.block.shared.sizes_only {
            return Ok(());
        }
        while !bytes.is_empty() {
            let part_bytes = self.block.part_bytes(self.block.checksums.len() as u32) as usize;
            let (now, later) = bytes.split_at((part_bytes - self.part.len()).min(bytes.len()));
            if self.part.capacity() < part_bytes {
                self.part.reserve_exact(part_bytes - self.part.len());
            }
            self.part.extend_from_slice(now);
            if self.part.len() == part_bytes {
                self.send()?;
            }
            bytes = later;
        }
        Ok(())
    }

    fn finish_parts(&mut self) -> Result<(), StoreFailure> {
        if self.written_bytes < self.block.len_bytes {
            return Err(self.wrong_length(self.written_bytes));
        }
        while !self.out.is_empty() {
            self.wait_for_oldest()?;
        }
        Ok(())
    }

    /// Begins to write the part, which is complete.
    fn send(&mut self) -> Result<(), StoreFailure> {
        if self.out.len() >= PARTS_OUT {
            self.wait_for_oldest()?;
        }
        let spare = std::mem::take(&mut self.part);
        let key = self.block.key(self.block.checksums.len() as u32);
        let bytes = spare.len() as u64;
        self.block.checksums.push(crc32fast::hash(&spare));
        let call = self.block.shared.worker.write(key, spare)?;
        self.out.push_back((call, bytes));
        Ok(())
    }

    fn wait_for_oldest(&mut self) -> Result<(), StoreFailure> {
        let Some((call, bytes)) = self.out.pop_front() else {
            return Ok(());
        };
        let shared = &self.block.shared;
        let (outcome, mut spare) = waits::time(WaitsFor::Store, || call.wait(shared.until()));
        match outcome {
            Ok(()) => shared.worker.ledger(|ledger| ledger.wrote(bytes)),
            Err(failure) => {
                shared.worker.ledger(|ledger| ledger.failed(&failure));
                return Err(failure);
            }
        }
        if self.part.is_empty() {
            spare.clear();
            self.part = spare;
        }
        Ok(())
    }

    fn wrong_length(&self, got_bytes: u64) -> StoreFailure {
        let len_bytes = self.block.len_bytes;
        StoreFailure::Other(format!(
            "{len_bytes} bytes were announced, and {got_bytes} came"
        ))
    }
}

/// Reads a block, in order or not.
pub(crate) struct StoreReader<'a> {
    block: &'a StoreBlock,
    /// The part that was read last.
    part: Option<(u32, Vec<u8>)>,
    /// Reads under way of the next parts.
    ahead: VecDeque<(u32, Call)>,
}

impl StoreReader<'_> {
    /// Reads the part with the byte at an offset, which is in the block. `most_bytes` says how many
    /// bytes the caller will want from there on.
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not give the bytes in time, or gives wrong ones.
    pub(crate) fn fetch(&mut self, offset_bytes: u64, most_bytes: u64) -> Result<()> {
        let part = (offset_bytes / MOST_VALUE_BYTES) as u32;
        if self.part.as_ref().is_some_and(|(known, _)| *known == part) {
            return Ok(());
        }
        let end_bytes = offset_bytes
            .saturating_add(most_bytes)
            .min(self.block.len_bytes);
        let parts = end_bytes.div_ceil(MOST_VALUE_BYTES) as u32;
        let shared = &self.block.shared;
        let read = waits::time(WaitsFor::Store, || self.read(part, parts));
        let read = read.inspect_err(|failure| {
            shared.worker.ledger(|ledger| {
                // A store that rests was not asked.
                if ledger.resting().is_none() {
                    ledger.failed(failure);
                }
            });
        });
        match read {
            Ok(bytes) => {
                (shared.worker).ledger(|ledger| ledger.read(bytes.len() as u64));
                self.part = Some((part, bytes));
                Ok(())
            }
            Err(failure) => {
                self.ahead.clear();
                Err(self.block.error("read", failure))
            }
        }
    }

    /// The bytes from an offset on, in the part that was fetched for it.
    pub(crate) fn fetched(&self, offset_bytes: u64) -> &[u8] {
        let from = (offset_bytes % MOST_VALUE_BYTES) as usize;
        let part = self.part.as_ref();
        part.map_or(&[], |(_, bytes)| bytes.get(from..).unwrap_or_default())
    }

    /// Reads a part, again if need be, and begins to read those after it, up to `parts`.
    fn read(&mut self, part: u32, parts: u32) -> Result<Vec<u8>, StoreFailure> {
        while self.ahead.front().is_some_and(|(next, _)| *next != part) {
            self.ahead.pop_front();
        }
        let spare = self.part.take().map(|(_, bytes)| bytes);
        let mut call = match self.ahead.pop_front() {
            Some((_, call)) => call,
            None => self.begin(part, spare.unwrap_or_default())?,
        };
        let mut next = self.ahead.back().map_or(part, |(last, _)| *last) + 1;
        while next < parts && next <= part + PARTS_AHEAD {
            let Ok(call) = self.begin(next, Vec::new()) else {
                break;
            };
            self.ahead.push_back((next, call));
            next += 1;
        }
        let (until, mut pause, mut was_damaged) = (self.block.shared.until(), FIRST_PAUSE, false);
        loop {
            let (outcome, bytes) = call.wait(until);
            let failure = match outcome.and_then(|()| self.check(part, &bytes)) {
                Ok(()) => return Ok(bytes),
                Err(failure) => failure,
            };
            match failure {
                // The bytes may have been damaged on the way.
                StoreFailure::Damaged(_) if !was_damaged => was_damaged = true,
                StoreFailure::TimedOut | StoreFailure::Later(_) => return Err(failure),
                failure if failure.is_loss() => return Err(failure),
                _ if Instant::now() + pause >= until => return Err(failure),
                _ => {
                    thread::sleep(pause);
                    pause *= 2;
                }
            }
            call = self.begin(part, bytes)?;
        }
    }

    fn begin(&self, part: u32, mut bytes: Vec<u8>) -> Result<Call, StoreFailure> {
        bytes.clear();
        bytes.resize(self.block.part_bytes(part) as usize, 0);
        self.block.shared.worker.read(self.block.key(part), bytes)
    }

    fn check(&self, part: u32, bytes: &[u8]) -> Result<(), StoreFailure> {
        let checksum = self.block.checksums.get(part as usize);
        match checksum == Some(&crc32fast::hash(bytes)) {
            true => Ok(()),
            false => Err(StoreFailure::Damaged("the checksum is wrong".into())),
        }
    }
}
