//! Reads ahead of need: of evicted storages that commands of the queue will use, from the disk and
//! from sources.
//!
//! ```text
//!   queue    W3  W4  W5  W6 ...           a pass restores W3
//!   thread       [W4][W4][W5]             pieces of the next ones, in the order of their use
//! ```
//!
//! When a pass restores a storage from there, it looks for the next ones. A thread reads their
//! bytes into the host's memory, while the pass stages and the device computes. They count for the
//! host's limit, and make way for evicted storages. Bytes that nobody uses in the end are counted
//! as wasted.
//!
//! One thread reads, and the pass reads only what the thread was not asked for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use super::supply::{Origin, SOURCE_PIECE_BYTES};
use crate::engine::handle::Engine;
use crate::engine::inside::Inside;
use crate::engine::kernel::{Program, Role};
use crate::engine::queue::cmd::Cmd;
use crate::engine::state::State;
use crate::engine::state::reads_ahead::{Read, ReadPiece, read_bytes};
use crate::error::Result;
use crate::memory::{HostUse, Source, Storage};
use crate::transfer::SpillBlock;
use crate::units::MIB;
use crate::waits::{self, WaitsFor};
use crate::worker::Worker;

/// The most bytes that are read ahead: more than a disk gives while a submission and a wait take
/// their time.
pub(crate) const MOST_BYTES: u64 = 16 * MIB;

/// And at most 1/8 of the limit of slabs. What is restored is not more than they hold.
const OF_BUDGET: u64 = 8;

impl Engine {
    /// A restore of this storage begins: asks for its bytes, and for those of the next ones.
    pub(crate) fn read_ahead(&self, storage: &Storage) {
        if self.is_dry() {
            return;
        }
        let writes = self.lock().memory.slots.writes_to(storage);
        // Some of its bytes were used by a restore that came to nothing, or it was written since.
        let is_useless = |read: &Read| {
            let is_begun = read.pieces.front().is_none_or(|one| one.offset_bytes > 0);
            is_begun || read.writes != writes
        };
        self.give_up_reads_if(|read| read.is_of(storage) && is_useless(read));
        self.ask_for_more(Some(storage));
    }

    /// The next piece of a storage, if the thread was asked for it, and how long the thread read
    /// while nobody waited. Waits until the piece has arrived.
    pub(crate) fn next_ahead(
        &self,
        storage: &Storage,
        offset_bytes: u64,
    ) -> Option<(Result<Vec<u8>>, Duration)> {
        let piece = {
            let state = &mut *self.lock();
            let writes = state.memory.slots.writes_to(storage);
            (state.reads_ahead).take_piece(storage, writes, offset_bytes)?
        };
        let begun = Instant::now();
        let size_bytes = piece.size_bytes();
        // Without a clock each piece counts, so that the same calls wait as often.
        let (bytes, time) = match piece.task.has_ended() && self.has_clock() {
            true => piece.task.wait(),
            false => waits::time(WaitsFor::Disk, || piece.task.wait()),
        }?;
        let hidden = time.saturating_sub(begun.elapsed());
        self.lock().counters.read_ahead_bytes += size_bytes;
        self.ask_for_more(None);
        Some((bytes, hidden))
    }

    /// The restore of a storage has ended.
    pub(crate) fn end_read(&self, storage: &Storage) {
        self.give_up_reads_if(|read| read.is_of(storage));
    }

    /// Gives up what is needed last of what was read ahead, so that this many bytes of the host's
    /// memory become free, if there are so many.
    pub(crate) fn give_up_reads(&self, wanted_bytes: u64) {
        let given_up = {
            let ahead = &mut self.lock().reads_ahead;
            match ahead.asked_bytes() >= wanted_bytes {
                true => ahead.take_last(wanted_bytes),
                false => Vec::new(),
            }
        };
        self.note_wasted(read_bytes(given_up.iter()));
        self.drop_app_value(given_up);
    }

    /// Gives up all that was read ahead.
    pub(crate) fn give_up_all_reads(&self) {
        self.give_up_reads_if(|_| true);
    }

    fn note_wasted(&self, bytes: u64) {
        if bytes > 0 {
            self.lock().counters.wasted_read_bytes += bytes;
        }
    }

    fn give_up_reads_if(&self, is_it: impl Fn(&Read) -> bool) {
        let given_up = self.lock().reads_ahead.take(is_it);
        self.drop_reads(given_up);
    }

    /// Drops what was asked for in vain. The caller holds no lock.
    fn drop_reads(&self, reads: Vec<Read>) {
        self.note_wasted(read_bytes(reads.iter().flat_map(|read| &read.pieces)));
        reads.into_iter().for_each(|read| self.drop_app_value(read));
    }

