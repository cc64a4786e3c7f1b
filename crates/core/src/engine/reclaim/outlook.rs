//! What the commands of the queue will use and lack. The queue shows which storages they place,
//! restore and free.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::engine::kernel::Role;
use crate::engine::queue::handles::Sharing;
use crate::engine::state::State;
use crate::memory::{Candidate, Storage};

/// A step frees at once what the commands of the queue will lack: it examines all storages, and may
/// submit and wait. It frees at most 1/16 of the limit: the choice of victims is worse if more
/// leaves at once.
const MOST_AHEAD_PART: u64 = 16;

/// And at most this many bytes. Their way over PCIe takes longer than a submission and a wait.
const MOST_AHEAD_BYTES: u64 = 8 << 20;

/// What the choice of victims knows of the commands to come. Commands have numbers from 1 on.
pub(super) struct Outlook {
    /// By the addresses of the storages.
    spans: FxHashMap<usize, Span>,
    /// The number of commands that were examined.
    pub(super) known: u32,
    /// The most bytes by which the live bytes will exceed the limit if nothing is evicted.
    pub(super) lack_bytes: u64,
    /// The number of the last command that lacks memory then, at least 1. `u32::MAX` if memory is
    /// lacking at the end of the queue.
    pub(super) lacks_until: u32,
}

/// The use of a storage by the queue.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// The number of the first command that uses it.
    first: u32,
    /// Whether a command has it as an operand, and not only as an input of a dropped storage.
    is_operand: bool,
    /// The number of handles that commands of the queue have.
    held: usize,
    /// Whether a command reads it while it has no memory.
    is_read: bool,
    /// The number of the command that uses it last, if only the queue holds it.
    freed_by: Option<u32>,
}

impl Outlook {
    /// Reads it off the queue. The caller holds no storage of the queue.
    pub(super) fn new(state: &State) -> Self {
        let mut live_bytes = state.memory.slabs.live_bytes();
        let limit_bytes = state.driver.ledger().slab_limit_now_bytes();
        let has_lineages = state.rematerializers.has_lineages();
        let memory = &state.memory;
        let ahead = state.queue.ahead();
        let mut spans = FxHashMap::<usize, Span>::default();
        spans.reserve(ahead.size_hint().0);
        let mut sharing = Sharing::default();
        let (mut lack_bytes, mut lacks_until) = (0, 1);
        let (mut known, mut is_short) = (0, false);
        for cmd in ahead {
            known += 1;
            let new = || Span {
                first: known,
                is_operand: false,
                held: 0,
                is_read: false,
                freed_by: None,
            };
            let mut freed_bytes = 0;
            cmd.visit_handles(&mut sharing, |storage, role, met| {
                let span = spans.entry(storage.address()).or_insert_with(new);
                let is_first = !std::mem::replace(&mut span.is_operand, true);
                span.held += met;
                let size_bytes = memory.slabs.granted_bytes(storage.size_bytes());
                if Arc::strong_count(storage) <= span.held {
                    span.freed_by = Some(known);
                    freed_bytes += size_bytes;
                }
                if memory.slots.find(storage).is_some() {
                    return;
                }
                if is_first {
                    live_bytes += size_bytes;
                }
                let is_read = role != Role::Write;
                if has_lineages && is_read && !std::mem::replace(&mut span.is_read, true) {
                    // The inputs of a dropped storage are used together with it.
                    for input in memory.slots.sources_of(storage) {
                        spans.entry(input.address()).or_insert_with(new);
                    }
                }
            });
            lack_bytes = live_bytes.saturating_sub(limit_bytes).max(lack_bytes);
            is_short = live_bytes > limit_bytes;
            if is_short {
                lacks_until = known;
            }
            live_bytes = live_bytes.saturating_sub(freed_bytes);
        }
        if is_short {
            lacks_until = u32::MAX;
        }
        Outlook {
            spans,
            known,
            lack_bytes,
            lacks_until,
        }
    }

    /// The bytes that the commands will lack, as far as one step frees them.
    ///
    /// Only in training: while values are saved for a backward, and recorded with how they were
    /// made. A decoder whose cache grows would then release slabs and create them again, for each
    /// token. 0 as well where host and device share memory, since a step does not wait for copies
    /// there. Also 0 if there are shares, since the queue does not say how to be fair to them.
    pub(super) fn missing_bytes(&self, state: &State) -> u64 {
        let is_training = !state.lineages.is_empty() && state.memory.shares.is_empty();
        if !is_training || state.driver.caps().maps_slabs {
            return 0;
        }
        let limit_bytes = state.driver.ledger().slab_limit_now_bytes();
        let most_bytes = MOST_AHEAD_BYTES.min(limit_bytes / MOST_AHEAD_PART);
        self.lack_bytes.min(most_bytes)
    }

    /// The number of the first command that uses a storage.
    pub(super) fn next_use(&self, storage: &Arc<Storage>) -> Option<u32> {
        let span = self.spans.get(&storage.address())?;
        Some(span.first)
    }

    /// The commands until the next use of a storage, known or predicted.
    pub(super) fn distance(&self, state: &State, candidate: &Candidate) -> u32 {
        let next = self.next_use(&candidate.storage);
        candidate.predicted_distance(state.memory.slots.now(), next, self.known)
    }

    /// The number of the last command that uses a storage, if the queue frees it then.
    pub(super) fn freed_by(&self, storage: &Arc<Storage>) -> Option<u32> {
        self.spans.get(&storage.address())?.freed_by
    }
}
