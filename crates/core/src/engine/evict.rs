//! Evicting storages: who goes, and where their bytes are taken.
//!
//! A storage leaves only after its bytes have arrived elsewhere, so whatever fails on the way,
//! nothing is lost. Several victims travel in one submission. Where host and device share memory
//! there is no submission at all: the slab is mapped once it is idle.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::{FxHashMap, FxHashSet};

use super::read::Wanted;
use super::state::State;
use super::{Engine, refusal};
use crate::driver::{DriverError, MapMode, Op};
use crate::error::{Error, Result};
use crate::memory::{Candidate, Copies, HostCharge, HostCopy, Storage, choose};
use crate::transfer::{Piece, Reading, SpillWriter};

/// After so many rounds in a row in which nobody could leave, nobody else is asked.
const ROUNDS_IN_VAIN: usize = 4;

/// The commands of the queue among which the next uses are known.
pub(super) const LOOK_AHEAD_COMMANDS: usize = 1024;

/// Pieces smaller than this are not worth the copies.
const LEAST_PIECE_BYTES: u64 = 4 << 10;

/// Where bytes go that leave the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tier {
    Host,
    Disk,
}

/// What takes a victim's bytes.
#[derive(Debug)]
pub(super) enum Destination {
    Host(Vec<u8>, HostCharge),
    Disk(SpillWriter),
}

impl Destination {
    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            // Room was made for all of them before, unless the device has none to give.
            Destination::Host(copy, _) => {
                let room = copy.capacity() - copy.len();
                copy.extend_from_slice(&bytes[..room.min(bytes.len())]);
                Ok(())
            }
            Destination::Disk(writer) => writer.write(bytes),
        }
    }

    /// All bytes have come: they are a copy from now on.
    fn finish(self, copies: &mut Copies) -> Result<()> {
        match self {
            Destination::Host(bytes, charge) => {
                copies.host = Some(Arc::new(HostCopy { bytes, charge }));
            }
            Destination::Disk(writer) => copies.disk = Some(Arc::new(writer.finish()?)),
        }
        Ok(())
    }
}

/// A taker that a reading's sink fills, and the first thing that went wrong with it.
#[derive(Debug)]
struct Shared(Mutex<(Option<Destination>, Option<Error>)>);

