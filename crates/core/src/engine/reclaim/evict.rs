//! Evicts storages: writes their bytes to another tier and frees their places.
//!
//! `evict_to_heap` moves them to the heap in the host's memory, where there is one. On all other
//! ways a storage is evicted only after its bytes have arrived elsewhere, so a failure on the way
//! loses nothing. Several victims share one submission. Where host and device share memory there is
//! no submission: the slab is mapped once it is idle.
//!
//! For a command of a low priority, the bytes of a large victim leave part by part, and commands of
//! a higher priority run in between. Meanwhile the copy is among those that are made ahead of need.
//! So an eviction of the same victim in between goes on with it.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::evict_in_place::evict_in_place;
use super::evict_to_heap::{Moved, evict_to_heap};
use super::outlook::Outlook;
use super::{ahead, needed, retire, victims};
use crate::driver::{At, BoxFuture, Op};
use crate::engine::pass::Pass;
use crate::engine::state::State;
use crate::engine::state::cleaning::Cleaning;
use crate::engine::state::destination::{Destination, DestinationGuard};
use crate::engine::tiers::{self, arrivals};
use crate::error::Result;
use crate::memory::{Candidate, Copies, Storage, Tier, Whom};
use crate::transfer::{Reading, ReadingGuard, refusal};

/// The choices of victims in a row that may free nothing before the eviction stops.
const CHOICES_IN_VAIN: usize = 4;

/// The smallest piece that is worth a copy.
const LEAST_PIECE_BYTES: u64 = 4 << 10;

/// A victim whose bytes are on their way.
pub(super) struct PendingEviction {
    pub(super) victim: Candidate,
    /// If it is dropped, the storage stays on the device.
    pub(super) copy: Cleaning,
}

/// Frees the places of poisoned storages. If there are none, drops storages that have another copy,
/// until `wanted_bytes` are free.
pub(super) fn drop_copied(pass: &Pass, wanted_bytes: u64, whom: Whom) -> u64 {
    let mut state = pass.lock();
    let given_up_bytes = state.give_up_suspended_restores();
    if given_up_bytes > 0 {
        return given_up_bytes;
    }
    let stay = needed::needed_slots(&state);
    let freed_bytes = state.memory.evict_poisoned(&stay);
    if freed_bytes > 0 {
        return freed_bytes;
    }
    let (victims, _) = victims::victims(&state, wanted_bytes, None, &stay, u64::MAX, whom);
    victims
        .iter()
        .map(|victim| victims::drop_one(&mut state, victim))
        .sum()
}

/// Evicts storages until `wanted_bytes` are free. Those with another copy are dropped, the others
/// are written to the tier. Returns the freed bytes, and the outlook of the last choice of victims.
pub(super) async fn evict_bytes(
    pass: &Pass,
    wanted_bytes: u64,
    tier: Tier,
    whom: Whom,
) -> Result<(u64, Option<Outlook>)> {
    // No bytes have to leave for these.
    let given_up_bytes = pass.lock().give_up_suspended_restores();
    if given_up_bytes > 0 {
        return Ok((given_up_bytes, None));
    }
    arrivals::take_in_arrived(pass);
    let mut stay = needed::needed_slots(&pass.lock());
    let mut freed_bytes = pass.lock().memory.evict_poisoned(&stay);
    let (mut in_vain, mut most_bytes, mut last_outlook) = (0, u64::MAX, None);
    while freed_bytes < wanted_bytes && in_vain < CHOICES_IN_VAIN && tiers::is_ready(pass, tier) {
        let missing_bytes = wanted_bytes - freed_bytes;
        let (victims, outlook) = {
            let (state, tier) = (pass.lock(), Some(tier));
            victims::victims(&state, missing_bytes, tier, &stay, most_bytes, whom)
        };
        if victims.is_empty() {
            break;
        }
        let slots = victims.iter().filter_map(|victim| victim.storage.slot());
        stay.extend(slots.map(|slot| slot as usize));
        let ahead = next_victims(pass, &outlook, &victims, tier, &stay, whom);
        let before = pass.changes_amid();
        let taken_out = evict_victims(pass, victims, ahead, tier, whom);
        let (left_bytes, too_large_bytes) =
            in_span!("eviction", { missing_bytes = missing_bytes }, taken_out).await?;
        freed_bytes += left_bytes;
        last_outlook = Some(outlook);
        match too_large_bytes {
            // A tier without room for these victims may have room for smaller ones.
            Some(too_large_bytes) => most_bytes = too_large_bytes.saturating_sub(1),
            None if left_bytes == 0 => in_vain += 1,
            None => in_vain = 0,
        }
        pass.give_way().await?;
        if pass.changes_amid() != before {
            stay = needed::needed_slots(&pass.lock());
        }
    }
    Ok((freed_bytes, last_outlook))
}

