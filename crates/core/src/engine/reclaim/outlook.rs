//! How much memory the commands of the queue will use and lack. The queue shows which storages they
//! place, restore and free.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::engine::kernel::Role;
use crate::engine::queue::NextUses;
use crate::engine::state::State;
use crate::memory::Storage;
use crate::number_map::NumberMap;

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

/// The use of a storage by the queue.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    /// The number of times that commands of the queue hold it.
    held: usize,
    /// The index of the last command that uses it.
    last: usize,
    /// Whether its bytes were added to the live bytes.
    is_counted: bool,
    is_discounted: bool,
}

impl Span {
    /// Whether the command at `index` is the last holder of the storage.
    fn ends_at(&self, index: usize, storage: &Arc<Storage>) -> bool {
        self.last == index && Arc::strong_count(storage) <= self.held
    }
}

/// The spans of the storages in the queue, by their addresses.
fn spans(state: &State) -> NumberMap<Span> {
    let mut spans: NumberMap<Span> = NumberMap::default();
    for (index, cmd) in state.queue.ahead().enumerate() {
        cmd.each_operand(&mut |storage, _| {
            let span = spans.entry(storage.address() as u64).or_default();
            span.held += 1;
            span.last = index;
        });
    }
    spans
}

/// The next uses of storages, as far as the queue shows them. The inputs of a dropped storage
/// are used together with it.
pub(super) fn next_uses(state: &State) -> NextUses {
    let mut uses = state.queue.next_uses();
    if !state.rematerializers.has_lineages() {
        return uses;
    }
    let mut seen = FxHashSet::default();
    for (cmd, number) in state.queue.ahead().zip(1..) {
        cmd.each_operand(&mut |storage, role| {
            let is_computed = role != Role::Write && state.memory.slots.is_evicted(storage);
            if !is_computed || !seen.insert(storage.address()) {
                return;
            }
            for input in state.memory.slots.sources_of(storage) {
                if let Some(slot) = input.slot() {
                    let known = uses.by_slot.entry(slot).or_insert(number);
                    *known = number.min(*known);
                }
            }
        });
    }
    uses
}

/// For the slots of storages that only the queue holds, the number of the last command that uses
/// each. The caller holds none of them.
pub(super) fn last_uses(state: &State) -> FxHashMap<u32, u32> {
    let (spans, mut last_uses) = (spans(state), FxHashMap::default());
    for (index, cmd) in state.queue.ahead().enumerate() {
        cmd.each_operand(&mut |storage, _| {
            let span = spans.get(&(storage.address() as u64));
            let ends = span.is_some_and(|span| span.ends_at(index, storage));
            if let Some(slot) = storage.slot().filter(|_| ends) {
                last_uses.insert(slot, index as u32 + 1);
            }
        });
    }
    last_uses
}

/// The memory that the queue will lack. `live_bytes` is the number now. The search ends where
/// `most_bytes` are lacking. The caller holds no storage of the queue.
pub(super) fn lack(state: &State, mut live_bytes: u64, limit_bytes: u64, most_bytes: u64) -> Lack {
    let mut spans = spans(state);
    let mut lack = Lack { bytes: 0, until: 1 };
    let mut is_short = false;
    for (index, cmd) in state.queue.ahead().enumerate() {
        let mut dying_bytes = 0;
        cmd.each_operand(&mut |storage, _| {
            let Some(span) = spans.get_mut(&(storage.address() as u64)) else {
                return;
            };
            let size_bytes = state.memory.slabs.granted_bytes(storage.size_bytes());
            let is_counted = std::mem::replace(&mut span.is_counted, true);
            if !is_counted && state.memory.slots.find(storage).is_none() {
                live_bytes += size_bytes;
            }
            let dies = span.ends_at(index, storage);
            if dies && !std::mem::replace(&mut span.is_discounted, true) {
                dying_bytes += size_bytes;
            }
        });
        lack.bytes = live_bytes.saturating_sub(limit_bytes).max(lack.bytes);
        is_short = live_bytes > limit_bytes;
        if is_short {
            lack.until = index as u32 + 1;
        }
        live_bytes = live_bytes.saturating_sub(dying_bytes);
        if lack.bytes >= most_bytes {
            break;
        }
    }
    if is_short {
        lack.until = u32::MAX;
    }
    lack.bytes = lack.bytes.min(most_bytes);
    lack
}
