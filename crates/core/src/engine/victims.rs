//! The choice of victims, now and ahead of need.
//!
//! The engine reads off the queue how many bytes it will have to evict: the queue shows which
//! storages the commands place, restore and free. If the queue shows no shortage, nothing is copied
//! ahead of need.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::destination::Tier;
use super::queue::NextUses;
use super::state::State;
use crate::memory::{Candidate, Storage, choose};

/// Drops a storage that has another copy. Returns the bytes that became free.
pub(super) fn drop_one(state: &mut State, victim: &Candidate) -> u64 {
    let freed_bytes = match state.memory.evict_clean(&victim.storage) {
        true => victim.storage.size_bytes(),
        false => 0,
    };
    state.counters.dropped_bytes += freed_bytes;
    freed_bytes
}

/// The storages to evict so that `wanted_bytes` become free: those with the best ratio of gain to
/// the cost of restoring. Without a tier, only storages with another copy are candidates. Slots in
/// `stay` are no candidates. Storages without another copy may have at most `most_bytes` each.
///
/// There is one choice among all candidates. Where weights are read in a cycle, dropping clean
/// storages first would move several times as many bytes.
pub(super) fn victims(
    state: &State,
    wanted_bytes: u64,
    tier: Option<Tier>,
    stay: &FxHashSet<u32>,
    most_bytes: u64,
) -> Vec<Candidate> {
    let mut candidates = state.memory.candidates(stay);
    state
        .rematerializers
        .require_copies_of_repeated(&mut candidates, &state.memory);
    candidates.retain(|candidate| {
        let may_go = tier.is_some() && candidate.storage.len_bytes() <= most_bytes;
        candidate.is_clean || may_go
    });
    choose_best(
        state,
        candidates,
        wanted_bytes,
        tier,
        &state.queue.next_uses(),
    )
}

/// The best of the candidates, so that `wanted_bytes` become free.
fn choose_best(
    state: &State,
    mut candidates: Vec<Candidate>,
    wanted_bytes: u64,
    tier: Option<Tier>,
    uses: &NextUses,
) -> Vec<Candidate> {
    let now = state.memory.now();
    let weigh = |candidate: &Candidate| {
        let to_disk = !candidate.is_clean && tier == Some(Tier::Disk);
        let from = match candidate.is_far || to_disk {
            true => Tier::Disk,
            false => Tier::Host,
        };
        candidate.weight(now, &uses.by_slot, uses.known, state.costs.of(from))
    };
    let chosen = choose(&mut candidates, weigh, wanted_bytes);
    candidates.truncate(chosen);
    candidates
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

/// The storages to copy out now, because they will be evicted while the queue runs. They leave
/// after `victims`, so that the slabs hold at most `limit_bytes`. Together they have at most
/// `most_bytes`.
pub(super) fn victims_ahead(
    state: &State,
    victims: &[Candidate],
    tier: Tier,
    stay: &FxHashSet<u32>,
    limit_bytes: u64,
    most_bytes: u64,
) -> Vec<Candidate> {
    let evicted_bytes = victims.iter().map(|victim| victim.storage.size_bytes());
    let live_bytes = (state.memory.live_bytes()).saturating_sub(evicted_bytes.sum());
    let missing_bytes = missing_ahead(state, live_bytes, limit_bytes, most_bytes);
    if missing_bytes == 0 {
        return Vec::new();
    }
    let uses = state.queue.next_uses();
    let mut candidates = state.memory.candidates(stay);
    // Storages that the queue uses must stay on the device.
    candidates.retain(|candidate| {
        let slot = candidate.storage.slot();
        slot.is_some_and(|slot| !uses.by_slot.contains_key(&slot))
    });
    let mut chosen = choose_best(state, candidates, missing_bytes, Some(tier), &uses);
    chosen.retain(|candidate| !candidate.is_clean && !state.cleanings.holds(&candidate.storage));
    chosen
}

/// The bytes by which the live bytes will exceed the limit while the queue runs, at most
/// `most_bytes`. `live_bytes` is the number now.
fn missing_ahead(state: &State, mut live_bytes: u64, limit_bytes: u64, most_bytes: u64) -> u64 {
    let mut spans: FxHashMap<*const Storage, Span> = FxHashMap::default();
    for (index, cmd) in state.queue.ahead().enumerate() {
        cmd.each_operand(|storage, _| {
            let span = spans.entry(Arc::as_ptr(storage)).or_default();
            span.held += 1;
            span.last = index;
        });
    }
    let mut missing_bytes = 0;
    for (index, cmd) in state.queue.ahead().enumerate() {
        let mut dying_bytes = 0;
        cmd.each_operand(|storage, _| {
            let Some(span) = spans.get_mut(&Arc::as_ptr(storage)) else {
                return;
            };
            let size_bytes = state.memory.granted_bytes(storage.size_bytes());
            let is_counted = std::mem::replace(&mut span.is_counted, true);
            if !is_counted && state.memory.find(storage).is_none() {
                live_bytes += size_bytes;
            }
            let dies = span.last == index && Arc::strong_count(storage) <= span.held;
            if dies && !std::mem::replace(&mut span.is_discounted, true) {
                dying_bytes += size_bytes;
            }
        });
        missing_bytes = live_bytes.saturating_sub(limit_bytes).max(missing_bytes);
        live_bytes = live_bytes.saturating_sub(dying_bytes);
        if missing_bytes >= most_bytes {
            break;
        }
    }
    missing_bytes.min(most_bytes)
}
