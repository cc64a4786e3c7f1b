//! Memory statistics, for reports and for errors of requests that found no room.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Memory;
use super::canary::Zone;
use super::census::{ClassUse, Sums};
use super::history::History;
use super::place::Place;
use super::slabs::Slabs;
use super::slots::Slot;
use super::storage::{Maker, Storage};
use super::tag::Tag;
use super::tags::TagUse;
use crate::alloc::{AllocStats, SlabClass};
use crate::shortage::{Holder, ShareUse};

/// One slab of the device or of the heap in the host's memory, and its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SlabUse {
    /// Number of the slab. No other slab of this device ever has it.
    pub slab: u32,
    /// Which requests it was created for. Once it is empty it may serve others.
    pub class: SlabClass,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// Bytes of its blocks in use.
    pub live_bytes: u64,
    /// Number of these blocks.
    pub blocks: u32,
    /// Largest free range, in bytes.
    pub largest_hole_bytes: u64,
}

/// The numbers of this module.
#[derive(Clone, Debug)]
pub(crate) struct MemoryReport {
    pub(crate) alloc: AllocStats,
    pub(crate) sums: Sums,
    pub(crate) classes: [ClassUse; 4],
    pub(crate) slabs: Vec<SlabUse>,
    /// The slabs of the heap in the host's memory.
    pub(crate) host_slabs: Vec<SlabUse>,
    /// Bytes in slabs that are saved for backward.
    pub(crate) saved_bytes: u64,
    pub(crate) holders: Vec<Holder>,
    /// All makers that ever held bytes on the device, largest first.
    pub(crate) tags: Vec<TagUse>,
    pub(crate) shares: Vec<ShareUse>,
}

impl MemoryReport {
    /// Free bytes in the heap of the host's memory.
    pub(crate) fn host_free_bytes(&self) -> u64 {
        let free = self.host_slabs.iter();
        free.map(|slab| slab.size_bytes - slab.live_bytes).sum()
    }

    pub(crate) fn host_largest_hole_bytes(&self) -> u64 {
        let holes = self.host_slabs.iter().map(|slab| slab.largest_hole_bytes);
        holes.max().unwrap_or(0)
    }
}

impl Slabs {
    fn uses(&self) -> Vec<SlabUse> {
        let slabs = self.all().iter().flatten();
        let uses = slabs.filter_map(|slab| {
            let info = self.info(slab.id)?;
            Some(SlabUse {
                slab: slab.number,
                class: slab.class,
                size_bytes: slab.size_bytes,
                live_bytes: info.live_bytes,
                blocks: info.blocks,
                largest_hole_bytes: info.largest_hole_bytes,
            })
        });
        uses.collect()
    }
}

impl Memory {
    /// All numbers at once, with the `holders` largest holders. O(slabs + tags · log tags), and
    /// O(storages) once one was saved for backward.
    pub(crate) fn report(&self, holders: usize) -> MemoryReport {
        let heap = self.heap.as_ref();
        let tags = self.tag_uses();
        MemoryReport {
            alloc: self.slabs.stats(),
            sums: self.census.sums,
            classes: self.census.classes,
            slabs: self.slabs.uses(),
            host_slabs: heap.map_or(Vec::new(), |heap| heap.slabs.uses()),
            saved_bytes: tags.iter().map(|one| one.saved_bytes).sum(),
            holders: largest(&tags, holders),
            shares: self.shares.uses(),
            tags,
        }
    }

    /// The last events, with the makers and the kernels that they name.
    pub(crate) fn history(&self) -> History {
        let tags = self.census.makers().iter().map(|one| one.tag.clone());
        self.events.history(tags.collect())
    }

    /// Resets the peaks to the current values.
    pub(crate) fn reset_peaks(&mut self) {
        self.slabs.reset_peaks();
        self.census.reset_peaks();
        self.shares.reset_peaks();
    }

