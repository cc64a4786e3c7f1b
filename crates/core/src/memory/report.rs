//! Memory statistics, for reports and for errors of requests that found no room.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use super::{ClassUse, Memory, Slot, Storage, Sums, Tag, TagUse};
use crate::alloc::{AllocStats, SlabClass};
use crate::shortage::Holder;

/// One slab and its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SlabUse {
    /// Number of the slab. No other slab of this device ever has it.
    pub slab: u32,
    /// Which requests it serves.
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
    pub(crate) holders: Vec<Holder>,
}

impl Memory {
    /// All numbers at once, with the `holders` largest holders. O(slabs + tags · log tags).
    pub(crate) fn report(&self, holders: usize) -> MemoryReport {
        let slabs = self.slabs.iter().flatten();
        let slabs = slabs.filter_map(|slab| {
            let info = self.pools.slab(slab.id).ok()?;
            Some(SlabUse {
                slab: slab.number,
                class: slab.class,
                size_bytes: slab.size_bytes,
                live_bytes: info.live_bytes,
                blocks: info.blocks,
                largest_hole_bytes: info.largest_hole_bytes,
            })
        });
        MemoryReport {
            alloc: self.pools.stats(),
            sums: self.sums(),
            classes: self.classes(),
            slabs: slabs.collect(),
            holders: self.holders(holders),
        }
    }

    /// Resets the peaks to the current values.
    pub(crate) fn reset_peaks(&mut self) {
        self.pools.reset_peaks();
        self.census.reset_peaks();
    }

    /// All makers that ever held bytes on the device, largest first. O(tags).
    pub(crate) fn tag_uses(&self) -> Vec<TagUse> {
        let entries = self.census.tags.entries().iter();
        let mut uses: Vec<TagUse> = entries.filter(|one| one.bytes.up > 0).cloned().collect();
        uses.sort_by_key(|one| std::cmp::Reverse((one.bytes.now, one.bytes.peak)));
        uses
    }

    fn holders(&self, most: usize) -> Vec<Holder> {
        let entries = self.census.tags.entries().iter();
        let mut uses: Vec<&TagUse> = entries.filter(|one| one.bytes.now > 0).collect();
        uses.sort_by_key(|one| std::cmp::Reverse(one.bytes.now));
        uses.truncate(most);
        let holders = uses.into_iter().map(|one| Holder {
            tag: one.tag.as_ref().map_or("others".into(), Tag::to_string),
            bytes: one.bytes.now,
            storages: one.storages.now,
        });
        holders.collect()
    }

    /// The `most` largest holders of pinned storages in slabs with free room. They block
    /// compaction. O(slabs + storages).
    pub(crate) fn pinned_in_the_way(&self, most: usize) -> Vec<Holder> {
        let has_room = |slot: &&Slot| {
            let slab = slot.place.and_then(|place| place.slab);
            let slab = slab.and_then(|index| self.slabs.get(index as usize)?.as_ref());
            let info = slab.and_then(|slab| self.pools.slab(slab.id).ok());
            slot.block.is_some() && info.is_some_and(|info| info.largest_hole_bytes > 0)
        };
        let pinned = self.storages().filter(|(_, storage)| storage.pins() > 0);
        let pinned = pinned.filter(|(slot, _)| has_room(slot));
        by_tag(pinned.map(|(_, storage)| storage), most)
    }

    /// Bytes of pinned storages in slabs. O(storages).
    pub(crate) fn pinned_bytes(&self) -> u64 {
        let pinned = self
            .storages()
            .filter(|(slot, storage)| slot.block.is_some() && storage.pins() > 0);
        pinned.map(|(_, storage)| storage.size_bytes()).sum()
    }

    fn storages(&self) -> impl Iterator<Item = (&Slot, Arc<Storage>)> {
        self.slots
            .iter()
            .filter_map(|slot| Some((slot, slot.storage.upgrade()?)))
    }
}

fn by_tag(storages: impl Iterator<Item = Arc<Storage>>, most: usize) -> Vec<Holder> {
    let mut by_tag = BTreeMap::new();
    for storage in storages {
        add_holder(&mut by_tag, &storage);
    }
    let mut holders: Vec<Holder> = by_tag.into_values().collect();
    holders.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.tag.cmp(&b.tag)));
    holders.truncate(most);
    holders
}

/// The call site, the full name (a tag may shorten it), and the scope.
type Maker = (&'static Location<'static>, Option<Arc<str>>, u32);

fn add_holder(by_tag: &mut BTreeMap<Maker, Holder>, storage: &Arc<Storage>) {
    let (site, scope) = storage.made_at();
    let holder = by_tag.entry((site, storage.name(), scope));
    let holder = holder.or_insert_with(|| Holder {
        tag: storage.tag().to_string(),
        bytes: 0,
        storages: 0,
    });
    holder.bytes += storage.size_bytes();
    holder.storages += 1;
}