/// As [`evict_bytes`], to one store of the app after the other.
pub(super) async fn evict_to_stores(pass: &Pass, wanted_bytes: u64, whom: Whom) -> Result<u64> {
    let mut freed_bytes = 0;
    for tier in tiers::stores(pass) {
        let missing_bytes = wanted_bytes - freed_bytes.min(wanted_bytes);
        if missing_bytes == 0 {
            break;
        }
        freed_bytes += evict_bytes(pass, missing_bytes, tier, whom).await?.0;
    }
    Ok(freed_bytes)
}

/// Evicts these victims as far as the tier has room, and starts the copies of `ahead`. `whom` is
/// the claim for which they leave. Returns the freed bytes, and the size of the smallest victim for
/// which the tier had no room.
pub(super) async fn evict_victims(
    pass: &Pass,
    mut victims: Vec<Candidate>,
    ahead: Vec<Candidate>,
    tier: Tier,
    whom: Whom,
) -> Result<(u64, Option<u64>)> {
    let (mut evictions, mut freed_bytes, mut too_large_bytes) = (Vec::new(), 0, None);
    pass.drop_stale_copies();
    if tier == Tier::Host && pass.caps().host_heap {
        // Clean ones first, while they are clean. Neighbours in both heaps move by one copy.
        victims.sort_by_key(|victim| {
            let place = victim.place;
            (
                !victim.is_clean,
                place.buffer.0.number(),
                place.offset_bytes,
            )
        });
    }
    for mut victim in victims {
        // Urgent commands may have run in the middle of the eviction before.
        match pass.lock().memory.slots.candidate(&victim.storage) {
            Some(now) => victim.place = now.place,
            None => continue,
        }
        if victim.is_clean || victim.recompute_ns.is_some() {
            freed_bytes += victims::drop_one(&mut pass.lock(), &victim);
            continue;
        }
        if !settle(pass, &mut victim)? {
            continue;
        }
        let size_bytes = victim.storage.size_bytes();
        if tier == Tier::Host {
            match evict_to_heap(pass, &victim).await? {
                Moved::Away => {
                    freed_bytes += size_bytes;
                    continue;
                }
                Moved::Changed => continue,
                Moved::NoRoom => {}
            }
        }
        let len_bytes = victim.storage.len_bytes();
        let Ok(started) = go_on_or_start(pass, victim, tier).await? else {
            too_large_bytes = Some(too_large_bytes.unwrap_or(u64::MAX).min(len_bytes));
            continue;
        };
        let Some(started) = started else { break };
        if !pass.caps().maps_slabs {
            evictions.push(started);
            continue;
        }
        let evicted = evict_in_place(pass, started, whom.claimer());
        if matches!(pass.unless_lost(evicted.await)?, Ok(true)) {
            freed_bytes += size_bytes;
        }
    }
    if !evictions.is_empty() {
        // The pass waits for these evictions only.
        pass.submit()?;
    }
    if !ahead.is_empty() {
        ahead::start_ahead(pass, ahead, tier).await?;
        pass.submit()?;
    }
    for eviction in evictions {
        let size_bytes = eviction.victim.storage.size_bytes();
        if matches!(
            pass.unless_lost(finish_eviction(pass, eviction).await)?,
            Ok(true)
        ) {
            freed_bytes += size_bytes;
        }
    }
    Ok((freed_bytes, too_large_bytes))
}

/// Goes on with a copy of a victim's bytes, or starts one. `None` if there is no buffer for it. The
/// inner error is that of the tier, which does not take the bytes.
pub(super) async fn go_on_or_start(
    pass: &Pass,
    victim: Candidate,
    tier: Tier,
) -> Result<Result<Option<PendingEviction>>> {
    let victim = match ahead::take_pending_eviction(pass, victim) {
        Ok(mut begun) => match record(pass, &mut begun).await? {
            true => return Ok(Ok(Some(begun))),
            // The memory is short of buffers that are as large as when the copy began.
            false => begun.victim,
        },
        Err(victim) => victim,
    };
    match tiers::destination(pass, &victim.storage, tier) {
        Ok(destination) => start_eviction(pass, victim, destination).await.map(Ok),
        Err(error) => Ok(Err(error)),
    }
}

