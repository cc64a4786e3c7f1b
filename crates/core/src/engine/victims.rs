//! The choice of victims, now and ahead of need.
//!
//! The engine reads off the queue how many bytes it will have to evict: the queue shows which
//! storages the commands place, restore and free. If the queue shows no shortage, nothing is copied
//! ahead of need.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::destination::Tier;
use super::kernel::Role;
use super::queue::NextUses;
use super::state::State;
use crate::memory::{Candidate, Storage, Whom, choose};

/// Drops a storage that has another copy or can be computed again. Returns the bytes that became
/// free.
pub(super) fn drop_one(state: &mut State, victim: &Candidate) -> u64 {
    if victim.recompute_ns.is_some() && !state.will_recompute(&victim.storage) {
        return 0;
    }
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
/// Where there are shares, only those that `whom` names give storages.
///
/// There is one choice among all candidates. Where weights are read in a cycle, dropping clean
/// storages first would move several times as many bytes.
pub(super) fn victims(
    state: &State,
    wanted_bytes: u64,
    tier: Option<Tier>,
    stay: &FxHashSet<u32>,
    most_bytes: u64,
    whom: Whom,
) -> Vec<Candidate> {
    let mut candidates = state.memory.candidates(stay);
    state
        .rematerializers
        .require_copies_of_repeated(&mut candidates, &state.memory);
    let has_room = |storage: &Storage| tier.is_some() && storage.len_bytes() <= most_bytes;
    for candidate in &mut candidates {
        let tier = tier.filter(|_| has_room(&candidate.storage));
        candidate.recompute_ns = cheaper_ns(state, candidate, tier);
    }
    candidates.retain(|candidate| {
        let is_dropped = candidate.is_clean || candidate.recompute_ns.is_some();
        is_dropped || has_room(&candidate.storage)
    });
    let uses = next_uses(state);
    let choose = |candidates| choose_best(state, candidates, wanted_bytes, tier, &uses);
    if state.memory.shares().is_empty() {
        return choose(candidates);
    }
    for whom in whom.in_turn() {
        let Some(mut claim) = state.memory.claim(whom) else {
            break;
        };
        let (owed, others) = (candidates.into_iter())
            .partition::<Vec<_>, _>(|candidate| claim.may_take(candidate.storage.share()));
        if !owed.is_empty() {
            let mut chosen = choose(owed);
            chosen.retain(|candidate| {
                let granted_bytes = state.memory.granted_bytes(candidate.storage.size_bytes());
                claim.take(candidate.storage.share(), granted_bytes)
            });
            return chosen;
        }
        candidates = others;
    }
    Vec::new()
}

/// The next uses of storages, as far as the queue shows them. What a dropped storage is computed
/// from is used together with it.
fn next_uses(state: &State) -> NextUses {
    let mut uses = state.queue.next_uses();
    if !state.rematerializers.has_lineages() {
        return uses;
    }
    let mut seen = FxHashSet::default();
    for (cmd, number) in state.queue.ahead().zip(1..) {
        cmd.each_operand(&mut |storage, role| {
            let is_computed = role != Role::Write && state.memory.is_evicted(storage);
            if !is_computed || !seen.insert(Arc::as_ptr(storage)) {
                return;
            }
            for input in state.memory.sources_of(storage) {
                if let Some(slot) = input.slot() {
                    let known = uses.by_slot.entry(slot).or_insert(number);
                    *known = number.min(*known);
                }
            }
        });
    }
    uses
}

/// The cost of computing a storage again, in nanoseconds, if it is cheaper than to write its bytes
/// to the tier and to restore them. Without a tier, if it is possible.
fn cheaper_ns(state: &State, candidate: &Candidate, tier: Option<Tier>) -> Option<u64> {
    let storage = &candidate.storage;
    if candidate.is_clean || state.lineages.is_empty() {
        return None;
    }
    if state.rematerializers.is_repeated(storage) {
        return None;
    }
    let recompute_ns = state.recompute_ns(storage)?;
    tier.is_none_or(|tier| recompute_ns < evict_ns(state, candidate, tier))
        .then_some(recompute_ns)
}

/// The cost of evicting a storage to a tier and restoring it, in nanoseconds.
///
/// Elsewhere the way out does not count: what is read in a cycle is written once and restored in
/// each round. But a training step writes all that it reads. The way out costs about as much as
/// the way back.
fn evict_ns(state: &State, candidate: &Candidate, tier: Tier) -> u64 {
    let back_ns = state.costs.of(tier).ns(candidate.storage.size_bytes());
    match candidate.is_clean || state.lineages.is_empty() {
        true => back_ns,
        false => back_ns.saturating_mul(2),
    }
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
        let from = Tier::of(candidate.is_far || to_disk);
        let evict_ns = evict_ns(state, candidate, from);
        candidate.weight(now, &uses.by_slot, uses.known, evict_ns)
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
    (limit_bytes, most_bytes): (u64, u64),
    whom: Whom,
) -> Vec<Candidate> {
    let evicted_bytes = victims.iter().map(|victim| victim.storage.size_bytes());
    let live_bytes = (state.memory.live_bytes()).saturating_sub(evicted_bytes.sum());
    let missing_bytes = missing_ahead(state, live_bytes, limit_bytes, most_bytes);
    if missing_bytes == 0 {
        return Vec::new();
    }
    let uses = next_uses(state);
    let mut candidates = state.memory.candidates(stay);
    // Storages that the queue uses must stay on the device.
    candidates.retain(|candidate| {
        let slot = candidate.storage.slot();
        slot.is_some_and(|slot| !uses.by_slot.contains_key(&slot))
    });
    if let Some(claim) = state.memory.claim(whom) {
        candidates.retain(|candidate| claim.may_take(candidate.storage.share()));
    }
    for candidate in &mut candidates {
        candidate.recompute_ns = cheaper_ns(state, candidate, Some(tier));
    }
    let mut chosen = choose_best(state, candidates, missing_bytes, Some(tier), &uses);
    chosen.retain(|candidate| {
        let is_written_out = !candidate.is_clean && candidate.recompute_ns.is_none();
        is_written_out && !state.cleanings.holds(&candidate.storage)
    });
    chosen
}

/// The bytes by which the live bytes will exceed the limit while the queue runs, at most
/// `most_bytes`. `live_bytes` is the number now.
fn missing_ahead(state: &State, mut live_bytes: u64, limit_bytes: u64, most_bytes: u64) -> u64 {
    let mut spans: FxHashMap<*const Storage, Span> = FxHashMap::default();
    for (index, cmd) in state.queue.ahead().enumerate() {
        cmd.each_operand(&mut |storage, _| {
            let span = spans.entry(Arc::as_ptr(storage)).or_default();
            span.held += 1;
            span.last = index;
        });
    }
    let mut missing_bytes = 0;
    for (index, cmd) in state.queue.ahead().enumerate() {
        let mut dying_bytes = 0;
        cmd.each_operand(&mut |storage, _| {
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