impl Shared {
    fn finish(&self, copies: &mut Copies) -> Result<()> {
        match std::mem::take(&mut *self.lock()) {
            (Some(destination), None) => destination.finish(copies),
            (_, Some(error)) => Err(error),
            (None, None) => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, (Option<Destination>, Option<Error>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What takes a victim's bytes, for as long as somebody wants them: a reading that was given up
/// holds its sink until it is taken in, and would keep the room on the host or on disk for so long.
#[derive(Debug)]
pub(super) struct DestinationGuard(Arc<Shared>);

impl DestinationGuard {
    /// All that was to come has come: it is a copy from now on.
    pub(super) fn finish(&self, copies: &mut Copies) -> Result<()> {
        self.0.finish(copies)
    }
}

impl Drop for DestinationGuard {
    fn drop(&mut self) {
        let destination = self.0.lock().0.take();
        drop(destination);
    }
}

/// A victim whose bytes are on their way.
pub(super) struct PendingEviction {
    pub(super) victim: Candidate,
    pub(super) destination: DestinationGuard,
    /// Whoever stops waiting gives up: the storage stays where it is.
    pub(super) reading: Wanted,
}

impl Engine {
    /// Takes the places of storages whose bytes are elsewhere too, as many as it takes, and of
    /// those whose bytes are worth nothing.
    pub(super) fn drop_copied(&self, wanted_bytes: u64) -> u64 {
        let mut state = self.lock();
        let stay = state.needed_slots();
        let freed_bytes = state.memory.evict_poisoned(&stay);
        if freed_bytes > 0 {
            return freed_bytes;
        }
        let victims = state.victims(wanted_bytes, None, &stay, u64::MAX);
        victims.iter().map(|victim| state.drop_one(victim)).sum()
    }

    /// Lets storages leave until so many bytes are free: those whose bytes are elsewhere too are
    /// dropped, the others are evicted. Returns how many bytes became free.
    pub(super) async fn evict_bytes(&self, wanted_bytes: u64, tier: Tier) -> Result<u64> {
        if tier == Tier::Host && self.caps().maps_slabs {
            // Host and device share one memory: nothing would be gained.
            return Ok(0);
        }
        self.take_in_cleaned();
        let mut stay = self.lock().needed_slots();
        let mut freed_bytes = self.lock().memory.evict_poisoned(&stay);
        let (mut in_vain, mut most_bytes) = (0, u64::MAX);
        while freed_bytes < wanted_bytes && in_vain < ROUNDS_IN_VAIN {
            let missing_bytes = wanted_bytes - freed_bytes;
            let victims = (self.lock()).victims(missing_bytes, Some(tier), &stay, most_bytes);
            if victims.is_empty() {
                break;
            }
            stay.extend(victims.iter().filter_map(|victim| victim.storage.slot()));
            let ahead = self.who_comes_next(&victims, tier, &stay);
            let taken_out = self.evict_victims(victims, ahead, tier);
            let (left_bytes, too_large_bytes) =
                in_span!("eviction", { missing_bytes = missing_bytes }, taken_out).await?;
            freed_bytes += left_bytes;
            match too_large_bytes {
                // A tier without room for these may have room for smaller ones.
                Some(too_large_bytes) => most_bytes = too_large_bytes.saturating_sub(1),
                None if left_bytes == 0 => in_vain += 1,
                None => in_vain = 0,
            }
        }
        Ok(freed_bytes)
    }

    /// Lets these storages leave, as far as the tier has room, and starts to copy those out that
    /// will have to leave next. Returns the bytes that became free, and the least that the tier had
    /// no room for.
    pub(super) async fn evict_victims(
        &self,
        victims: Vec<Candidate>,
        ahead: Vec<Candidate>,
        tier: Tier,
    ) -> Result<(u64, Option<u64>)> {
        let (mut evictions, mut freed_bytes, mut too_large_bytes) = (Vec::new(), 0, None);
        self.drop_gone();
        for victim in victims {
            if victim.is_clean {
                freed_bytes += self.lock().drop_one(&victim);
                continue;
            }
            let victim = match self.already_evicting(victim) {
                Ok(begun) => {
                    evictions.push(begun);
                    continue;
                }
                Err(victim) => victim,
            };
            let Ok(destination) = self.destination(&victim.storage, tier) else {
                let len_bytes = victim.storage.len_bytes();
                too_large_bytes = Some(too_large_bytes.unwrap_or(u64::MAX).min(len_bytes));
                continue;
            };
            if self.caps().maps_slabs {
                match self.evict_in_place(&victim, destination).await {
                    Ok(()) => freed_bytes += victim.storage.size_bytes(),
                    Err(_) => self.check_lost()?,
                }
                continue;
            }
            match self.start_eviction(victim, destination).await? {
                Some(next) => evictions.push(next),
                None => break,
            }
        }
        if !evictions.is_empty() {
            // Nobody waits for more than these.
            self.submit()?;
        }
        if !ahead.is_empty() {
            self.start_ahead(ahead, tier).await?;
            self.submit()?;
        }
        for eviction in evictions {
            let size_bytes = eviction.victim.storage.size_bytes();
            match self.finish_eviction(eviction).await {
                Ok(()) => freed_bytes += size_bytes,
                Err(_) => self.check_lost()?,
            }
        }
        Ok((freed_bytes, too_large_bytes))
    }

    /// Evicts one storage, wherever there is room for it; it stays where it is if that fails.
    pub async fn evict(self: &Arc<Self>, storage: &Arc<Storage>) -> Result<()> {
        self.check_lost()?;
        let execution_lock = self.lock_execution().await?;
        let storage = storage.clone();
        let work = move |engine: Arc<Self>| async move {
            engine.execute().await?;
            engine.evict_one(&storage).await
        };
        self.with_execution_lock(execution_lock, work).await
    }

    /// The same, once what was queued has run.
    async fn evict_one(&self, storage: &Arc<Storage>) -> Result<()> {
        self.error_of(storage)?;
        while !in_span!(
            "eviction",
            { missing_bytes = storage.size_bytes() },
            self.try_evict(storage)
        )
        .await?
        {
            if !self.was_lowered().await? {
                let error = DriverError::OutOfMemory;
                return Err(self.refused("a read-back buffer", error, storage));
            }
        }
        Ok(())
    }

    /// Lets a storage leave, whatever has to be done for it. `false` if there is no buffer for its
    /// bytes.
    async fn try_evict(&self, storage: &Arc<Storage>) -> Result<bool> {
        let pinned = || Error::Pinned {
            operation: "evict",
            made_at: storage.tag().to_string(),
        };
        let victim = {
            let mut state = self.lock();
            if state.memory.is_evicted(storage) {
                return Ok(true);
            }
            let victim = match state.memory.candidate(storage) {
                Some(victim) => victim,
                // It has no bytes, or no place since nobody has written to it or used it.
                None if storage.len_bytes() == 0 || state.memory.find(storage).is_none() => {
                    return Ok(true);
                }
                None => return Err(pinned()),
            };
            if victim.is_clean && state.drop_one(&victim) > 0 {
                return Ok(true);
            }
            victim
        };
        self.drop_gone();
        if self.caps().maps_slabs {
            let destination = self.destination(storage, Tier::Disk)?;
            return self
                .evict_in_place(&victim, destination)
                .await
                .map(|()| true);
        }
        let victim = match self.already_evicting(victim) {
            Ok(begun) => return self.finish_eviction(begun).await.map(|()| true),
            Err(victim) => victim,
        };
        let destination = match self.destination(storage, Tier::Host) {
            Ok(destination) => destination,
            Err(_) => self.destination(storage, Tier::Disk)?,
        };
        let Some(eviction) = self.start_eviction(victim, destination).await? else {
            return Ok(false);
        };
        self.submit()?;
        self.finish_eviction(eviction).await.map(|()| true)
    }

    /// Who should be copied out now, since they will have to leave after these.
    fn who_comes_next(
        &self,
        victims: &[Candidate],
        tier: Tier,
        stay: &FxHashSet<u32>,
    ) -> Vec<Candidate> {
        if self.caps().maps_slabs {
            return Vec::new();
        }
        let limit_bytes = self.driver.ledger().slab_limit_now_bytes();
        let most_bytes = self.readbacks.room_bytes();
        let state = self.lock();
        state.victims_ahead(victims, tier, stay, limit_bytes, most_bytes)
    }

    /// Somewhere to take a storage's bytes, that nobody else has to give way for.
    pub(super) fn spare_destination(&self, storage: &Storage, tier: Tier) -> Result<Destination> {
        if tier == Tier::Host && self.host.missing_bytes(storage.len_bytes()) > 0 {
            return Err(no_room_on_host());
        }
        self.destination(storage, tier)
    }

    /// Somewhere to take a storage's bytes.
    fn destination(&self, storage: &Storage, tier: Tier) -> Result<Destination> {
        let len_bytes = storage.len_bytes();
        match tier {
            Tier::Host => {
                let mut bytes = Vec::new();
                let charge = self.host_charge(len_bytes)?;
                let kept_bytes = match self.driver.has_contents() {
                    true => len_bytes,
                    false => 0,
                };
                let reserved = bytes.try_reserve_exact(kept_bytes as usize);
                match (charge, reserved) {
                    (Some(charge), Ok(())) => Ok(Destination::Host(bytes, charge)),
                    _ => Err(no_room_on_host()),
                }
            }
            Tier::Disk => {
                let tenant = storage.tenant().number();
                Ok(Destination::Disk(self.spill.begin(len_bytes, tenant)?))
            }
        }
    }

    /// Records the copies that take a victim's bytes to the host. `None` if there is no buffer
    /// for them.
    pub(super) async fn start_eviction(
        &self,
        victim: Candidate,
        destination: Destination,
    ) -> Result<Option<PendingEviction>> {
        // At once: when this is given up half-way, what was begun may still be on its way.
        let destination = DestinationGuard(Arc::new(Shared(Mutex::new((Some(destination), None)))));
        let into = destination.0.clone();
        let sink = Box::new(move |piece: &[u8]| {
            let (destination, error) = &mut *into.lock();
            if let (Some(destination), None) = (destination, &error) {
                *error = destination.take(piece).err();
            }
        });
        let len_bytes = victim.storage.len_bytes();
        let Some(piece_bytes) = self.piece_bytes_to_be_had(len_bytes).await? else {
            return Ok(None);
        };
        let (reading, pieces) = Reading::new(0, len_bytes, piece_bytes, sink);
        let wanted = Wanted(reading.clone());
        for piece in pieces {
            let (start, size_bytes) = piece.words();
            let buffer = loop {
                if let Some(buffer) = self.readbacks.take(size_bytes) {
                    break buffer;
                }
                self.submit()?;
                if let Err(error) = self.readbacks.provide(size_bytes).await {
                    self.check_lost()?;
                    reading.fail(refusal("a read-back buffer", error));
                    return Ok(None);
                }
            };
            let mut state = self.lock();
            state.memory.touch(victim.place);
            state.batch.reads.push((reading.clone(), piece, buffer));
            state.push_op(Op::Copy {
                src: victim.place.buffer,
                src_offset_bytes: victim.place.offset_bytes + start,
                dst: buffer.0,
                dst_offset_bytes: 0,
                size_bytes,
            });
        }
        Ok(Some(PendingEviction {
            victim,
            destination,
            reading: wanted,
        }))
    }

    /// The largest read-back buffer that there is memory for: what is evicted because memory is
    /// short must do with little.
    async fn piece_bytes_to_be_had(&self, len_bytes: u64) -> Result<Option<u64>> {
        let whole_bytes = len_bytes.next_power_of_two().max(LEAST_PIECE_BYTES);
        let mut piece_bytes = self.readbacks.piece_bytes().min(whole_bytes);
        let least_bytes = LEAST_PIECE_BYTES.min(piece_bytes);
        if !self.readbacks.has_room(piece_bytes) {
            // It is taken from an older one, whose copy must be under way.
            self.submit()?;
        }
        loop {
            if self.readbacks.provide(piece_bytes).await.is_ok() {
                return Ok(Some(piece_bytes));
            }
            self.check_lost()?;
            if piece_bytes / 4 >= least_bytes {
                piece_bytes /= 4;
            } else if self.wait_for_retiring().await? == 0 {
                // Nor was there any that was given back and is still in use.
                return Ok(None);
            }
        }
    }

    /// Waits until a victim's bytes have arrived, and lets it leave.
    async fn finish_eviction(&self, eviction: PendingEviction) -> Result<()> {
        let reading = &eviction.reading.0;
        while !reading.is_done() {
            if let Some(error) = reading.failure() {
                return Err(error);
            }
            let taken_in = self.readbacks.take_in(reading).await;
            self.check_lost()?;
            if let Err(error) = taken_in {
                reading.cancel();
                return Err(refusal("a read", error));
            }
        }
        let mut copies = Copies::default();
        eviction.destination.finish(&mut copies)?;
        self.mark_evicted(&eviction.victim, copies);
        Ok(())
    }

    /// Takes a victim's bytes out of its slab, where the host can look into it.
    async fn evict_in_place(&self, victim: &Candidate, mut destination: Destination) -> Result<()> {
        let refused = |error| refusal("to map a slab", error);
        self.submit()?;
        let idle = (self.lock().memory).idle(victim.place, self.driver.completed());
        if idle == Some(false) {
            self.wait_idle().await?;
        }
        let len_bytes = victim.storage.len_bytes();
        let piece = Piece {
            offset_bytes: 0,
            size_bytes: len_bytes,
        };
        let (place, (_, size_bytes)) = (victim.place, piece.words());
        if size_bytes > 0 {
            let mapping =
                (self.driver).map(place.buffer, MapMode::Read, place.offset_bytes, size_bytes);
            let signal = mapping.map_err(refused)?;
            let _mapped = super::direct::Mapped(self, place.buffer);
            self.driver.wait(&signal).await.map_err(refused)?;
            let mut taken = Ok(());
            let mut look = |bytes: &[u8]| taken = destination.take(&bytes[..len_bytes as usize]);
            let read =
                (self.driver).read_mapped(place.buffer, place.offset_bytes, size_bytes, &mut look);
            read.map_err(refused)?;
            taken?;
        }
        let mut copies = Copies::default();
        destination.finish(&mut copies)?;
        self.mark_evicted(victim, copies);
        Ok(())
    }

    /// The bytes have been taken: the storage leaves.
    fn mark_evicted(&self, victim: &Candidate, copies: Copies) {
        let mut state = self.lock();
        state
            .memory
            .copied(&victim.storage, |known| known.add(copies));
        state.memory.evict_clean(&victim.storage);
        state.counters.evicted_bytes += victim.storage.len_bytes();
    }
}

fn no_room_on_host() -> Error {
    Error::Option {
        option: "budget",
        reason: "the host has no room for the tensor".into(),
    }
}

impl State {
    /// Drops a storage whose bytes are elsewhere too. Returns the bytes that became free.
    fn drop_one(&mut self, victim: &Candidate) -> u64 {
        let freed_bytes = match self.memory.evict_clean(&victim.storage) {
            true => victim.storage.size_bytes(),
            false => 0,
        };
        self.counters.dropped_bytes += freed_bytes;
        freed_bytes
    }

    /// Who should be evicted so that so many bytes become free, first those who gain the most for
    /// what it costs to have them back. Without a tier to put them, only those that are elsewhere
    /// too. Those of the slots that `stay` are no candidates; those that would have to be evicted
    /// are of at most `most_bytes` each.
    ///
    /// One choice among all: where weights are read in a cycle, to drop first what is elsewhere too
    /// would move several times as much.
    fn victims(
        &self,
        wanted_bytes: u64,
        tier: Option<Tier>,
        stay: &FxHashSet<u32>,
        most_bytes: u64,
    ) -> Vec<Candidate> {
        let mut candidates = self.memory.candidates(stay);
        self.rematerializations
            .keep_what_was_made_twice(&mut candidates, &self.memory);
        candidates.retain(|candidate| {
            let may_go = tier.is_some() && candidate.storage.len_bytes() <= most_bytes;
            candidate.is_clean || may_go
        });
        self.best(candidates, wanted_bytes, tier, &self.next_uses())
    }

    /// Those of the candidates who should go so that so many bytes become free.
    pub(super) fn best(
        &self,
        mut candidates: Vec<Candidate>,
        wanted_bytes: u64,
        tier: Option<Tier>,
        (next, known): &(FxHashMap<u32, u32>, u32),
    ) -> Vec<Candidate> {
        let now = self.memory.now();
        let weigh = |candidate: &Candidate| {
            let to_disk = !candidate.is_clean && tier == Some(Tier::Disk);
            let from = match candidate.is_far || to_disk {
                true => Tier::Disk,
                false => Tier::Host,
            };
            candidate.weight(now, next, *known, self.costs.of(from))
        };
        let chosen = choose(&mut candidates, weigh, wanted_bytes);
        candidates.truncate(chosen);
        candidates
    }

    /// By slot, how many commands there are before the next that uses it; and how many commands
    /// that is known of.
    pub(super) fn next_uses(&self) -> (FxHashMap<u32, u32>, u32) {
        let mut next = FxHashMap::default();
        let mut known = 0;
        for cmd in self.queue.iter().take(LOOK_AHEAD_COMMANDS) {
            known += 1;
            cmd.each_operand(|storage, _| {
                if let Some(slot) = storage.slot() {
                    next.entry(slot).or_insert(known);
                }
            });
        }
        (next, known)
    }
}
