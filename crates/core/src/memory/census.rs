//! Counters of storages that get and lose blocks: levels, holders, events.

use std::sync::Arc;

use super::history::{Event, Moment, Ring};
use super::peak::Peak;
use super::tags::Tags;
use super::{Memory, Place, Residency, ShareId, Storage, Tag};
use crate::alloc::SlabClass;
use crate::units::Level;

/// What the slabs of one class hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ClassUse {
    /// The class.
    pub class: SlabClass,
    /// Number of slabs.
    pub slabs: Level,
    /// Bytes of these slabs.
    pub reserved_bytes: Level,
    /// Bytes of the blocks in these slabs.
    pub live_bytes: Level,
}

impl ClassUse {
    fn each(&mut self) -> [&mut Level; 3] {
        [
            &mut self.slabs,
            &mut self.reserved_bytes,
            &mut self.live_bytes,
        ]
    }
}

/// Totals, over time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    /// Requested bytes of storages that have a block.
    pub(crate) requested_bytes: Level,
    /// Bytes of their blocks.
    pub(crate) live_bytes: Level,
    /// Number of these storages.
    pub(crate) storages: Level,
    /// Bytes of slabs that no block takes.
    pub(crate) cached_bytes: Level,
    /// Bytes of slabs.
    pub(crate) reserved_bytes: Level,
    /// Bytes of storages in buffers of the app.
    pub(crate) imported_bytes: Level,
    /// How often storages were evicted and restored.
    pub(crate) evictions: u64,
    pub(crate) restores: u64,
}

impl Sums {
    fn each(&mut self) -> [&mut Level; 6] {
        [
            &mut self.requested_bytes,
            &mut self.live_bytes,
            &mut self.storages,
            &mut self.cached_bytes,
            &mut self.reserved_bytes,
            &mut self.imported_bytes,
        ]
    }
}

/// One running measurement of peaks.
#[derive(Clone, Copy, Debug)]
struct Measuring {
    number: u64,
    peak_live_bytes: u64,
    peak_reserved_bytes: u64,
}

/// All counters.
#[derive(Debug)]
pub(super) struct Census {
    pub(super) sums: Sums,
    classes: [ClassUse; 4],
    pub(super) tags: Tags,
    pub(super) ring: Ring,
    measuring: Vec<Measuring>,
    /// Who holds memory at the peak, if that is of interest.
    pub(super) peak: Option<Box<Peak>>,
    /// The last number given to a storage, to a slab, and to a measurement.
    storages: u64,
    slabs: u32,
    measurements: u64,
}

impl Census {
    pub(super) fn new() -> Self {
        let class = |class| ClassUse {
            class,
            slabs: Level::default(),
            reserved_bytes: Level::default(),
            live_bytes: Level::default(),
        };
        use SlabClass::{Alone, Middle, Own, Small};
        Census {
            sums: Sums::default(),
            classes: [Small, Middle, Own, Alone].map(class),
            tags: Tags::new(),
            ring: Ring::default(),
            measuring: Vec::new(),
            peak: None,
            storages: 0,
            slabs: 0,
            measurements: 0,
        }
    }

    /// A number for a new storage, which no other storage has.
    pub(super) fn next_storage(&mut self) -> u64 {
        self.storages += 1;
        self.storages
    }

    pub(super) fn next_slab(&mut self) -> u32 {
        self.slabs = self.slabs.wrapping_add(1);
        self.slabs
    }

    fn class(&mut self, class: SlabClass) -> &mut ClassUse {
        &mut self.classes[class as usize]
    }

    pub(super) fn slab_added(&mut self, class: SlabClass, size_bytes: u64) {
        let of = self.class(class);
        of.slabs.raise(1);
        of.reserved_bytes.raise(size_bytes);
        self.sums.reserved_bytes.raise(size_bytes);
        self.sums.cached_bytes.raise(size_bytes);
        let reserved_bytes = self.sums.reserved_bytes.now;
        for one in &mut self.measuring {
            one.peak_reserved_bytes = one.peak_reserved_bytes.max(reserved_bytes);
        }
    }

    pub(super) fn slab_gone(&mut self, class: SlabClass, size_bytes: u64) {
        let of = self.class(class);
        of.slabs.lower(1);
        of.reserved_bytes.lower(size_bytes);
        self.sums.reserved_bytes.lower(size_bytes);
        self.sums.cached_bytes.lower(size_bytes);
    }

    #[inline]
    fn gained(&mut self, class: SlabClass, size_bytes: u64, granted_bytes: u64) {
        self.sums.requested_bytes.raise(size_bytes);
        self.sums.live_bytes.raise(granted_bytes);
        self.sums.storages.raise(1);
        self.sums.cached_bytes.lower(granted_bytes);
        self.class(class).live_bytes.raise(granted_bytes);
        let live_bytes = self.sums.live_bytes.now;
        for one in &mut self.measuring {
            one.peak_live_bytes = one.peak_live_bytes.max(live_bytes);
        }
        if let Some(peak) = &mut self.peak {
            peak.rose(live_bytes);
        }
    }

