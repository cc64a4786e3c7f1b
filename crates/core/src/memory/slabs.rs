//! The slabs: their buffers, the blocks in them, their uses, and when each may be released.

mod plans;

use super::place::{Heap, HoleChoice, Place};
use crate::alloc::{
    AllocError, AllocStats, Block, BlockId, Growth, Planner, Pools, SlabClass, SlabId, SlabInfo,
    Spot,
};
use crate::driver::BufferId;
use crate::error::Result;

/// The owner of a block that no slot lies in.
const NOBODY: u32 = u32::MAX;

/// One buffer that is cut into blocks.
#[derive(Clone, Debug)]
pub(super) struct Slab {
    pub(super) id: SlabId,
    pub(super) buffer: BufferId,
    pub(super) size_bytes: u64,
    pub(super) class: SlabClass,
    /// The slab's number. No other slab has it.
    pub(super) number: u32,
    /// The last submission that names the slab.
    pub(super) last_serial: u64,
    /// The batch that is being encoded names the slab.
    in_batch: bool,
    /// The last poll before which the slab was used.
    used_at_poll: u32,
}

impl Slab {
    /// Has the device finished with it?
    fn is_idle(&self, completed: u64) -> bool {
        !self.in_batch && self.last_serial <= completed
    }
}

/// All slabs of one heap of an engine.
#[derive(Debug)]
pub(crate) struct Slabs {
    heap: Heap,
    pools: Pools,
    table: Vec<Option<Slab>>,
    /// The slot that each block belongs to, by the block's index.
    owners: Vec<u32>,
    /// Slabs that the batch names.
    in_batch: Vec<u32>,
    planner: Planner,
    /// Blocks are never moved.
    never_move: bool,
    /// Size of the canary behind every storage; 0 while the engine looks for no bugs. It does not
    /// change once there is a block.
    pub(super) canary_bytes: u64,
    /// How often the app has polled.
    pub(crate) polls: u32,
    /// How many blocks became free so far, and their bytes. While they stay the same, so does the
    /// free room.
    pub(crate) freed: u64,
    pub(crate) freed_bytes: u64,
}

impl Slabs {
    pub(super) fn new(heap: Heap, pools: Pools, never_move: bool) -> Self {
        Slabs {
            heap,
            pools,
            table: Vec::new(),
            owners: Vec::new(),
            in_batch: Vec::new(),
            planner: Planner::default(),
            never_move,
            canary_bytes: 0,
            polls: 0,
            freed: 0,
            freed_bytes: 0,
        }
    }

    /// The slabs of a dry run: the same blocks, and no use of any slab.
    pub(super) fn fake(&self) -> Slabs {
        let slabs = self.table.iter().cloned();
        let unused = slabs.map(|slab| {
            slab.map(|slab| Slab {
                last_serial: 0,
                in_batch: false,
                ..slab
            })
        });
        Slabs {
            pools: self.pools.clone(),
            table: unused.collect(),
            owners: self.owners.clone(),
            in_batch: Vec::new(),
            planner: Planner::default(),
            ..*self
        }
    }

    /// The device is lost, with all slabs.
    pub(super) fn clear(&mut self) {
        self.pools.clear();
        self.table.clear();
        self.owners.clear();
        self.in_batch.clear();
    }