/// Submits the batch if it makes the value of a victim. If the driver refused it later, the victim
/// would have had nothing to copy out. `false` if it is no candidate any more.
pub(super) fn settle(pass: &Pass, victim: &mut Candidate) -> Result<bool> {
    if !pass.lock().batch.restores(&victim.storage) {
        return Ok(true);
    }
    pass.submit()?;
    let now = pass.lock().memory.slots.candidate(&victim.storage);
    if let Some(now) = &now {
        victim.place = now.place;
    }
    Ok(now.is_some())
}

/// The storages to copy out now, because they will be evicted after these victims.
fn next_victims(
    pass: &Pass,
    outlook: &Outlook,
    victims: &[Candidate],
    tier: Tier,
    stay: &FxHashSet<usize>,
    whom: Whom,
) -> Vec<Candidate> {
    if pass.caps().maps_slabs || tier == Tier::Host && pass.caps().host_heap {
        return Vec::new();
    }
    let most_bytes = pass.readbacks.room_bytes().min(pass.part_bytes());
    let state = pass.lock();
    victims::victims_ahead(&state, outlook, victims, tier, stay, most_bytes, whom)
}

/// Starts a copy of a victim's bytes. Where the host does not map slabs, records the copies that
/// take the first part of them to the host. `None` if there is no buffer for them.
pub(super) fn start_eviction(
    pass: &Pass,
    victim: Candidate,
    destination: Destination,
) -> BoxFuture<'_, Result<Option<PendingEviction>>> {
    Box::pin(async move {
        let tier = destination.tier();
        // Guarded at once, because the copies go on if something fails below.
        let (destination, sink) = DestinationGuard::new(destination);
        let len_bytes = victim.storage.len_bytes();
        let most_bytes = len_bytes.next_multiple_of(4).min(pass.part_bytes());
        let piece_bytes = match pass.caps().maps_slabs {
            true => Some(most_bytes),
            false => available_piece_bytes(pass, most_bytes).await?,
        };
        let Some(piece_bytes) = piece_bytes else {
            return Ok(None);
        };
        let (reading, pieces) = Reading::new(0, len_bytes, piece_bytes, sink);
        let reading = ReadingGuard(reading);
        let writes = pass.lock().memory.slots.writes_to(&victim.storage);
        let to = (tier, destination);
        let copy = Cleaning::new(&victim.storage, writes, to, reading, pieces);
        let mut eviction = PendingEviction { victim, copy };
        let is_recorded = record(pass, &mut eviction).await?;
        Ok(is_recorded.then_some(eviction))
    })
}

/// Records the copies of the next pieces, up to one part. `false` if there is no buffer for one.
/// Where the host maps slabs, no copy is recorded.
fn record<'a>(pass: &'a Pass, eviction: &'a mut PendingEviction) -> BoxFuture<'a, Result<bool>> {
    Box::pin(async move {
        let PendingEviction { victim, copy } = eviction;
        let (part_bytes, mut recorded_bytes) = (pass.part_bytes(), 0);
        while recorded_bytes < part_bytes && !pass.caps().maps_slabs {
            let Some(piece) = copy.rest.next() else { break };
            let (start, size_bytes) = piece.words();
            let buffer = loop {
                if let Some(buffer) = pass.readbacks.take(size_bytes) {
                    break buffer;
                }
                pass.submit()?;
                if let Err(error) = pass.unless_lost(pass.readbacks.provide(size_bytes).await)? {
                    copy.reading.fail(refusal("a read-back buffer", error));
                    return Ok(false);
                }
            };
            let mut state = pass.lock();
            state.touch(victim.place);
            let reading = Arc::clone(&copy.reading);
            state.batch.reads.push((reading, piece, buffer));
            let (from, to) = (victim.place.at(start), At(buffer.0, 0));
            state.push_op(Op::Copy(from, to, size_bytes));
            recorded_bytes += size_bytes;
        }
        Ok(true)
    })
}