    /// The tag of the storage right behind a zone.
    pub(crate) fn tag_behind(&self, zone: &Zone) -> Option<Tag> {
        let behind = (zone.place.buffer, zone.place.at(zone.size_bytes).1);
        let is_there = |place: &Place| (place.buffer, place.offset_bytes) == behind;
        let mut rows = self.slots.rows().iter();
        let slot = rows.find(|slot| slot.place.as_ref().is_some_and(is_there))?;
        self.census.tag(slot.tag)
    }

    fn tag_uses(&self) -> Vec<TagUse> {
        let mut uses = self.census.makers().to_vec();
        // Counted here: an operation that is recorded pays for no report.
        if self.dead_list.has_saved() {
            let in_slabs = self.slots.rows().iter().filter(|slot| slot.block.is_some());
            for slot in in_slabs.filter(|slot| is_saved(slot)) {
                uses[slot.tag as usize].saved_bytes += slot.size_bytes;
            }
        }
        uses.retain(|one| one.bytes.up > 0);
        uses.sort_by_key(|one| Reverse((one.bytes.now, one.bytes.peak)));
        uses
    }

    /// The `most` largest holders of pinned storages in slabs with free room. They block
    /// compaction. O(slabs + storages).
    pub(crate) fn pinned_in_the_way(&self, most: usize) -> Vec<Holder> {
        let has_room = |slot: &&Slot| {
            let slab = slot.place.and_then(|place| place.slab);
            let slab = slab.and_then(|index| self.slabs.at(index as usize));
            let info = slab.and_then(|slab| self.slabs.info(slab.id));
            info.is_some_and(|info| info.largest_hole_bytes > 0)
        };
        let pinned = self.slots.pinned().filter(|(slot, _)| has_room(slot));
        by_tag(pinned.map(|(_, storage)| storage), most)
    }

    /// Bytes of pinned storages in slabs. O(storages).
    pub(crate) fn pinned_bytes(&self) -> u64 {
        let pinned = self.slots.pinned();
        pinned.map(|(_, storage)| storage.size_bytes()).sum()
    }
}

/// Do recorded operations need the storage of a slot for their backward?
fn is_saved(slot: &Slot) -> bool {
    (slot.storage.upgrade()).is_some_and(|storage| storage.is_saved())
}

/// The `most` largest holders of these makers, which are sorted.
fn largest(uses: &[TagUse], most: usize) -> Vec<Holder> {
    let held = uses.iter().take_while(|one| one.bytes.now > 0);
    let holders = held.take(most).map(|one| Holder {
        tag: one.tag.as_ref().map_or("others".into(), Tag::to_string),
        bytes: one.bytes.now,
        storages: one.storages.now,
        saved_bytes: one.saved_bytes,
    });
    holders.collect()
}

/// The groups of storages that one maker made each, in the order of the first ones.
pub(crate) fn by_maker(storages: impl Iterator<Item = Arc<Storage>>) -> Vec<Vec<Arc<Storage>>> {
    let mut groups: Vec<Vec<Arc<Storage>>> = Vec::new();
    let mut places: FxHashMap<Maker, usize> = FxHashMap::default();
    for storage in storages {
        let place = *places.entry(storage.maker()).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(storage),
            None => groups.push(vec![storage]),
        }
    }
    groups
}

fn by_tag(storages: impl Iterator<Item = Arc<Storage>>, most: usize) -> Vec<Holder> {
    let groups = by_maker(storages).into_iter();
    let holders = groups.map(|group| {
        let saved = group.iter().filter(|storage| storage.is_saved());
        Holder {
            tag: group[0].tag().to_string(),
            bytes: group.iter().map(|storage| storage.size_bytes()).sum(),
            storages: group.len() as u64,
            saved_bytes: saved.map(|storage| storage.size_bytes()).sum(),
        }
    });
    let mut holders: Vec<Holder> = holders.collect();
    holders.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.tag.cmp(&b.tag)));
    holders.truncate(most);
    holders
}
