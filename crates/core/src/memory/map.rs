//! A map of all storages: the slabs block by block, and the storages that are elsewhere.

use super::Memory;
use super::copies::Copies;
use super::history::History;
use super::place::Place;
use super::slabs::Slabs;
use super::slots::Slot;
use super::storage::{Residency, Storage};
use crate::alloc::SlabClass;
use crate::dtype::DType;

/// One slab of the device or of the heap in the host's memory, block by block.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SlabMap {
    /// Number of the slab. No other slab of this device ever has it.
    pub slab: u32,
    /// Which requests it was created for. Once it is empty it may serve others.
    pub class: SlabClass,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// The blocks in it, by offset. Space between two blocks is free.
    pub blocks: Vec<Block>,
}

/// The block of a storage in a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "BlockRow", into = "BlockRow"))]
#[non_exhaustive]
pub struct Block {
    /// Offset of the block in the slab, in bytes.
    pub offset_bytes: u64,
    /// Bytes of the block, in whole granules.
    pub granted_bytes: u64,
    /// Requested bytes, padded to 16.
    pub size_bytes: u64,
    /// Number of the storage. No other storage of this device ever has it.
    pub storage: u64,
    /// Index of its maker in the list of tags.
    pub tag: u32,
    /// What the engine may do with it.
    pub state: BlockState,
    /// Commands since the last one that used it.
    pub idle_commands: u32,
    /// Whether recorded operations need it for their backward.
    pub is_saved: bool,
}

/// What the engine may do with a block to free its room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum BlockState {
    /// The engine may move or evict it.
    Live,
    /// The engine may drop it at once: the same bytes are also elsewhere.
    Clean,
    /// It stays at its place.
    Pinned,
}

/// A storage that is not on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "EvictedRow", into = "EvictedRow"))]
#[non_exhaustive]
pub struct EvictedStorage {
    /// Number of the storage.
    pub storage: u64,
    /// Index of its maker in the list of tags.
    pub tag: u32,
    /// Its size, in bytes.
    pub bytes: u64,
    /// Where its bytes are.
    pub residency: Residency,
    /// Whether recorded operations need it for their backward.
    pub is_saved: bool,
}

/// Declares a row as a file stores it, without field names: a file may have millions.
#[cfg(feature = "serde")]
macro_rules! row {
    ($row:ident = $of:ident { $($field:ident: $type:ty),* }) => {
        type $row = ($($type),*);

        impl From<$row> for $of {
            fn from(($($field),*): $row) -> $of {
                $of { $($field),* }
            }
        }

        impl From<$of> for $row {
            fn from(of: $of) -> $row {
                ($(of.$field),*)
            }
        }
    };
}

#[cfg(feature = "serde")]
row!(
    BlockRow = Block {
        offset_bytes: u64,
        granted_bytes: u64,
        size_bytes: u64,
        storage: u64,
        tag: u32,
        state: BlockState,
        idle_commands: u32,
        is_saved: bool
    }
);

#[cfg(feature = "serde")]
row!(
    EvictedRow = EvictedStorage {
        storage: u64,
        tag: u32,
        bytes: u64,
        residency: Residency,
        is_saved: bool
    }
);

/// All places and the history, as of one moment.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) granule_bytes: u64,
    pub(crate) slabs: Vec<SlabMap>,
    pub(crate) host_slabs: Vec<SlabMap>,
    pub(crate) evicted: Vec<EvictedStorage>,
    pub(crate) types: Vec<(DType, Vec<u64>)>,
    pub(crate) history: History,
}

