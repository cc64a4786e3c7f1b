//! The history with addresses, for formats that name a block by its address and that begin with the
//! blocks that exist.
//!
//! The events name storages. An event that frees a storage does not say where the storage was. So
//! the events are read twice: first to find what existed before them, then to report them.

use lapidary_core::stats::{Block, Event, Moment, Snapshot};
use rustc_hash::{FxHashMap, FxHashSet};

/// Distance between the computed addresses of two slabs. A slab has the same address in every
/// snapshot of a device, so that snapshots can be compared. This ends at 2¹⁵ − 3 slabs.
const STRIDE_BYTES: u64 = 1 << 38;

/// With this many slabs all addresses are below 2^53, up to which numbers in JavaScript are exact.
/// Storages without a known place come after the last slab.
const PLACES: u32 = (1 << 15) - 3;

/// A storage with its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) storage: u64,
    pub(super) tag: u32,
    /// Requested bytes.
    pub(super) bytes: u64,
    pub(super) address: u64,
}

/// The addresses of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Range {
    pub(super) address: u64,
    pub(super) bytes: u64,
}

/// A change that follows from an event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A slab was created.
    SlabGained(Range),
    /// A slab was released.
    SlabLost(Range),
    /// A storage got a place.
    Gained(Held),
    /// A storage lost its place.
    Lost(Held),
    /// The event itself, after the changes that follow from it.
    Event(Event),
}

/// The places before the first event. With the events they give the places at any later time.
pub(super) struct Places<'a> {
    snapshot: &'a Snapshot,
    slabs: FxHashMap<u32, Slab>,
    /// The storages before the first event.
    before: Vec<Held>,
    /// Addresses for storages whose place is unknown.
    nowhere: Range,
    /// Number of those storages.
    placeless: usize,
    /// The last tag of each storage that has no recorded first tag, or that may have been renamed
    /// later.
    tags: FxHashMap<u64, u32>,
}

#[derive(Clone, Copy)]
struct Slab {
    range: Range,
    /// It was created before the first event.
    is_old: bool,
}