    #[inline]
    fn lost(&mut self, class: SlabClass, size_bytes: u64, granted_bytes: u64) {
        self.sums.requested_bytes.lower(size_bytes);
        self.sums.live_bytes.lower(granted_bytes);
        self.sums.storages.lower(1);
        self.sums.cached_bytes.raise(granted_bytes);
        self.class(class).live_bytes.lower(granted_bytes);
    }

    /// Takes over the levels and the numbers of another census.
    pub(super) fn take_levels(&mut self, other: &Census) {
        self.classes = other.classes;
        self.tags = other.tags.clone();
        (self.storages, self.slabs) = (other.storages, other.slabs);
    }

    fn levels(&mut self) -> impl Iterator<Item = &mut Level> {
        let of_classes = self.classes.iter_mut().flat_map(ClassUse::each);
        self.sums.each().into_iter().chain(of_classes)
    }

    /// The device is lost, with everything on it.
    pub(super) fn device_gone(&mut self) {
        self.levels().for_each(|level| level.set(0));
        self.tags.all_lost();
        self.ring.push(Event::Reopened);
    }

    pub(super) fn reset_peaks(&mut self) {
        self.levels().for_each(Level::reset_peak);
        self.tags.reset_peaks();
    }
}

impl Memory {
    /// The storage of a slot has a block from now on.
    pub(super) fn gained(&mut self, index: u32, storage: &Storage, place: Place) {
        let tag = self.census.tags.number(storage);
        let granted_bytes = self.granted_bytes(storage.size_bytes());
        let Some((class, slab)) = self.slab_of(place) else {
            return;
        };
        let slot = &mut self.slots[index as usize];
        let is_back = slot.copies.is_some();
        (slot.tag, slot.share) = (tag, storage.share());
        let (number, bytes, share) = (slot.number, slot.size_bytes, slot.share);
        if share != ShareId::MAIN {
            self.shares.gained(share, granted_bytes, is_back);
        }
        self.census.gained(class, bytes, granted_bytes);
        self.census.tags.gained(tag, bytes);
        self.census.sums.restores += u64::from(is_back);
        if self.census.ring.is_on() {
            let offset_bytes = place.offset_bytes;
            self.census.ring.push(match is_back {
                true => Event::Restore {
                    storage: number,
                    tag,
                    bytes,
                    slab,
                    offset_bytes,
                },
                false => Event::Alloc {
                    storage: number,
                    tag,
                    bytes,
                    slab,
                    offset_bytes,
                },
            });
        }
        if self.fences.is_some() {
            self.came(index);
        }
        if self.has_watermarks() {
            self.look_at_watermarks();
        }
    }

    /// The storage of a slot is about to lose its block. Its bytes are then at `to`; `None` when
    /// the storage is gone.
    pub(super) fn lost(&mut self, index: u32, to: Option<Residency>) {
        let slot = &self.slots[index as usize];
        let (number, tag, bytes, share) = (slot.number, slot.tag, slot.size_bytes, slot.share);
        let Some((class, _)) = slot.place.and_then(|place| self.slab_of(place)) else {
            return;
        };
        if self.fences.is_some() {
            self.went(index);
        }
        let granted_bytes = self.granted_bytes(bytes);
        let Census { peak, tags, .. } = &mut self.census;
        if let Some(peak) = peak {
            peak.falls(tags);
        }
        if share != ShareId::MAIN {
            self.shares.lost(share, granted_bytes, to.is_some());
        }
        if self.has_watermarks() {
            self.watermarks_are_left(share, granted_bytes);
        }
        self.census.lost(class, bytes, granted_bytes);
        self.census.tags.lost(tag, bytes);
        self.census.sums.evictions += u64::from(to.is_some());
        if self.census.ring.is_on() {
            self.census.ring.push(match to {
                Some(to) => Event::Evict {
                    storage: number,
                    bytes,
                    to,
                },
                None => Event::Free {
                    storage: number,
                    bytes,
                },
            });
        }
    }

    /// The slot now belongs to another storage.
    pub(super) fn donated(&mut self, index: u32, heir: &Storage) {
        let tag = self.census.tags.number(heir);
        let number = self.census.next_storage();
        let slot = &mut self.slots[index as usize];
        let (before, dying, bytes) = (slot.tag, slot.number, slot.size_bytes);
        (slot.tag, slot.number) = (tag, number);
        if slot.block.is_none() {
            return;
        }
        self.census.tags.lost(before, bytes);
        self.census.tags.gained(tag, bytes);
        self.census.ring.push(Event::Donate {
            storage: dying,
            heir: number,
            tag,
            bytes,
        });
    }

