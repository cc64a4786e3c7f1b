//! The choice of victims, now and ahead of need.
//!
//! `outlook` reads off the queue how many bytes its commands will lack. If they lack none, no
//! victims are chosen ahead of need.

use rustc_hash::FxHashSet;

use super::outlook::Outlook;
use crate::engine::state::State;
use crate::memory::Tier;
use crate::memory::{Candidate, Residency, Storage, Weight, Whom, choose};

/// Drops a storage that has another copy or can be computed again. Returns the bytes that became
/// free.
pub(super) fn drop_one(state: &mut State, victim: &Candidate) -> u64 {
    if victim.recompute_ns.is_some() && !state.will_recompute(&victim.storage) {
        return 0;
    }
    if !state.memory.evict_clean(&victim.storage) {
        return 0;
    }
    let freed_bytes = victim.storage.size_bytes();
    state.counters.dropped_bytes += freed_bytes;
    let is_at_source = state.memory.slots.kept(&victim.storage).at_source;
    if is_at_source && victim.storage.residency() == Residency::Backed {
        state.counters.dropped_to_source_bytes += freed_bytes;
    }
    freed_bytes
}

/// The storages to evict so that `wanted_bytes` become free, and what the queue will lack: those
/// with the best ratio of gain to the cost of restoring. Also returns the outlook of the choice.
///
/// Without a tier, only storages with another copy are candidates. Slots in `stay` are no
/// candidates. Storages without another copy may have at most `most_bytes` each. Where there are
/// shares, only those that `whom` names give storages.
///
/// There is one choice among all candidates. Where weights are read in a cycle, dropping clean
/// storages first would move several times as many bytes.
pub(super) fn victims(
    state: &State,
    wanted_bytes: u64,
    tier: Option<Tier>,
    stay: &FxHashSet<usize>,
    most_bytes: u64,
    whom: Whom,
) -> (Vec<Candidate>, Outlook) {
    let outlook = Outlook::new(state);
    let wanted_bytes = wanted_bytes.max(outlook.missing_bytes(state));
    let mut candidates = state.memory.slots.candidates(stay);
    (state.steps).require_copies_of_repeated(&mut candidates, &state.memory);
    let has_room = |storage: &Storage| tier.is_some() && storage.len_bytes() <= most_bytes;
    for candidate in &mut candidates {
        let tier = tier.filter(|_| has_room(&candidate.storage));
        predict(state, candidate, tier, &outlook);
    }
    candidates.retain(|candidate| {
        let is_dropped = candidate.is_clean || candidate.recompute_ns.is_some();
        is_dropped || has_room(&candidate.storage)
    });
    let choose = |candidates| choose_best(state, candidates, wanted_bytes, tier, &outlook);
    let victims = match state.memory.shares.is_empty() {
        false => choose_owed(state, candidates, whom, choose),
        true => choose(candidates),
    };
    (victims, outlook)
}

/// The best of the candidates that have to give memory.
fn choose_owed(
    state: &State,
    mut candidates: Vec<Candidate>,
    whom: Whom,
    choose: impl Fn(Vec<Candidate>) -> Vec<Candidate>,
) -> Vec<Candidate> {
    for whom in whom.in_turn(state.memory.shares.has_best_effort()) {
        let Some(mut claim) = state.memory.claim(whom) else {
            break;
        };
        let (owed, others) = (candidates.into_iter())
            .partition::<Vec<_>, _>(|candidate| claim.may_take(candidate.storage.share()));
        if !owed.is_empty() {
            let mut chosen = choose(owed);
            chosen.retain(|candidate| {
                let granted_bytes = state
                    .memory
                    .slabs
                    .granted_bytes(candidate.storage.size_bytes());
                claim.take(candidate.storage.share(), granted_bytes)
            });
            return chosen;
        }
        candidates = others;
    }
    Vec::new()
}

/// Sets when a candidate is used again, and what it costs to compute it again.
fn predict(state: &State, candidate: &mut Candidate, tier: Option<Tier>, outlook: &Outlook) {
    candidate.distance = outlook.distance(state, candidate);
    candidate.recompute_ns = cheaper_ns(state, candidate, tier, outlook);
}