impl<'a> Places<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let slabs = slabs_of(snapshot);
        let mut past = Past::default();
        snapshot.moments.iter().for_each(|moment| past.take(moment));
        let mut places = Places {
            snapshot,
            slabs,
            before: Vec::new(),
            nowhere: Range {
                address: address_of(PLACES),
                bytes: 0,
            },
            placeless: 0,
            tags: FxHashMap::default(),
        };
        for moment in &snapshot.moments {
            if let Event::Restore { storage, tag, .. } = moment.event {
                places.tags.insert(storage, tag);
            }
        }
        let evicted = snapshot
            .evicted
            .iter()
            .map(|evicted| (evicted.storage, evicted.tag));
        places.tags.extend(evicted);
        for (slab, block) in each_block(snapshot) {
            places.tags.insert(block.storage, block.tag);
            let place = Some((slab, block.offset_bytes));
            match past.first_of.get(&block.storage) {
                Some(&first) => past.before[first].place = place,
                None if past.known.contains(&block.storage) => {}
                None => past.before.push(First {
                    storage: block.storage,
                    bytes: block.size_bytes,
                    place,
                }),
            }
        }
        for first in past.before {
            let address = match first.place {
                Some((slab, offset_bytes)) => places.address(slab, offset_bytes),
                None => places.room_nowhere(first.bytes),
            };
            places.before.push(Held {
                storage: first.storage,
                tag: places.tags.get(&first.storage).copied().unwrap_or(0),
                bytes: first.bytes,
                address,
            });
        }
        places
    }

    /// The addresses of a slab of the snapshot.
    pub(super) fn slab(&self, slab: u32) -> Range {
        let slab = self.slabs.get(&slab);
        slab.map_or(self.nowhere, |slab| slab.range)
    }

    /// The storages before the first event.
    pub(super) fn before(&self) -> &[Held] {
        &self.before
    }

    /// The slabs before the first event, by address.
    pub(super) fn slabs_before(&self) -> Vec<Range> {
        let old = self.slabs.values().filter(|slab| slab.is_old);
        let nowhere = (self.placeless > 0).then_some(self.nowhere);
        let mut old: Vec<Range> = old.map(|slab| slab.range).chain(nowhere).collect();
        old.sort_unstable_by_key(|range| range.address);
        old
    }

    /// Reports the history. Times are in nanoseconds since the device was opened.
    pub(super) fn tell<E>(
        &self,
        mut each: impl FnMut(u64, Step) -> Result<(), E>,
    ) -> Result<(), E> {
        let before = self.before.iter().map(|held| (held.storage, *held));
        let mut now = Now {
            live: before.collect(),
            slabs: FxHashMap::default(),
            placeless: self.placeless,
        };
        let slabs = self.slabs_before().into_iter();
        slabs.for_each(|slab| now.gain_slab(slab));
        for moment in &self.snapshot.moments {
            let mut step = |step| each(moment.at_ns, step);
            self.moment(&mut now, moment.event, &mut step)?;
            step(Step::Event(moment.event))?;
        }
        if now.placeless > 0 && !self.snapshot.moments.is_empty() {
            each(self.snapshot.taken_at_ns, Step::SlabLost(self.nowhere))?;
        }
        Ok(())
    }

    fn moment<E>(
        &self,
        now: &mut Now,
        event: Event,
        each: &mut impl FnMut(Step) -> Result<(), E>,
    ) -> Result<(), E> {
        match event {
            Event::Alloc {
                storage,
                tag,
                bytes,
                slab,
                offset_bytes,
            }
            | Event::Restore {
                storage,
                tag,
                bytes,
                slab,
                offset_bytes,
            } => {
                self.lose(now, storage, each)?;
                let address = self.address(slab, offset_bytes);
                let held = Held {
                    storage,
                    tag,
                    bytes,
                    address,
                };
                self.gain(now, held, each)
            }
            Event::Free { storage, .. } | Event::Evict { storage, .. } => {
                self.lose(now, storage, each).map(|_| ())
            }
            Event::Donate {
                storage, heir, tag, ..
            } => {
                let Some(held) = now.live.remove(&storage) else {
                    return Ok(());
                };
                each(Step::Lost(held))?;
                let storage = heir;
                let held = Held {
                    storage,
                    tag,
                    ..held
                };
                self.gain(now, held, each)
            }
            Event::Move {
                storage,
                slab,
                offset_bytes,
                ..
            } => {
                let Some(held) = self.lose(now, storage, each)? else {
                    return Ok(());
                };
                let address = self.address(slab, offset_bytes);
                self.gain(now, Held { address, ..held }, each)
            }
            Event::SlabCreated { slab, .. } => {
                let range = self.slab(slab);
                now.gain_slab(range);
                each(Step::SlabGained(range))
            }
            Event::SlabReleased { slab, .. } => {
                let range = self.slab(slab);
                now.lose_slab(range);
                each(Step::SlabLost(range))
            }
            Event::Reopened => lose_all(now, each),
            _ => Ok(()),
        }
    }

    /// Takes the storage's place away, if it has one.
    fn lose<E>(
        &self,
        now: &mut Now,
        storage: u64,
        each: &mut impl FnMut(Step) -> Result<(), E>,
    ) -> Result<Option<Held>, E> {
        let Some(held) = now.live.remove(&storage) else {
            return Ok(None);
        };
        each(Step::Lost(held))?;
        if self.is_nowhere(held) && now.placeless > 0 {
            now.placeless -= 1;
            if now.placeless == 0 {
                now.lose_slab(self.nowhere);
                each(Step::SlabLost(self.nowhere))?;
            }
        }
        Ok(Some(held))
    }

    fn gain<E>(
        &self,
        now: &mut Now,
        mut held: Held,
        each: &mut impl FnMut(Step) -> Result<(), E>,
    ) -> Result<(), E> {
        held.tag = self.tags.get(&held.storage).copied().unwrap_or(held.tag);
        now.live.insert(held.storage, held);
        each(Step::Gained(held))
    }

    /// Is this the range for storages whose place is unknown?
    pub(super) fn is_made_up(&self, range: Range) -> bool {
        range == self.nowhere
    }

    fn is_nowhere(&self, held: Held) -> bool {
        held.address >= self.nowhere.address
    }

    fn address(&self, slab: u32, offset_bytes: u64) -> u64 {
        self.slab(slab).address.saturating_add(offset_bytes)
    }

    fn room_nowhere(&mut self, bytes: u64) -> u64 {
        let address = self.nowhere.address.saturating_add(self.nowhere.bytes);
        self.nowhere.bytes = self.nowhere.bytes.saturating_add(bytes);
        self.placeless += 1;
        address
    }
}

/// The places between two events.
struct Now {
    live: FxHashMap<u64, Held>,
    /// Number of slabs at each range; several may share one.
    slabs: FxHashMap<Range, usize>,
    /// Number of storages whose place is unknown.
    placeless: usize,
}

impl Now {
    fn gain_slab(&mut self, range: Range) {
        *self.slabs.entry(range).or_insert(0) += 1;
    }

    fn lose_slab(&mut self, range: Range) {
        if let Some(count) = self.slabs.get_mut(&range) {
            *count -= 1;
            if *count == 0 {
                self.slabs.remove(&range);
            }
        }
    }
}

/// After a device loss all storages and slabs are gone.
fn lose_all<E>(now: &mut Now, each: &mut impl FnMut(Step) -> Result<(), E>) -> Result<(), E> {
    let mut live: Vec<Held> = now.live.drain().map(|(_, held)| held).collect();
    live.sort_unstable_by_key(|held| (held.address, held.storage));
    now.placeless = 0;
    for held in live {
        each(Step::Lost(held))?;
    }
    let mut slabs: Vec<(Range, usize)> = now.slabs.drain().collect();
    slabs.sort_unstable();
    for (range, count) in slabs {
        for _ in 0..count {
            each(Step::SlabLost(range))?;
        }
    }
    Ok(())
}

