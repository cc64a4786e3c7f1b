//! What is in memory, counted: for reports and for the error of a request that found no room.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use super::{Memory, Storage};
use crate::alloc::AllocStats;

/// Who holds memory: a place in the source, with its name if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Where the tensors were made: `name (file:line)` or `file:line`.
    pub tag: String,
    /// Their bytes on the device.
    pub bytes: u64,
    /// How many storages that is.
    pub storages: u64,
}

/// One slab and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlabUse {
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// Bytes of its live blocks.
    pub live_bytes: u64,
    /// How many blocks that is.
    pub blocks: u32,
    /// Its largest free range, in bytes.
    pub largest_hole_bytes: u64,
}

/// The numbers of this room.
#[derive(Clone, Debug)]
pub(crate) struct MemoryReport {
    pub(crate) alloc: AllocStats,
    pub(crate) imported_bytes: u64,
    pub(crate) slabs: Vec<SlabUse>,
    pub(crate) holders: Vec<Holder>,
}

impl Memory {
    /// All numbers at once, with the `holders` greatest holders. O(slabs + storages).
    pub(crate) fn report(&self, holders: usize) -> MemoryReport {
        let slabs = self.slabs.iter().flatten();
        let slabs = slabs.filter_map(|slab| {
            let info = self.pools.slab(slab.id).ok()?;
            Some(SlabUse {
                size_bytes: slab.size_bytes,
                live_bytes: info.live_bytes,
                blocks: info.blocks,
                largest_hole_bytes: info.largest_hole_bytes,
            })
        });
        MemoryReport {
            alloc: self.pools.stats(),
            imported_bytes: self.imported_bytes,
            slabs: slabs.collect(),
            holders: self.holders(holders),
        }
    }

    /// Starts the peaks anew from the present.
    pub(crate) fn reset_peaks(&mut self) {
        self.pools.reset_peaks();
    }

    fn holders(&self, most: usize) -> Vec<Holder> {
        let mut by_tag = BTreeMap::new();
        let live = self.slots.iter().filter(|slot| slot.block.is_some());
        for storage in live.filter_map(|slot| slot.storage.upgrade()) {
            add_holder(&mut by_tag, &storage);
        }
        let mut holders: Vec<Holder> = by_tag.into_values().collect();
        holders.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.tag.cmp(&b.tag)));
        holders.truncate(most);
        holders
    }
}

/// Where it was made, and its whole name, of which a tag may show a part.
type Maker = (&'static Location<'static>, Option<String>);

fn add_holder(by_tag: &mut BTreeMap<Maker, Holder>, storage: &Arc<Storage>) {
    let tag = storage.tag();
    let maker = (tag.site(), tag.name().map(str::to_owned));
    let holder = by_tag.entry(maker).or_insert_with(|| Holder {
        tag: tag.to_string(),
        bytes: 0,
        storages: 0,
    });
    holder.bytes += storage.size_bytes();
    holder.storages += 1;
}