    /// Asks for pieces of the storages that the queue will restore next. If the restore of one
    /// begins now, the pass itself reads it, if it has one piece, or the thread has other work.
    fn ask_for_more(&self, begins: Option<&Storage>) {
        let limit_bytes = (self.driver.ledger().slab_limit_bytes() / OF_BUDGET).min(MOST_BYTES);
        let mut state = self.lock();
        // Not after each piece, because this looks through the queue.
        if state.reads_ahead.asked_bytes() > limit_bytes / 2 {
            return;
        }
        let wanted = wanted(&state, limit_bytes);
        let ahead = &mut state.reads_ahead;
        let writes: FxHashMap<usize, u64> = (wanted.iter())
            .map(|wanted| (wanted.storage.address(), wanted.writes))
            .collect();
        let is_wanted = |read: &Read| writes.get(&read.address()) == Some(&read.writes);
        let given_up = ahead.take(|read| !is_wanted(read));
        let mut room_bytes = limit_bytes.saturating_sub(ahead.asked_bytes());
        let is_busy = !ahead.reads.is_empty();
        let mut indices: FxHashMap<usize, usize> = (ahead.reads.iter().enumerate())
            .map(|(index, read)| (read.address(), index))
            .collect();
        for wanted in &wanted {
            let index = *indices.entry(wanted.storage.address()).or_insert_with(|| {
                let begins = begins.is_some_and(|one| std::ptr::eq(one, &*wanted.storage));
                let has_one_piece = wanted.storage.len_bytes() <= SOURCE_PIECE_BYTES;
                (ahead.reads).push(wanted.read(begins && (has_one_piece || is_busy)));
                ahead.reads.len() - 1
            });
            let read = &mut ahead.reads[index];
            while let Some(piece) = self.ask_for(read, &ahead.worker, &mut room_bytes) {
                read.next_bytes += piece.size_bytes();
                read.pieces.push_back(piece);
            }
            if read.next_bytes < read.len_bytes {
                break;
            }
        }
        drop(state);
        self.drop_reads(given_up);
        self.drop_app_value(wanted);
    }

    /// Asks for the next piece of a storage. `None` if there is no more, or no room for it.
    fn ask_for(&self, read: &Read, worker: &Worker, room_bytes: &mut u64) -> Option<ReadPiece> {
        let (engine, offset_bytes) = (self.address(), read.next_bytes);
        let size_bytes = SOURCE_PIECE_BYTES.min(read.len_bytes - offset_bytes);
        if size_bytes == 0 || size_bytes > *room_bytes {
            return None;
        }
        let charge = self.host.charge(HostUse::Read, size_bytes)?;
        let (disk, source) = (read.disk.clone(), read.source.clone());
        let made_at = read.made_at.clone();
        let task = worker.begin(move || {
            // The app's source is called here, and perhaps dropped.
            let _inside = Inside::enter(engine);
            let begun = Instant::now();
            let mut bytes = vec![0; size_bytes as usize];
            let origin = Origin {
                disk: disk.as_deref(),
                source: source.as_ref(),
            };
            let made_at = || made_at.clone();
            let done = origin.read(engine, offset_bytes, &mut bytes, &made_at);
            drop((disk, source));
            (done.map(|()| bytes), begun.elapsed())
        })?;
        *room_bytes -= size_bytes;
        Some(ReadPiece {
            offset_bytes,
            task,
            charge,
        })
    }
}

/// An evicted storage that the queue will restore from the disk or a source.
struct Wanted {
    storage: Arc<Storage>,
    /// The number of the last write to it.
    writes: u64,
    disk: Option<Arc<SpillBlock>>,
    source: Option<Source>,
}

impl Wanted {
    /// If `by_pass` is set, the pass reads all of it.
    fn read(&self, by_pass: bool) -> Read {
        let len_bytes = self.storage.len_bytes();
        Read {
            storage: Arc::downgrade(&self.storage),
            writes: self.writes,
            disk: self.disk.clone(),
            source: self.source.clone(),
            made_at: self.storage.tag(),
            len_bytes,
            next_bytes: if by_pass { len_bytes } else { 0 },
            pieces: VecDeque::new(),
        }
    }
}

/// The storages that commands of the queue will restore, in the order of their first use: as many
/// as `most_bytes` hold, without what was read of them.
fn wanted(state: &State, most_bytes: u64) -> Vec<Wanted> {
    let (mut wanted, mut bytes, mut seen) = (Vec::new(), 0, FxHashSet::default());
    let asked: FxHashMap<usize, u64> = (state.reads_ahead.reads.iter())
        .map(|read| (read.address(), read.next_bytes))
        .collect();
    for cmd in state.queue.ahead() {
        if bytes >= most_bytes {
            break;
        }
        let mut operands = 0..;
        cmd.each_operand(&mut |storage, role| {
            let use_of = use_of(cmd, operands.next().unwrap_or(0), role);
            if use_of == Use::Part || !seen.insert(storage.address()) || use_of == Use::None {
                return;
            }
            let slots = &state.memory.slots;
            let Some((disk, source)) = slots.evicted_origin(storage) else {
                return;
            };
            let is_awaited = (source.as_ref()).is_some_and(Source::comes_later);
            if is_awaited && state.driver.returns_early() {
                return;
            }
            let begun_bytes = asked.get(&storage.address()).copied().unwrap_or(0);
            bytes += storage.len_bytes().saturating_sub(begun_bytes);
            wanted.push(Wanted {
                storage: storage.clone(),
                writes: slots.writes_to(storage),
                disk,
                source,
            });
        });
    }
    wanted
}

/// What a command needs of an evicted operand's bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    All,
    /// Perhaps only a part, which it may read elsewhere.
    Part,
    None,
}

fn use_of(cmd: &Cmd, operand: usize, role: Role) -> Use {
    match cmd {
        Cmd::Launch(launch) if role != Role::Write => match &launch.program {
            Program::Builtin(kernel) if kernel.has_rows_in(operand) => Use::Part,
            _ => Use::All,
        },
        Cmd::Read { .. } => Use::Part,
        Cmd::Upload { whole: true, .. } | Cmd::Poison { .. } => Use::None,
        _ if role == Role::Write => Use::None,
        _ => Use::All,
    }
}
