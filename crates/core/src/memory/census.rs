//! Counters of storages that get and lose blocks: levels, holders.

use super::peak::Peak;
use super::slots::Slot;
use super::storage::Storage;
use super::tag::Tag;
use super::tags::{TagUse, Tags};
use crate::alloc::SlabClass;
use crate::shortage::Holder;
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

/// Totals, over time. A [`Level`] also has the sum of all that was added to it, so a total of what
/// was ever placed needs no counter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    /// Requested bytes of storages that have a block, each padded to 16 bytes.
    pub(crate) requested_bytes: Level,
    /// Bytes of their blocks, with canaries.
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
pub(crate) struct Census {
    /// The totals over time.
    pub(crate) sums: Sums,
    /// The totals of each class.
    pub(crate) classes: [ClassUse; 4],
    tags: Tags,
    measuring: Vec<Measuring>,
    /// Who holds memory at the peak, if that is of interest.
    peak: Option<Box<Peak>>,
    /// The last number given to a measurement.
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
            measuring: Vec::new(),
            peak: None,
            measurements: 0,
        }
    }

    fn class(&mut self, class: SlabClass) -> &mut ClassUse {
        &mut self.classes[class as usize]
    }

    /// There is one more slab.
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

    /// A slab is released.
    pub(super) fn slab_gone(&mut self, class: SlabClass, size_bytes: u64) {
        let of = self.class(class);
        of.slabs.lower(1);
        of.reserved_bytes.lower(size_bytes);
        self.sums.reserved_bytes.lower(size_bytes);
        self.sums.cached_bytes.lower(size_bytes);
    }

    /// The storage of a slot has got a block of this many bytes. It comes back if it was evicted.
    #[inline]
    pub(super) fn gained(
        &mut self,
        class: SlabClass,
        slot: &Slot,
        granted_bytes: u64,
        is_back: bool,
    ) {
        self.sums.requested_bytes.raise(slot.size_bytes);
        self.sums.live_bytes.raise(granted_bytes);
        self.sums.storages.raise(1);
        self.sums.cached_bytes.lower(granted_bytes);
        self.sums.restores += u64::from(is_back);
        self.class(class).live_bytes.raise(granted_bytes);
        let live_bytes = self.sums.live_bytes.now;
        for one in &mut self.measuring {
            one.peak_live_bytes = one.peak_live_bytes.max(live_bytes);
        }
        if let Some(peak) = &mut self.peak {
            peak.rose(live_bytes);
        }
        self.tags.gained(slot.tag, slot.size_bytes);
    }

    /// The storage of a slot is about to lose its block.
    #[inline]
    pub(super) fn lost(
        &mut self,
        class: SlabClass,
        slot: &Slot,
        granted_bytes: u64,
        is_evicted: bool,
    ) {
        if let Some(peak) = &mut self.peak {
            peak.falls(&self.tags);
        }
        self.sums.requested_bytes.lower(slot.size_bytes);
        self.sums.live_bytes.lower(granted_bytes);
        self.sums.storages.lower(1);
        self.sums.cached_bytes.raise(granted_bytes);
        self.sums.evictions += u64::from(is_evicted);
        self.class(class).live_bytes.lower(granted_bytes);
        self.tags.lost(slot.tag, slot.size_bytes);
    }

    /// The index of a storage's tag.
    #[inline]
    pub(crate) fn tag_index(&mut self, storage: &Storage) -> u32 {
        self.tags.number(storage)
    }

    /// The bytes of a block count for another tag.
    pub(super) fn retagged(&mut self, before: u32, after: u32, bytes: u64) {
        self.tags.lost(before, bytes);
        self.tags.gained(after, bytes);
    }

    /// A block has moved to a slab of another class.
    pub(super) fn moved(&mut self, before: SlabClass, after: SlabClass, granted_bytes: u64) {
        self.class(before).live_bytes.lower(granted_bytes);
        self.class(after).live_bytes.raise(granted_bytes);
    }

    /// The levels of all makers.
    pub(super) fn makers(&self) -> &[TagUse] {
        self.tags.entries()
    }

    /// The same levels, without numbers of evictions and restores.
    pub(super) fn fake(&self) -> Census {
        Census {
            sums: Sums {
                evictions: 0,
                restores: 0,
                ..self.sums
            },
            classes: self.classes,
            tags: self.tags.clone(),
            ..Census::new()
        }
    }

    fn levels(&mut self) -> impl Iterator<Item = &mut Level> {
        let of_classes = self.classes.iter_mut().flat_map(ClassUse::each);
        self.sums.each().into_iter().chain(of_classes)
    }

    /// The device is lost, with everything on it.
    pub(super) fn device_gone(&mut self) {
        self.levels().for_each(|level| level.set(0));
        self.tags.all_lost();
    }

    pub(super) fn reset_peaks(&mut self) {
        self.levels().for_each(Level::reset_peak);
        self.tags.reset_peaks();
    }

    /// Starts a measurement of peaks, which [`measured`](Self::measured) ends. Returns its number.
    pub(crate) fn measure(&mut self) -> u64 {
        self.measurements += 1;
        let number = self.measurements;
        self.measuring.push(Measuring {
            number,
            peak_live_bytes: self.sums.live_bytes.now,
            peak_reserved_bytes: self.sums.reserved_bytes.now,
        });
        number
    }

    /// Ends measurement `number`. Returns its highest live and highest reserved bytes.
    pub(crate) fn measured(&mut self, number: u64) -> Option<(u64, u64)> {
        let measuring = &mut self.measuring;
        let place = measuring.iter().position(|one| one.number == number)?;
        let one = measuring.swap_remove(place);
        Some((one.peak_live_bytes, one.peak_reserved_bytes))
    }

    /// From now on remembers who holds memory when most of it is live.
    pub(crate) fn watch_peak(&mut self) {
        self.peak = Some(Box::new(Peak::new(self.sums.live_bytes.now)));
    }

    /// The holders at the peak since [`watch_peak`](Self::watch_peak), the most bytes first.
    pub(crate) fn holders_at_peak(&mut self) -> Vec<Holder> {
        let peak = self.peak.as_mut();
        peak.map_or(Vec::new(), |peak| peak.holders(&self.tags))
    }

    /// The tag of this index.
    pub(crate) fn tag(&self, index: u32) -> Option<Tag> {
        self.tags.entries().get(index as usize)?.tag.clone()
    }
}
