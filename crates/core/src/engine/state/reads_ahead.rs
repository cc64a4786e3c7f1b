//! What a thread reads of evicted storages before their restore.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::error::Result;
use crate::memory::{HostCharge, Source, Storage, Tag};
use crate::transfer::SpillBlock;
use crate::worker::{Task, Worker};

/// All reads ahead of one engine.
#[derive(Debug)]
pub(crate) struct ReadsAhead {
    pub(crate) worker: Worker,
    pub(crate) reads: Vec<Read>,
}

/// The bytes of a storage, as far as they were asked for and not used.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) storage: Weak<Storage>,
    /// The number of the last write to the storage.
    pub(crate) writes: u64,
    pub(crate) disk: Option<Arc<SpillBlock>>,
    pub(crate) source: Option<Source>,
    pub(crate) made_at: Tag,
    pub(crate) len_bytes: u64,
    /// Where the next piece to ask for begins.
    pub(crate) next_bytes: u64,
    pub(crate) pieces: VecDeque<ReadPiece>,
}

/// A piece of a storage that the thread was asked for.
#[derive(Debug)]
pub(crate) struct ReadPiece {
    pub(crate) offset_bytes: u64,
    /// The bytes, and the time that it took to read them.
    pub(crate) task: Task<(Result<Vec<u8>>, Duration)>,
    /// The bytes count for the host's limit as long as this exists.
    pub(crate) charge: HostCharge,
}

impl ReadPiece {
    pub(crate) fn size_bytes(&self) -> u64 {
        self.charge.size_bytes()
    }
}

impl Default for ReadsAhead {
    fn default() -> Self {
        ReadsAhead {
            worker: Worker::new("lapidary reads"),
            reads: Vec::new(),
        }
    }
}

impl ReadsAhead {
    /// The bytes of the host's memory for what was asked for and not used.
    pub(crate) fn asked_bytes(&self) -> u64 {
        self.reads.iter().map(Read::asked_bytes).sum()
    }

    /// Takes the next piece of a storage, if it begins there. `writes` is the number of the last
    /// write to the storage.
    pub(crate) fn take_piece(
        &mut self,
        storage: &Storage,
        writes: u64,
        offset_bytes: u64,
    ) -> Option<ReadPiece> {
        let mut reads = self.reads.iter_mut();
        let read = reads.find(|read| read.is_of(storage) && read.writes == writes)?;
        let next = read.pieces.front()?;
        (next.offset_bytes == offset_bytes).then(|| read.pieces.pop_front())?
    }

    /// Takes the pieces that are needed last, until they have so many bytes.
    pub(crate) fn take_last(&mut self, wanted_bytes: u64) -> Vec<ReadPiece> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        for read in self.reads.iter_mut().rev() {
            while bytes < wanted_bytes {
                let Some(piece) = read.pieces.pop_back() else {
                    break;
                };
                bytes += piece.size_bytes();
                read.next_bytes = piece.offset_bytes;
                taken.push(piece);
            }
        }
        taken
    }

    /// Takes what was asked for of the storages that `is_it` names. The caller drops it without a
    /// lock, since it may be the last holder of a source.
    pub(crate) fn take(&mut self, is_it: impl Fn(&Read) -> bool) -> Vec<Read> {
        self.reads.extract_if(.., |read| is_it(read)).collect()
    }
}

impl Read {
    pub(crate) fn is_of(&self, storage: &Storage) -> bool {
        std::ptr::eq(self.storage.as_ptr(), storage)
    }

    /// The address of the storage, as [`Storage::address`] gives it.
    pub(crate) fn address(&self) -> usize {
        self.storage.as_ptr().addr()
    }

    pub(crate) fn asked_bytes(&self) -> u64 {
        self.pieces.iter().map(ReadPiece::size_bytes).sum()
    }
}

/// The bytes of these pieces that the thread has read, or reads now.
pub(crate) fn read_bytes<'a>(pieces: impl Iterator<Item = &'a ReadPiece>) -> u64 {
    let begun = pieces.filter(|piece| piece.task.has_begun());
    begun.map(ReadPiece::size_bytes).sum()
}
