//! What the commands of the queue will use and lack. The queue shows which storages they place,
//! restore and free.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::engine::kernel::Role;
use crate::engine::state::State;
use crate::memory::Storage;

/// The memory that the commands of the queue will lack if nothing is evicted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lack {
    /// The most bytes by which the live bytes will exceed the limit.
    pub(super) bytes: u64,
    /// The number of the last command that lacks memory, at least 1. `u32::MAX` if memory is
    /// lacking at the end of the queue.
    pub(super) until: u32,
}

impl Lack {
    /// Nothing is known of it.
    pub(super) const UNKNOWN: Lack = Lack {
        bytes: 0,
        until: u32::MAX,
    };
}

/// What the choice of victims knows of the commands to come. Commands have numbers from 1 on.
pub(super) struct Outlook {
    /// By the addresses of the storages.
    spans: FxHashMap<usize, Span>,
    /// The number of commands that were examined.
    pub(super) known: u32,
    pub(super) lack: Lack,
}

/// The use of a storage by the queue.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// The number of the first command that uses it.
    first: u32,
    /// The number of times that commands of the queue hold it.
    held: usize,
    /// Whether a command reads it while it has no memory.
    is_read: bool,
    /// The number of the command that uses it last, if only the queue holds it.
    freed_by: Option<u32>,
}

impl Outlook {
    /// Reads it off the queue, for slabs that hold `live_bytes` now. The caller holds no storage of
    /// the queue.
    pub(super) fn new(state: &State, mut live_bytes: u64) -> Self {
        let limit_bytes = state.driver.ledger().slab_limit_now_bytes();
        let has_lineages = state.rematerializers.has_lineages();
        let memory = &state.memory;
        let mut spans: FxHashMap<usize, Span> = FxHashMap::default();
        let mut lack = Lack { bytes: 0, until: 1 };
        let (mut known, mut is_short) = (0, false);
        for cmd in state.queue.ahead() {
            known += 1;
            let new = || Span {
                first: known,
                held: 0,
                is_read: false,
                freed_by: None,
            };
            let mut freed_bytes = 0;
            cmd.visit_operands(|storage, role| {
                let span = spans.entry(storage.address()).or_insert_with(new);
                let is_first = span.held == 0;
                span.held += 1;
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
            lack.bytes = live_bytes.saturating_sub(limit_bytes).max(lack.bytes);
            is_short = live_bytes > limit_bytes;
            if is_short {
                lack.until = known;
            }
            live_bytes = live_bytes.saturating_sub(freed_bytes);
        }
        if is_short {
            lack.until = u32::MAX;
        }
        Outlook { spans, known, lack }
    }

    /// The number of the first command that uses a storage.
    pub(super) fn next_use(&self, storage: &Arc<Storage>) -> Option<u32> {
        let span = self.spans.get(&storage.address())?;
        Some(span.first)
    }

    /// The number of the last command that uses a storage, if the queue frees it then.
    pub(super) fn freed_by(&self, storage: &Arc<Storage>) -> Option<u32> {
        self.spans.get(&storage.address())?.freed_by
    }
}