    /// All slabs, by their index.
    pub(super) fn all(&self) -> &[Option<Slab>] {
        &self.table
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Slab> {
        self.table.iter_mut().flatten()
    }

    /// The slab of an index.
    #[inline]
    pub(super) fn at(&self, index: usize) -> Option<&Slab> {
        self.table.get(index)?.as_ref()
    }

    /// Blocks and free ranges of a slab.
    pub(super) fn info(&self, id: SlabId) -> Option<SlabInfo> {
        self.pools.slab(id).ok()
    }

    pub(super) fn stats(&self) -> AllocStats {
        self.pools.stats()
    }

    pub(super) fn reset_peaks(&mut self) {
        self.pools.reset_peaks();
    }

    /// A block of an existing slab for `size_bytes`, and its place. `None` if no slab has room.
    #[inline]
    pub(super) fn take(
        &mut self,
        size_bytes: u64,
        fit: HoleChoice,
    ) -> Result<Option<(BlockId, Place)>, AllocError> {
        let block_bytes = size_bytes + self.canary_bytes;
        let block = match self.pools.allocate(block_bytes) {
            Err(AllocError::NeedsSlab { .. }) if fit == HoleChoice::Anywhere => {
                self.pools.allocate_anywhere(block_bytes)
            }
            done => done,
        };
        let block = match block {
            Ok(block) => block,
            Err(AllocError::NeedsSlab { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let at = self.pools.block(block)?;
        let Some(place) = self.place_at(&at) else {
            self.pools.free(block)?;
            return Err(AllocError::StaleSlab(at.slab));
        };
        Ok(Some((block, place)))
    }

    /// Where a block lies.
    pub(super) fn place_of(&self, block: BlockId) -> Option<Place> {
        self.place_at(&self.pools.block(block).ok()?)
    }

    #[inline]
    fn place_at(&self, at: &Block) -> Option<Place> {
        let index = at.slab.index();
        Some(Place {
            buffer: self.at(index)?.buffer,
            offset_bytes: at.offset_bytes,
            slab: Some(index as u32),
        })
    }

    /// Moves a block. Returns its new place. `None` if the move is not possible any more.
    pub(super) fn relocate(&mut self, block: BlockId, to: &Spot) -> Option<Place> {
        self.pools.relocate(block, to).ok()?;
        self.place_of(block)
    }

    /// The slot that a block belongs to.
    #[inline]
    pub(super) fn owner(&self, block: BlockId) -> Option<u32> {
        let owner = self.owners.get(block.index()).copied();
        owner.filter(|owner| *owner != NOBODY)
    }

    /// The slab to create for a storage that found no room.
    pub(crate) fn growth(&self, size_bytes: u64) -> Result<Growth, AllocError> {
        self.pools
            .growth(size_bytes.saturating_add(self.canary_bytes))
    }

    /// Is there room for a storage of this size?
    pub(crate) fn has_room(&mut self, size_bytes: u64, fit: HoleChoice) -> bool {
        let size_bytes = size_bytes + self.canary_bytes;
        let block = match fit {
            HoleChoice::Anywhere => self.pools.allocate_anywhere(size_bytes),
            HoleChoice::Best => self.pools.allocate(size_bytes),
        };
        block.is_ok_and(|block| self.pools.free(block).is_ok())
    }

    /// Size of the block for `size_bytes`, in bytes.
    pub(crate) fn granted_bytes(&self, size_bytes: u64) -> u64 {
        self.whole_granules(size_bytes + self.canary_bytes)
    }

    /// `size_bytes` rounded up to whole granules.
    pub(crate) fn whole_granules(&self, size_bytes: u64) -> u64 {
        // A granule is a power of two.
        let unit_bytes = self.pools.config().unit_bytes;
        (size_bytes + unit_bytes - 1) & !(unit_bytes - 1)
    }

    /// Bytes of all blocks in use.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.pools.granted_bytes()
    }

    /// Would `more_bytes` exceed the high-water mark?
    pub(crate) fn passes_mark(&self, more_bytes: u64) -> bool {
        let reserved_bytes = self.pools.reserved_bytes();
        reserved_bytes.saturating_add(more_bytes) > self.pools.mark_bytes()
    }

    /// Bytes of all slabs.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.pools.reserved_bytes()
    }

    /// Bytes of the slabs without blocks.
    pub(crate) fn empty_bytes(&self) -> u64 {
        let empty = self.pools.empty_slabs();
        let empty = empty.filter_map(|id| self.at(id.index()));
        empty.map(|slab| slab.size_bytes).sum()
    }

    /// The empty slab that was unused for longest, and whether the batch names it. A batch that
    /// names it must be submitted before its release.
    pub(crate) fn next_empty(&self) -> Option<(SlabId, bool)> {
        let id = self.pools.empty_slabs().next()?;
        Some((id, self.is_in_batch(id)))
    }

    /// A slab that exists and is empty, as [`next_empty`](Self::next_empty) returns it.
    pub(crate) fn if_empty(&self, id: SlabId) -> Option<(SlabId, bool)> {
        let info = self.pools.slab(id).ok()?;
        (info.blocks == 0).then(|| (id, self.is_in_batch(id)))
    }

    /// The empty slab that was unused for longest, as [`next_empty`](Self::next_empty) returns it,
    /// if it was unused for `idle_polls` polls.
    pub(crate) fn next_idle(&self, idle_polls: u32) -> Option<(SlabId, bool)> {
        let id = self.pools.empty_slabs().next()?;
        let slab = self.at(id.index())?;
        let age = self.polls.wrapping_sub(slab.used_at_poll);
        (age >= idle_polls).then_some((id, slab.in_batch))
    }

    fn is_in_batch(&self, id: SlabId) -> bool {
        self.at(id.index()).is_some_and(|slab| slab.in_batch)
    }

    /// Removes an empty slab. Its buffer is the caller's.
    pub(super) fn remove(&mut self, id: SlabId) -> Option<Slab> {
        self.pools.remove_slab(id).ok()?;
        self.table[id.index()].take()
    }

    /// Removes the empty slabs that the device has finished with. Their buffers are the caller's.
    pub(super) fn take_empty(&mut self, completed: u64) -> Vec<Slab> {
        let empty: Vec<SlabId> = self.pools.empty_slabs().collect();
        let taken = empty.into_iter().filter_map(|id| {
            let slab = self.at(id.index())?;
            slab.is_idle(completed).then(|| self.remove(id))?
        });
        taken.collect()
    }

    /// Lets an empty slab serve requests of another class, if it still exists and is empty. In
    /// statistics it keeps the class that it was created for.
    pub(crate) fn assign(&mut self, id: SlabId, class: SlabClass) {
        // A slab in use keeps its class. That plan is then void, as any plan may be.
        let _ = self.pools.assign(id, class);
    }

    /// Adds the slab that was created for `growth`, with a number that no other slab has.
    pub(super) fn add(
        &mut self,
        growth: &Growth,
        buffer: BufferId,
        number: u32,
    ) -> Result<SlabId, AllocError> {
        let id = self.pools.add_slab(growth)?;
        let index = id.index();
        if self.table.len() <= index {
            self.table.resize_with(index + 1, || None);
        }
        self.table[index] = Some(Slab {
            id,
            buffer,
            size_bytes: growth.slab_bytes,
            class: growth.class,
            number,
            last_serial: 0,
            in_batch: false,
            used_at_poll: self.polls,
        });
        Ok(id)
    }

    /// The batch names this place.
    pub(crate) fn touch(&mut self, place: Place) {
        let Some(index) = place.slab else { return };
        let slab = self.table[index as usize].as_mut();
        if let Some(slab) = slab.filter(|slab| !slab.in_batch) {
            slab.in_batch = true;
            slab.used_at_poll = self.polls;
            self.in_batch.push(index);
        }
    }

    /// A submission of the app names this place.
    pub(crate) fn used_by(&mut self, place: Place, serial: u64) {
        let Some(index) = place.slab else { return };
        if let Some(Some(slab)) = self.table.get_mut(index as usize) {
            slab.last_serial = slab.last_serial.max(serial);
        }
    }

    /// The batch was submitted with this serial, or refused (`None`).
    pub(super) fn batch_ended(&mut self, serial: Option<u64>) {
        for index in self.in_batch.drain(..) {
            if let Some(Some(slab)) = self.table.get_mut(index as usize) {
                slab.in_batch = false;
                slab.last_serial = serial.unwrap_or(slab.last_serial);
            }
        }
    }

    /// Has the device finished with the slab of this place? `None` if the place is in no slab.
    pub(crate) fn idle(&self, place: Place, completed: u64) -> Option<bool> {
        let slab = self.table[place.slab? as usize].as_ref()?;
        Some(slab.is_idle(completed))
    }

    /// Bytes moved so far.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.pools.moved_bytes()
    }

    pub(super) fn set_owner(&mut self, block: BlockId, slot: u32) {
        let index = block.index();
        if self.owners.len() <= index {
            self.owners.resize(index + 1, NOBODY);
        }
        self.owners[index] = slot;
    }

    /// Frees the block of a storage of `size_bytes`.
    pub(super) fn free(&mut self, block: BlockId, size_bytes: u64) {
        self.set_owner(block, NOBODY);
        self.freed += 1;
        self.freed_bytes += self.granted_bytes(size_bytes);
        let freed = self.pools.free(block);
        debug_assert!(freed.is_ok(), "a slot held a stale block: {freed:?}");
    }

    /// Does the slab of a place still exist?
    pub(super) fn is_at(&self, place: Place) -> bool {
        let slab = place.slab.and_then(|index| self.at(index as usize));
        slab.is_some_and(|slab| slab.buffer == place.buffer)
    }

    /// The class and the number of the slab of a place.
    pub(super) fn slab_of(&self, place: Place) -> Option<(SlabClass, u32)> {
        let slab = self.at(place.slab? as usize)?;
        Some((slab.class, slab.number))
    }
}