impl Map {
    /// The whole map. O(storages · log + slabs + events).
    pub(crate) fn take(memory: &Memory) -> Map {
        let Memory {
            slots,
            slabs: all,
            heap,
            ..
        } = memory;
        let mut slabs = Drawn::new(all);
        let mut host_slabs = heap.as_ref().map(|heap| Drawn::new(&heap.slabs));
        let mut evicted = Vec::new();
        let mut types = DType::ALL.map(|dtype| (dtype, Vec::new()));
        for slot in slots.rows() {
            let storage = slot.storage.upgrade();
            let is_saved = storage.as_ref().is_some_and(|storage| storage.is_saved());
            let dtype = storage.as_ref().and_then(|storage| storage.dtype());
            if let Some(dtype) = dtype {
                types[dtype as usize].1.push(slot.number);
            }
            let block = |state| Block {
                offset_bytes: 0,
                granted_bytes: 0,
                size_bytes: slot.size_bytes,
                storage: slot.number,
                tag: slot.tag,
                state,
                idle_commands: slot.uses.idle(slots.now()),
                is_saved,
            };
            let copies = slot.copies.as_deref();
            let in_heap = copies.and_then(Copies::heap_block);
            let in_heap = in_heap.and_then(|block| heap.as_ref()?.place(block));
            if let (Some(drawn), Some(place), Some(copies)) = (&mut host_slabs, in_heap, copies) {
                let is_elsewhere = slot.block.is_some() || !copies.is_only_on_host();
                let state = match is_elsewhere {
                    true => BlockState::Clean,
                    false => BlockState::Live,
                };
                drawn.add(place, block(state));
            }
            let in_slab = slot.place.filter(|_| slot.block.is_some());
            if let Some(place) = in_slab {
                slabs.add(place, block(state(slot, storage.as_deref())));
            } else if let Some(storage) = storage {
                let residency = storage.residency();
                if matches!(
                    residency,
                    Residency::Host | Residency::Store | Residency::Disk | Residency::Backed
                ) {
                    evicted.push(EvictedStorage {
                        storage: slot.number,
                        tag: slot.tag,
                        bytes: slot.size_bytes,
                        residency,
                        is_saved,
                    });
                }
            }
        }
        let types = types.into_iter().filter(|(_, all)| !all.is_empty());
        Map {
            granule_bytes: all.whole_granules(1),
            slabs: slabs.done(),
            host_slabs: host_slabs.map_or(Vec::new(), Drawn::done),
            evicted,
            types: types.collect(),
            history: memory.history(),
        }
    }
}

/// The slabs of a device or of the heap in the host's memory, while blocks are added.
struct Drawn<'a> {
    all: &'a Slabs,
    /// By the index of the slab.
    slabs: Vec<Option<SlabMap>>,
}

impl<'a> Drawn<'a> {
    fn new(all: &'a Slabs) -> Self {
        let slabs = all.all().iter().map(|slab| {
            slab.as_ref().map(|slab| SlabMap {
                slab: slab.number,
                class: slab.class,
                size_bytes: slab.size_bytes,
                blocks: Vec::new(),
            })
        });
        Drawn {
            all,
            slabs: slabs.collect(),
        }
    }

    /// Adds a block at a place. Its offset and granted bytes follow from that.
    fn add(&mut self, place: Place, block: Block) {
        let slabs = &mut self.slabs;
        if let Some(Some(slab)) = place.slab.and_then(|slab| slabs.get_mut(slab as usize)) {
            slab.blocks.push(Block {
                offset_bytes: place.offset_bytes,
                granted_bytes: self.all.granted_bytes(block.size_bytes),
                ..block
            });
        }
    }

    fn done(self) -> Vec<SlabMap> {
        let mut slabs: Vec<SlabMap> = self.slabs.into_iter().flatten().collect();
        for slab in &mut slabs {
            slab.blocks.sort_unstable_by_key(|block| block.offset_bytes);
        }
        slabs
    }
}

fn state(slot: &Slot, storage: Option<&Storage>) -> BlockState {
    if storage.is_some_and(|storage| storage.pins() > 0) {
        return BlockState::Pinned;
    }
    match &slot.copies {
        Some(copies) if !copies.is_empty() => BlockState::Clean,
        _ => BlockState::Live,
    }
}
