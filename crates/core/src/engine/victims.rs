//! Who leaves: the choice of victims, now and ahead of need.
//!
//! How much must leave before long is read off the queue: it tells what will be made and restored,
//! and what will die. Where it tells of no shortage, nothing is copied ahead.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::destination::Tier;
use super::queue::NextUses;
use super::state::State;
use crate::memory::{Candidate, Storage, choose};

/// Drops a storage whose bytes are elsewhere too. Returns the bytes that became free.
pub(super) fn drop_one(state: &mut State, victim: &Candidate) -> u64 {
    let freed_bytes = match state.memory.evict_clean(&victim.storage) {
        true => victim.storage.size_bytes(),
        false => 0,
    };
    state.counters.dropped_bytes += freed_bytes;
    freed_bytes
}

/// Who should be evicted so that so many bytes become free, first those who gain the most for
/// what it costs to have them back. Without a tier to put them, only those that are elsewhere
/// too. Those of the slots that `stay` are no candidates; those that would have to be evicted
/// are of at most `most_bytes` each.
///
/// One choice among all: where weights are read in a cycle, to drop first what is elsewhere too
/// would move several times as much.
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
        .keep_what_was_made_twice(&mut candidates, &state.memory);
    candidates.retain(|candidate| {
        let may_go = tier.is_some() && candidate.storage.len_bytes() <= most_bytes;
        candidate.is_clean || may_go
    });
    best(
        state,
        candidates,
        wanted_bytes,
        tier,
        &state.queue.next_uses(),
    )
}

/// Those of the candidates who should go so that so many bytes become free.
fn best(
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

/// What the queue does to a storage.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    /// How often its commands hold it.
    held: usize,
    /// The last command that uses it.
    last: usize,
    /// It has been counted in, and out.
    has_come: bool,
    has_gone: bool,
}

/// Those that should be copied out now, since they will have to leave while the queue runs:
/// after the `victims`, so that the slabs hold no more than `limit_bytes`. At most `most_bytes`
/// of them.
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
    // What the queue still uses has to be there for that.
    candidates.retain(|candidate| {
        let slot = candidate.storage.slot();
        slot.is_some_and(|slot| !uses.by_slot.contains_key(&slot))
    });
    let mut chosen = best(state, candidates, missing_bytes, Some(tier), &uses);
    chosen.retain(|candidate| !candidate.is_clean && !state.cleanings.holds(&candidate.storage));
    chosen
}

/// How many bytes more than the limit will be live at some time while the queue runs, if so
/// many are now. Looks no further once that is `most_bytes`.
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
            let has_come = std::mem::replace(&mut span.has_come, true);
            if !has_come && state.memory.find(storage).is_none() {
                live_bytes += size_bytes;
            }
            let dies = span.last == index && Arc::strong_count(storage) <= span.held;
            if dies && !std::mem::replace(&mut span.has_gone, true) {
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