/// Never 0, which other tools take for null.
fn address_of(place: u32) -> u64 {
    (u64::from(place) + 1) * STRIDE_BYTES
}

/// A storage before the first event.
struct First {
    storage: u64,
    bytes: u64,
    place: Option<(u32, u64)>,
}

/// What the events tell about the time before them.
#[derive(Default)]
struct Past {
    before: Vec<First>,
    /// Storages that an earlier event placed.
    known: FxHashSet<u64>,
    /// For other storages: the index in `before` of the one whose block they took over.
    first_of: FxHashMap<u64, usize>,
}

impl Past {
    fn take(&mut self, moment: &Moment) {
        match moment.event {
            Event::Alloc { storage, .. } | Event::Restore { storage, .. } => {
                self.known.insert(storage);
            }
            Event::Free { storage, bytes } | Event::Evict { storage, bytes, .. } => {
                let was_known = self.known.remove(&storage);
                self.met_unless(was_known, storage, bytes);
            }
            Event::Move { storage, bytes, .. } => {
                let is_new = self.known.insert(storage);
                self.met_unless(!is_new, storage, bytes);
            }
            Event::Donate {
                storage,
                heir,
                bytes,
                ..
            } => {
                if self.known.remove(&storage) {
                    self.known.insert(heir);
                } else {
                    let first = self.met(storage, bytes);
                    self.first_of.insert(heir, first);
                }
            }
            Event::Reopened => {
                self.known.clear();
                self.first_of.clear();
            }
            _ => {}
        }
    }

    fn met_unless(&mut self, is_known: bool, storage: u64, bytes: u64) {
        if !is_known {
            self.met(storage, bytes);
        }
    }

    /// An event names a storage that no event placed: so it existed before.
    fn met(&mut self, storage: u64, bytes: u64) -> usize {
        self.first_of.remove(&storage).unwrap_or_else(|| {
            self.before.push(First {
                storage,
                bytes,
                place: None,
            });
            self.before.len() - 1
        })
    }
}

fn each_block(snapshot: &Snapshot) -> impl Iterator<Item = (u32, &Block)> {
    let slabs = snapshot.slabs.iter();
    slabs.flat_map(|slab| slab.blocks.iter().map(|block| (slab.slab, block)))
}

/// All slabs that the snapshot names, with addresses.
fn slabs_of(snapshot: &Snapshot) -> FxHashMap<u32, Slab> {
    let mut found = Found::default();
    for moment in &snapshot.moments {
        match moment.event {
            Event::SlabCreated { slab, bytes, .. } => found.slab(slab, bytes).is_old = false,
            Event::SlabReleased { slab, bytes } => {
                found.slab(slab, bytes);
            }
            Event::Alloc {
                slab,
                offset_bytes,
                bytes,
                ..
            }
            | Event::Restore {
                slab,
                offset_bytes,
                bytes,
                ..
            }
            | Event::Move {
                slab,
                offset_bytes,
                bytes,
                ..
            } => {
                found.slab(slab, offset_bytes.saturating_add(bytes));
            }
            _ => {}
        }
    }
    for slab in &snapshot.slabs {
        found.slab(slab.slab, slab.size_bytes);
    }
    found.slabs
}

#[derive(Default)]
struct Found {
    slabs: FxHashMap<u32, Slab>,
    taken: FxHashSet<u32>,
    /// Number of places that were tried, from the last one on, for slabs whose own place was taken.
    /// None of them is free.
    tried: u32,
}

impl Found {
    /// A slab of at least this many bytes.
    fn slab(&mut self, number: u32, bytes: u64) -> &mut Slab {
        let (taken, tried) = (&mut self.taken, &mut self.tried);
        let slab = self.slabs.entry(number).or_insert_with(|| {
            let own = number % PLACES;
            // With more slabs than places, some slabs share a place.
            let mut place = own;
            while !taken.insert(place) && *tried < PLACES {
                *tried += 1;
                place = PLACES - *tried;
            }
            Slab {
                range: Range {
                    address: address_of(place),
                    bytes,
                },
                is_old: true,
            }
        });
        slab.range.bytes = slab.range.bytes.max(bytes);
        slab
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_have_addresses_of_their_own_for_as_long_as_there_are_places() {
        let mut found = Found::default();
        // Two slabs each want the same place.
        let addresses = (0..PLACES).map(|n| {
            let number = n / 2 + PLACES * (n % 2);
            found.slab(number, 1).range.address
        });
        let addresses: FxHashSet<u64> = addresses.collect();
        assert_eq!(addresses.len(), PLACES as usize);
        assert_eq!(found.slab(7, 1).range.address, address_of(7));
        let late = found.slab(3 * PLACES + 5, 1).range.address;
        assert!(addresses.contains(&late));
    }
}