    /// A block has been moved.
    pub(super) fn was_moved(&mut self, index: u32, from: Place, to: Place) {
        let slot = &self.slots[index as usize];
        let (number, bytes) = (slot.number, slot.size_bytes);
        let (Some((before, _)), Some((after, slab))) = (self.slab_of(from), self.slab_of(to))
        else {
            return;
        };
        let granted_bytes = self.granted_bytes(bytes);
        self.census.class(before).live_bytes.lower(granted_bytes);
        self.census.class(after).live_bytes.raise(granted_bytes);
        self.census.ring.push(Event::Move {
            storage: number,
            bytes,
            slab,
            offset_bytes: to.offset_bytes,
        });
    }

    /// A storage was named, so it counts for another tag.
    pub(crate) fn renamed(&mut self, storage: &Storage) {
        let Some(index) = storage.slot() else { return };
        let after = self.census.tags.number(storage);
        let slot = &mut self.slots[index as usize];
        let (before, bytes) = (slot.tag, slot.size_bytes);
        if slot.block.is_some() && before != after {
            slot.tag = after;
            self.census.tags.lost(before, bytes);
            self.census.tags.gained(after, bytes);
        }
    }

    /// Records an event that another module reports.
    pub(crate) fn happened(&mut self, event: Event) {
        self.census.ring.push(event);
    }

    /// Sets the time of the events that follow.
    pub(crate) fn set_time(&mut self, now_ns: u64) {
        self.census.ring.set_time(now_ns);
    }

    /// Are events recorded?
    pub(crate) fn keeps_history(&self) -> bool {
        self.census.ring.is_on()
    }

    /// Keeps the last `most` events from now on.
    pub(crate) fn keep_history(&mut self, most: usize) {
        self.census.ring.keep(most);
    }

    /// The recorded events, the tags that they name, and how many events were dropped.
    pub(crate) fn history(&self) -> (Vec<Moment>, Vec<Option<Tag>>, u64) {
        let Census { ring, tags, .. } = &self.census;
        let tags = tags.entries().iter().map(|one| one.tag.clone());
        (ring.moments(), tags.collect(), ring.dropped())
    }

    /// The kernel names that the events refer to.
    pub(crate) fn kernels(&self) -> Vec<String> {
        let kernels = self.census.ring.kernels().iter();
        kernels.map(|name| name.to_string()).collect()
    }

    /// A kernel ran. Its times are on the events' clock.
    pub(crate) fn kernel_ran(&mut self, name: &Arc<str>, begin_ns: u64, end_ns: u64) {
        self.census.ring.push_kernel(name, begin_ns, end_ns);
    }

    /// Bytes were uploaded to a storage.
    pub(crate) fn uploaded(&mut self, storage: &Storage, bytes: u64) {
        if let Some(storage) = self.number_of(storage) {
            self.census.ring.push(Event::Upload { storage, bytes });
        }
    }

    /// Bytes of a storage were read by the host.
    pub(crate) fn was_read(&mut self, storage: &Storage, bytes: u64) {
        if let Some(storage) = self.number_of(storage) {
            self.census.ring.push(Event::Read { storage, bytes });
        }
    }

    /// The number of a storage in events, while events are recorded.
    fn number_of(&self, storage: &Storage) -> Option<u64> {
        let index = storage.slot().filter(|_| self.census.ring.is_on())?;
        Some(self.slots.get(index as usize)?.number)
    }

    /// The totals over time.
    pub(crate) fn sums(&self) -> Sums {
        self.census.sums
    }

    /// The totals of each class.
    pub(crate) fn classes(&self) -> [ClassUse; 4] {
        self.census.classes
    }

    /// Starts a measurement of peaks, which [`measured`](Self::measured) ends. Returns its number.
    pub(crate) fn measure(&mut self) -> u64 {
        self.census.measurements += 1;
        let number = self.census.measurements;
        self.census.measuring.push(Measuring {
            number,
            peak_live_bytes: self.census.sums.live_bytes.now,
            peak_reserved_bytes: self.census.sums.reserved_bytes.now,
        });
        number
    }

    /// Ends measurement `number`. Returns its highest live and highest reserved bytes.
    pub(crate) fn measured(&mut self, number: u64) -> Option<(u64, u64)> {
        let measuring = &mut self.census.measuring;
        let place = measuring.iter().position(|one| one.number == number)?;
        let one = measuring.swap_remove(place);
        Some((one.peak_live_bytes, one.peak_reserved_bytes))
    }

    fn slab_of(&self, place: Place) -> Option<(SlabClass, u32)> {
        let slab = self.slabs.get(place.slab? as usize)?.as_ref()?;
        Some((slab.class, slab.number))
    }
}