/// The cost of computing a storage again, in nanoseconds, if it is cheaper than to write its bytes
/// to the tier and to restore them. Without a tier, if it is possible.
///
/// Inputs that would be freed before the next use must stay until then. So part of the room is not
/// free for part of the time, and the rest costs as much more.
fn cheaper_ns(
    state: &State,
    candidate: &Candidate,
    tier: Option<Tier>,
    outlook: &Outlook,
) -> Option<u64> {
    let storage = &candidate.storage;
    if candidate.is_clean || state.lineages.is_empty() {
        return None;
    }
    let plan = state.recompute_plan(storage)?;
    if state.steps.is_repeated(storage) {
        return None;
    }
    let kept_bytes = plan.kept_bytes(candidate.distance, |leaf| outlook.freed_by(leaf));
    let size_bytes = storage.size_bytes() as f64;
    if kept_bytes >= size_bytes && tier.is_some() {
        return None;
    }
    let free_bytes = (size_bytes - kept_bytes).max(1.0);
    let recompute_ns = (plan.ns() * size_bytes / free_bytes) as u64;
    tier.is_none_or(|tier| recompute_ns < evict_ns(state, candidate, tier))
        .then_some(recompute_ns)
}

/// The cost of evicting a storage to a tier and restoring it, in nanoseconds.
///
/// Elsewhere the way out does not count: what is read in a cycle is written once and restored in
/// each round. But a training step writes all that it reads. The way out costs about as much as
/// the way back.
fn evict_ns(state: &State, candidate: &Candidate, tier: Tier) -> u64 {
    let cost = state.costs.transfer_cost(tier);
    let back_ns = cost.ns(candidate.storage.size_bytes());
    match candidate.is_clean || state.lineages.is_empty() {
        true => back_ns,
        false => back_ns.saturating_mul(2),
    }
}

/// The best of the candidates, so that `wanted_bytes` become free.
fn choose_best(
    state: &State,
    candidates: Vec<Candidate>,
    wanted_bytes: u64,
    tier: Option<Tier>,
    outlook: &Outlook,
) -> Vec<Candidate> {
    let (lacks_until, coming_bytes) = match state.lineages.is_empty() {
        // Only the choice between evicting and computing again needs them.
        true => (u32::MAX, 0),
        false => (outlook.lacks_until, outlook.lack_bytes),
    };
    let weigh = |candidate: &Candidate| {
        let written = tier.filter(|_| !candidate.is_clean);
        let from = candidate.far.or(written).unwrap_or(Tier::Host);
        Weight {
            size_bytes: candidate.storage.size_bytes(),
            is_clean: candidate.is_clean,
            // Room is worth nothing once no command lacks any.
            distance: candidate.distance.min(lacks_until.saturating_add(1)),
            back_ns: (candidate.recompute_ns).unwrap_or_else(|| evict_ns(state, candidate, from)),
        }
    };
    let chosen = choose(&candidates, weigh, wanted_bytes, coming_bytes);
    let chosen = chosen.into_iter().map(|index| candidates[index].clone());
    chosen.collect()
}

/// The storages to copy out now, because they will be evicted while the queue runs. They leave
/// after `victims`. Together they have at most `most_bytes`.
pub(super) fn victims_ahead(
    state: &State,
    outlook: &Outlook,
    victims: &[Candidate],
    tier: Tier,
    stay: &FxHashSet<usize>,
    most_bytes: u64,
    whom: Whom,
) -> Vec<Candidate> {
    // Where victims are dropped, the next ones will be too. They may not exist yet.
    if victims.iter().any(|victim| victim.recompute_ns.is_some()) {
        return Vec::new();
    }
    let evicted_bytes = victims.iter().map(|victim| victim.storage.size_bytes());
    let missing_bytes = outlook.lack_bytes.saturating_sub(evicted_bytes.sum());
    let missing_bytes = missing_bytes.min(most_bytes);
    if missing_bytes == 0 {
        return Vec::new();
    }
    let mut candidates = state.memory.slots.candidates(stay);
    // Storages that the queue uses must stay on the device.
    candidates.retain(|candidate| outlook.next_use(&candidate.storage).is_none());
    if !state.memory.shares.is_empty() {
        if let Some(claim) = state.memory.claim(whom) {
            candidates.retain(|candidate| claim.may_take(candidate.storage.share()));
        }
    }
    for candidate in &mut candidates {
        predict(state, candidate, Some(tier), outlook);
    }
    let mut chosen = choose_best(state, candidates, missing_bytes, Some(tier), outlook);
    chosen.retain(|candidate| {
        let is_written_out = !candidate.is_clean && candidate.recompute_ns.is_none();
        is_written_out && !state.cleanings.holds(&candidate.storage)
    });
    chosen
}
