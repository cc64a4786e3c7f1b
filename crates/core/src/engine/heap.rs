//! The slabs of the heap in the host's memory: how much of the host's limit they may take, and
//! when they are created and released.

use std::time::Duration;

use crate::alloc::{Growth, SlabId};
use crate::engine::handle::Engine;
use crate::engine::pass::Pass;
use crate::engine::state::State;
use crate::engine::tiers::ahead::MOST_BYTES as READS_BYTES;
use crate::error::Result;
use crate::memory::{Heap, HostUse, Place};
use crate::units::MIB;

/// A slab of the heap has at most 1/16 of the host's limit, or as much as its first block needs.
const MOST_OF_LIMIT: u64 = 16;

/// The time of a smaller read by the host is that of the call.
const LEAST_READ_BYTES: u64 = 64 << 10;

/// Slabs leave 1/16 of the host's limit to reads ahead, in whole MiB.
const READS_OF_LIMIT: u64 = 16;

impl State {
    /// The batch names this place, of a slab of either heap.
    pub(super) fn touch(&mut self, place: Place) {
        self.memory.slabs_around(place).touch(place);
    }

    /// Notes that the next op copies so many bytes from a place in the heap of the host's memory,
    /// or to one.
    pub(super) fn note_heap_copy(&mut self, place: Place, to: Heap, size_bytes: u64) {
        self.touch(place);
        let ns = self.costs.link_ns(to == Heap::Device, size_bytes);
        // The meter scales the predicted times of kernels, and copies are not among them.
        self.batch.predicted_ns += ns / self.driver.time_scale();
    }
}

/// The bytes of the host's limit that slabs may take. They leave a part to reads ahead. Otherwise
/// nothing would be read ahead when the heap is full and the rest is on the disk.
pub(super) fn slabs_limit_bytes(pass: &Pass) -> u64 {
    let limit_bytes = pass.host.limit_bytes();
    let reads_bytes = (limit_bytes / READS_OF_LIMIT).min(READS_BYTES);
    limit_bytes - (reads_bytes - reads_bytes % MIB)
}

/// The bytes that slabs may still take.
pub(super) fn unslabbed_bytes(pass: &Pass) -> u64 {
    slabs_limit_bytes(pass).saturating_sub(pass.host.kept_bytes())
}

/// Creates a slab that a plan needs. Slabs that it has emptied make way once the device has
/// finished with them.
pub(super) async fn create_planned(pass: &Pass, growth: &Growth) -> Result<Option<SlabId>> {
    if unslabbed_bytes(pass) < growth.least_bytes {
        pass.submit()?;
        pass.wait_idle().await?;
    }
    create_slab(pass, growth).await
}

/// Creates a slab of the heap, as large as the host's limit allows. `None` if there is no memory
/// for one.
pub(super) async fn create_slab(pass: &Pass, growth: &Growth) -> Result<Option<SlabId>> {
    if unslabbed_bytes(pass) < growth.slab_bytes {
        // Empty slabs take room that a slab of another class needs.
        release_empty(pass);
    }
    let room_bytes = unslabbed_bytes(pass);
    if room_bytes < growth.least_bytes {
        return Ok(None);
    }
    // Within a small limit, one tensor must not keep a large slab, nor a slab have a rest that is
    // too small for more of its size.
    let most_bytes = (pass.host.limit_bytes() / MOST_OF_LIMIT).max(growth.least_bytes);
    let slab_bytes = growth.slab_bytes.min(most_bytes).min(room_bytes);
    let slab_bytes = slab_bytes - slab_bytes % growth.least_bytes;
    let missing_bytes = pass.host.missing_bytes(slab_bytes);
    if missing_bytes > 0 {
        pass.give_up_reads(missing_bytes);
    }
    let Some(charge) = pass.host.charge(HostUse::Slab, slab_bytes) else {
        return Ok(None);
    };
    let growth = Growth {
        slab_bytes,
        ..*growth
    };
    let label = "lapidary slab in the host's memory";
    let created = pass.driver.create_host_slab(slab_bytes, label);
    let created = pass.unless_lost(created.await)?;
    let Ok(buffer) = created else {
        if let Some(heap) = &mut pass.lock().memory.heap {
            heap.refused();
        }
        return Ok(None);
    };
    let added = (pass.lock().memory).add_heap_slab(&growth, buffer, charge);
    if added.is_none() {
        pass.driver.destroy_buffer(buffer, 0);
    }
    Ok(added)
}

impl Engine {
    /// The host has read bytes of a mapped slab of the heap. Memory without a cache makes this
    /// slow. The time of a small read says nothing about the memory.
    pub(super) fn note_host_read(&self, bytes: u64, time: Option<Duration>) {
        if bytes < LEAST_READ_BYTES {
            return;
        }
        let counters = &mut self.lock().counters;
        counters.host_read_bytes += bytes;
        counters.host_read_ns += time.map_or(0, |time| time.as_nanos() as u64);
    }
}

/// Releases the slabs of the heap that are empty and that the device has finished with.
pub(super) fn release_empty(engine: &Engine) {
    let empty = {
        let mut state = engine.lock();
        state.free_dead();
        (state.memory).take_empty_heap_slabs(engine.driver.completed())
    };
    for buffer in empty {
        engine.driver.destroy_buffer(buffer, 0);
    }
}