/// The size of the largest read-back buffer that can be had. An eviction runs because memory is
/// short, so it must do with little.
async fn available_piece_bytes(pass: &Pass, len_bytes: u64) -> Result<Option<u64>> {
    let whole_bytes = len_bytes.next_power_of_two().max(LEAST_PIECE_BYTES);
    let mut piece_bytes = pass.readbacks.piece_bytes().min(whole_bytes);
    let least_bytes = LEAST_PIECE_BYTES.min(piece_bytes);
    let mut is_submitted = false;
    if !pass.readbacks.has_room(piece_bytes) {
        // The buffer is taken from an older piece, whose copy must be submitted.
        pass.submit()?;
        is_submitted = true;
    }
    loop {
        let provided = pass.unless_lost(pass.readbacks.provide(piece_bytes).await)?;
        if provided.is_ok() {
            return Ok(Some(piece_bytes));
        }
        if !is_submitted {
            // The budget has no room for one more buffer, so this one, too, comes from a piece.
            pass.submit()?;
            is_submitted = true;
        } else if piece_bytes > least_bytes {
            piece_bytes = (piece_bytes / 4).max(least_bytes);
        } else if retire::wait_for_retiring(pass).await? == 0 {
            // No released buffer is still in use, so a wait frees nothing.
            return Ok(None);
        }
    }
}

/// Waits until a victim's bytes have arrived, then evicts it. Returns whether it has. It has not if
/// commands that ran between two parts used the victim, or evicted it.
pub(super) async fn finish_eviction(pass: &Pass, mut eviction: PendingEviction) -> Result<bool> {
    while !eviction.copy.reading.is_done() {
        let copy = &eviction.copy;
        if let Some(error) = copy.reading.failure() {
            return Err(error);
        }
        if copy.is_left() && copy.reading.next_signal().is_none() {
            match give_way_amid(pass, eviction).await? {
                Some(goes_on) => eviction = goes_on,
                None => return Ok(false),
            }
            record(pass, &mut eviction).await?;
            pass.submit()?;
            continue;
        }
        if let Err(error) = pass.unless_lost(pass.readbacks.take_in(&copy.reading).await)? {
            copy.reading.cancel();
            return Err(refusal("a read", error));
        }
    }
    evict_copied(pass, &eviction)
}

/// Lets urgent commands run between two parts of a victim's copy. Returns the eviction, unless they
/// evicted the victim, changed its value or pinned it.
pub(super) async fn give_way_amid(
    pass: &Pass,
    eviction: PendingEviction,
) -> Result<Option<PendingEviction>> {
    let PendingEviction { victim, mut copy } = eviction;
    let storage = victim.storage;
    if pass.is_outranked() {
        pass.lock().cleanings.push(copy);
        pass.give_way().await?;
        let taken = pass.lock().cleanings.take(&storage);
        match taken {
            Some(taken) => copy = taken,
            None => return Ok(None),
        }
    }
    // It may have moved since it was chosen.
    let victim = {
        let state = pass.lock();
        let still_its = copy.storage(&state.memory);
        still_its.and_then(|storage| state.memory.slots.candidate(&storage))
    };
    Ok(victim.map(|victim| PendingEviction { victim, copy }))
}

/// Evicts a victim whose bytes have all arrived. Returns whether it has: not if its value is
/// another one now, or if urgent commands evicted it while another victim of this choice gave way
/// to them.
pub(super) fn evict_copied(pass: &Pass, eviction: &PendingEviction) -> Result<bool> {
    let is_there = {
        let memory = &pass.lock().memory;
        let storage = eviction.copy.storage(memory);
        storage.is_some_and(|storage| memory.slots.in_slab(&storage))
    };
    if !is_there {
        return Ok(false);
    }
    let mut copies = Copies::default();
    eviction.copy.destination.finish(&mut copies)?;
    pass.lock().mark_evicted(&eviction.victim.storage, copies);
    Ok(true)
}

impl State {
    /// Frees the place of a storage that now has these copies.
    pub(super) fn mark_evicted(&mut self, storage: &Storage, copies: Copies) {
        self.count_transfer(&copies, storage.len_bytes());
        (self.memory.slots).copied(storage, |known| known.add(copies));
        self.memory.evict_clean(storage);
        self.counters.evicted_bytes += storage.len_bytes();
    }
}
