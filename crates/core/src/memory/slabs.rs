//! The slabs: their buffers, their uses, and when each may be released.

use super::history::Event;
use super::{Fit, Memory, Place};
use crate::alloc::{AllocError, Growth, SlabClass, SlabId};
use crate::driver::BufferId;

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
    last_serial: u64,
    /// The batch that is being encoded names the slab.
    in_batch: bool,
    /// The last poll before which the slab was used.
    used_at_poll: u32,
}

impl Slab {
    /// No submission and no batch names it.
    pub(super) fn forget_uses(&mut self) {
        (self.last_serial, self.in_batch) = (0, false);
    }
}

impl Memory {
    /// The slab to create for a storage that found no room.
    pub(crate) fn growth(&self, size_bytes: u64) -> Result<Growth, AllocError> {
        self.pools
            .growth(size_bytes.saturating_add(self.fence_bytes))
    }

    /// Is there room for a storage of this size?
    pub(crate) fn has_room(&mut self, size_bytes: u64, fit: Fit) -> bool {
        let size_bytes = size_bytes + self.fence_bytes;
        let block = match fit {
            Fit::Anywhere => self.pools.allocate_anywhere(size_bytes),
            Fit::Best => self.pools.allocate(size_bytes),
        };
        block.is_ok_and(|block| self.pools.free(block).is_ok())
    }

    /// Size of the block for `size_bytes`, in bytes.
    pub(crate) fn granted_bytes(&self, size_bytes: u64) -> u64 {
        self.whole_granules(size_bytes + self.fence_bytes)
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

    /// The empty slab that was unused for longest, and whether the batch names it. A batch that
    /// names it must be submitted before its release.
    pub(crate) fn next_empty(&self) -> Option<(SlabId, bool)> {
        let id = self.pools.empty_slabs().next()?;
        Some((id, self.in_batch(id)))
    }

    /// A slab that exists and is empty, as [`next_empty`](Self::next_empty) returns it.
    pub(crate) fn if_empty(&self, id: SlabId) -> Option<(SlabId, bool)> {
        let info = self.pools.slab(id).ok()?;
        (info.blocks == 0).then(|| (id, self.in_batch(id)))
    }

    /// The app polls. Polls measure how long slabs are idle.
    pub(crate) fn polled(&mut self, polls: u32) {
        self.polls = polls;
    }

    /// The empty slab that was unused for longest, as [`next_empty`](Self::next_empty) returns it,
    /// if it was unused for `idle_polls` polls.
    pub(crate) fn next_idle(&self, idle_polls: u32) -> Option<(SlabId, bool)> {
        let id = self.pools.empty_slabs().next()?;
        let slab = self.slabs.get(id.index())?.as_ref()?;
        let age = self.polls.wrapping_sub(slab.used_at_poll);
        (age >= idle_polls).then_some((id, slab.in_batch))
    }

    fn in_batch(&self, id: SlabId) -> bool {
        let slab = self.slabs.get(id.index()).and_then(Option::as_ref);
        slab.is_some_and(|slab| slab.in_batch)
    }

    /// Removes an empty slab. The caller destroys the returned buffer; the returned serial is the
    /// last submission that names it.
    pub(crate) fn release(&mut self, id: SlabId) -> Option<(BufferId, u64)> {
        self.pools.remove_slab(id).ok()?;
        let slab = self.slabs[id.index()].take()?;
        self.unwatch(Some(id.index() as u32));
        self.forget_previous(Some(id.index() as u32));
        self.census.slab_gone(slab.class, slab.size_bytes);
        self.happened(Event::SlabReleased {
            slab: slab.number,
            bytes: slab.size_bytes,
        });
        Some((slab.buffer, slab.last_serial))
    }

    /// Lets an empty slab serve requests of another class, if it still exists and is empty. In
    /// statistics it keeps the class that it was created for.
    pub(crate) fn assign(&mut self, id: SlabId, class: SlabClass) {
        // A slab in use keeps its class. That plan is then void, as any plan may be.
        let _ = self.pools.assign(id, class);
    }

    /// Adds the slab that was created for `growth`.
    pub(crate) fn add_slab(
        &mut self,
        growth: &Growth,
        buffer: BufferId,
    ) -> Result<SlabId, AllocError> {
        let id = self.pools.add_slab(growth)?;
        let index = id.index();
        if self.slabs.len() <= index {
            self.slabs.resize_with(index + 1, || None);
        }
        let (class, bytes) = (growth.class, growth.slab_bytes);
        let number = self.census.next_slab();
        self.census.slab_added(class, bytes);
        self.happened(Event::SlabCreated {
            slab: number,
            bytes,
            class,
        });
        self.slabs[index] = Some(Slab {
            id,
            buffer,
            size_bytes: bytes,
            class,
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
        let slab = self.slabs[index as usize].as_mut();
        if let Some(slab) = slab.filter(|slab| !slab.in_batch) {
            slab.in_batch = true;
            slab.used_at_poll = self.polls;
            self.batch_slabs.push(index);
        }
    }

    /// A submission of the app names this place.
    pub(crate) fn used_by(&mut self, place: Place, serial: u64) {
        let Some(index) = place.slab else { return };
        if let Some(Some(slab)) = self.slabs.get_mut(index as usize) {
            slab.last_serial = slab.last_serial.max(serial);
        }
    }

    /// The batch was submitted with this serial, or refused (`None`).
    pub(crate) fn batch_ended(&mut self, serial: Option<u64>) {
        self.batch += 1;
        for index in self.batch_slabs.drain(..) {
            if let Some(Some(slab)) = self.slabs.get_mut(index as usize) {
                slab.in_batch = false;
                slab.last_serial = serial.unwrap_or(slab.last_serial);
            }
        }
    }

    /// Has the device finished with the slab of this place? `None` if the place is in no slab.
    pub(crate) fn idle(&self, place: Place, completed: u64) -> Option<bool> {
        let slab = self.slabs[place.slab? as usize].as_ref()?;
        Some(!slab.in_batch && slab.last_serial <= completed)
    }
}
