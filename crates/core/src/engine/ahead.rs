//! Writing out ahead of need: what must leave before long is copied to the host while the device
//! computes, so that it is clean by the time its room is wanted.
//!
//! How much that will be is read off the queue: it tells what will be made and restored, and what
//! will die. Where it tells of no shortage, nothing is copied. A storage whose copy is on its way
//! stays where it is; a write to it, or its death, makes the copy worth nothing.

use std::sync::{Arc, Weak};

use rustc_hash::{FxHashMap, FxHashSet};

use super::Engine;
use super::evict::{DestinationGuard, LOOK_AHEAD_COMMANDS, PendingEviction, Tier};
use super::read::Wanted;
use super::state::State;
use crate::memory::{Candidate, Copies, Storage};

/// A copy on its way, of a storage that is still on the device.
#[derive(Debug)]
pub(super) struct Cleaning {
    storage: Weak<Storage>,
    len_bytes: u64,
    /// The last write to it before the copy was recorded.
    writes: u64,
    destination: DestinationGuard,
    reading: Wanted,
}

impl Cleaning {
    /// The storage, if what is copied is what it still holds.
    fn of(&self, state: &State) -> Option<Arc<Storage>> {
        let storage = self.storage.upgrade()?;
        let is_same = state.memory.writes_to(&storage) == self.writes;
        let has_value = storage.slot().is_some() && state.memory.poison_of(&storage).is_none();
        (is_same && has_value && self.reading.0.failure().is_none()).then_some(storage)
    }
}

impl Engine {
    /// Records copies of storages that will have to leave before long, as many as there is room
    /// for without waiting for anything or taking it from others.
    pub(super) async fn start_ahead(
        &self,
        victims: Vec<Candidate>,
        tier: Tier,
    ) -> crate::error::Result<()> {
        for victim in victims {
            if victim.storage.len_bytes() > self.readbacks.room_bytes() {
                break;
            }
            let Ok(destination) = self.spare_destination(&victim.storage, tier) else {
                break;
            };
            let (storage, len_bytes) =
                (Arc::downgrade(&victim.storage), victim.storage.len_bytes());
            let writes = self.lock().memory.writes_to(&victim.storage);
            let Some(eviction) = self.start_eviction(victim, destination).await? else {
                break;
            };
            self.lock().cleaning.push(Cleaning {
                storage,
                len_bytes,
                writes,
                destination: eviction.destination,
                reading: eviction.reading,
            });
        }
        Ok(())
    }

    /// The victim as one that is leaving, if a copy of what it holds is on its way already; else as
    /// it is.
    pub(super) fn already_evicting(&self, victim: Candidate) -> Result<PendingEviction, Candidate> {
        let mut state = self.lock();
        let known = |one: &Cleaning| std::ptr::eq(one.storage.as_ptr(), &*victim.storage);
        let Some(index) = state.cleaning.iter().position(known) else {
            return Err(victim);
        };
        let one = state.cleaning.remove(index);
        if one.of(&state).is_none() {
            state.counters.evicted_bytes += one.len_bytes;
            // Room on disk is given back without the lock.
            drop(state);
            return Err(victim);
        }
        Ok(PendingEviction {
            victim,
            destination: one.destination,
            reading: one.reading,
        })
    }

    /// Takes in the copies that have arrived, and forgets those that are worth nothing. Waits for
    /// nothing. The caller has the execution lock.
    pub(super) fn take_in_cleaned(&self) {
        let on_their_way = std::mem::take(&mut self.lock().cleaning);
        if on_their_way.is_empty() {
            return;
        }
        // A loss shows in the readings.
        let _ = self.driver.poll();
        for one in on_their_way {
            self.readbacks.take_in_arrived(&one.reading.0);
            let mut state = self.lock();
            let Some(storage) = one.of(&state) else {
                // It has travelled all the same.
                state.counters.evicted_bytes += one.len_bytes;
                continue;
            };
            if !one.reading.0.is_done() {
                state.cleaning.push(one);
                continue;
            }
            drop(state);
            let mut copies = Copies::default();
            if one.destination.finish(&mut copies).is_ok() {
                let mut state = self.lock();
                state.counters.evicted_bytes += one.len_bytes;
                state.memory.copied(&storage, |known| known.add(copies));
            }
        }
    }
}

impl State {
    /// Takes out the copies on their way of storages that nobody holds any more: they keep room in
    /// the host's memory or on disk, which is given back without the lock.
    pub(super) fn dead_cleanings(&mut self) -> Vec<Cleaning> {
        let is_dead = |one: &mut Cleaning| one.storage.strong_count() == 0;
        let dead: Vec<Cleaning> = self.cleaning.extract_if(.., is_dead).collect();
        self.counters.evicted_bytes += dead.iter().map(|one| one.len_bytes).sum::<u64>();
        dead
    }
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

impl State {
    /// Those that should be copied out now, since they will have to leave while the queue runs:
    /// after the `victims`, so that the slabs hold no more than `limit_bytes`. At most `most_bytes`
    /// of them.
    pub(super) fn victims_ahead(
        &self,
        victims: &[Candidate],
        tier: Tier,
        stay: &FxHashSet<u32>,
        limit_bytes: u64,
        most_bytes: u64,
    ) -> Vec<Candidate> {
        let evicted_bytes = victims.iter().map(|victim| victim.storage.size_bytes());
        let live_bytes = (self.memory.live_bytes()).saturating_sub(evicted_bytes.sum());
        let missing_bytes = self.missing_ahead(live_bytes, limit_bytes, most_bytes);
        if missing_bytes == 0 {
            return Vec::new();
        }
        let uses = self.next_uses();
        let mut candidates = self.memory.candidates(stay);
        // What the queue still uses has to be there for that.
        candidates.retain(|candidate| {
            let slot = candidate.storage.slot();
            slot.is_some_and(|slot| !uses.0.contains_key(&slot))
        });
        let mut chosen = self.best(candidates, missing_bytes, Some(tier), &uses);
        let on_their_way = |candidate: &Candidate| {
            let storage: &Storage = &candidate.storage;
            let mut cleaning = self.cleaning.iter();
            cleaning.any(|one| std::ptr::eq(one.storage.as_ptr(), storage))
        };
        chosen.retain(|candidate| !candidate.is_clean && !on_their_way(candidate));
        chosen
    }

    /// How many bytes more than the limit will be live at some time while the queue runs, if so
    /// many are now. Looks no further once that is `most_bytes`.
    fn missing_ahead(&self, mut live_bytes: u64, limit_bytes: u64, most_bytes: u64) -> u64 {
        let mut spans: FxHashMap<*const Storage, Span> = FxHashMap::default();
        for (index, cmd) in self.queue.iter().take(LOOK_AHEAD_COMMANDS).enumerate() {
            cmd.each_operand(|storage, _| {
                let span = spans.entry(Arc::as_ptr(storage)).or_default();
                span.held += 1;
                span.last = index;
            });
        }
        let mut missing_bytes = 0;
        for (index, cmd) in self.queue.iter().take(LOOK_AHEAD_COMMANDS).enumerate() {
            let mut dying_bytes = 0;
            cmd.each_operand(|storage, _| {
                let Some(span) = spans.get_mut(&Arc::as_ptr(storage)) else {
                    return;
                };
                let size_bytes = self.memory.granted_bytes(storage.size_bytes());
                let has_come = std::mem::replace(&mut span.has_come, true);
                if !has_come && self.memory.find(storage).is_none() {
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
}
