//! Evictions to the heap in the host's memory: the move is a copy in the batch.
//!
//! The block on the device is free for the next command at once, because the queue runs in order.
//! Nobody waits, and nothing is submitted for it. If the driver refuses the batch, the copy goes
//! before all later work: see [`changes`](crate::engine::state::changes).
//!
//! For a command of a low priority, the bytes of a large victim leave part by part, and commands of
//! a higher priority run in between.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::alloc::Growth;
use crate::driver::{BoxFuture, Op};
use crate::engine::handle::Engine;
use crate::engine::pass::Pass;
use crate::engine::state::State;
use crate::engine::state::changes::{Change, Heap};
use crate::engine::tiers::ahead::MOST_BYTES as READS_BYTES;
use crate::engine::tiers::{self, arrivals};
use crate::error::Result;
use crate::memory::{Candidate, Copies, HeapBlock, HoleChoice, HostCopy, HostUse, Place, Storage};
use crate::units::MIB;

/// A slab of the heap has at most 1/16 of the host's limit, or as much as its first block needs.
const MOST_OF_LIMIT: u64 = 16;

/// The time of a smaller read by the host is that of the call.
const LEAST_READ_BYTES: u64 = 64 << 10;

/// Slabs leave 1/16 of the host's limit to reads ahead, in whole MiB.
const READS_OF_LIMIT: u64 = 16;

/// The outcome of a move.
pub(in crate::engine) enum Moved {
    /// The storage is in the heap, and its block is free.
    Away,
    /// Meanwhile the storage was written, moved, pinned or evicted, or lost its value: by commands
    /// that ran between two parts, or since the driver refused a batch.
    Changed,
    /// The heap has no room for it, or there is no such heap.
    NoRoom,
}

/// Moves a victim to the heap in the host's memory.
pub(in crate::engine) fn evict_to_heap<'a>(
    pass: &'a Pass,
    victim: &'a Candidate,
) -> BoxFuture<'a, Result<Moved>> {
    Box::pin(async move {
        if !pass.caps().host_heap {
            return Ok(Moved::NoRoom);
        }
        let storage = &victim.storage;
        let writes = pass.lock().memory.slots.writes_to(storage);
        let taken = block_for(pass, storage).await?;
        let is_same = |state: &State| {
            let now = state.memory.slots.candidate(storage);
            now.is_some_and(|now| now.place == victim.place)
                && state.memory.slots.writes_to(storage) == writes
        };
        if !is_same(&pass.lock()) {
            // The driver has refused the batch that wrote or restored it.
            return Ok(Moved::Changed);
        }
        let Some((block, to)) = taken else {
            return Ok(Moved::NoRoom);
        };
        let part_bytes = pass.part_bytes();
        let (mut at, size_bytes) = (0, storage.size_bytes());
        while size_bytes - at > part_bytes {
            let refused_before = pass.refused_submissions();
            copy_part(&mut pass.lock(), victim.place, to, at..at + part_bytes);
            at += part_bytes;
            pass.submit()?;
            pass.wait_idle().await?;
            pass.give_way().await?;
            let state = pass.lock();
            if !is_same(&state) || state.refused_submissions() != refused_before {
                return Ok(Moved::Changed);
            }
        }
        let mut state = pass.lock();
        // A copy to another tier may have begun.
        let begun = state.cleanings.take(storage);
        copy_part(&mut state, victim.place, to, at..size_bytes);
        if at > 0 {
            // If the driver refuses the last part, the whole is copied again.
            let whole = Change::moved(victim.place, to, Heap::Host, size_bytes);
            state.batch.changes.push(whole);
        }
        let host = Some(Arc::new(HostCopy::Heap(block)));
        let copies = Copies {
            host,
            ..Copies::default()
        };
        state.count_transfer(&copies, storage.len_bytes());
        (state.memory.slots).copied(storage, |known| known.add(copies));
        state.memory.evict_clean(storage);
        state.counters.evicted_bytes += storage.len_bytes();
        // It may hold disk space, which is freed outside the lock.
        drop(state);
        drop(begun);
        Ok(Moved::Away)
    })
}

/// Records the copy of a part of a block to the heap.
fn copy_part(state: &mut State, from: Place, to: Place, part: Range<u64>) {
    let size_bytes = part.end - part.start;
    state.memory.slabs.touch(from);
    state.note_heap_copy(to, Heap::Host, size_bytes);
    match part.start {
        0 => state.push_move(from, to, Heap::Host, size_bytes),
        at => state.push_op(Op::Copy {
            src: from.buffer,
            src_offset_bytes: from.offset_bytes + at,
            dst: to.buffer,
            dst_offset_bytes: to.offset_bytes + at,
            size_bytes,
        }),
    }
}

impl State {
    /// The batch names this place, of a slab of either heap.
    pub(in crate::engine) fn touch(&mut self, place: Place) {
        match self.memory.heap.as_mut() {
            Some(heap) if heap.has(place.buffer) => heap.touch(place),
            _ => self.memory.slabs.touch(place),
        }
    }

    /// Notes that the next op copies so many bytes from a place in the heap of the host's memory,
    /// or to one.
    pub(in crate::engine) fn note_heap_copy(&mut self, place: Place, to: Heap, size_bytes: u64) {
        if let Some(heap) = &mut self.memory.heap {
            heap.touch(place);
        }
        let ns = self.costs.link_ns(to == Heap::Device, size_bytes);
        // The meter scales the predicted times of kernels, and copies are not among them.
        self.batch.predicted_ns += ns / self.driver.time_scale();
    }
}

/// A block of the heap for a storage, and its place. If need be, it drops what is outdated,
/// then creates a slab, then takes any hole, then drops blocks whose bytes are also elsewhere,
/// or will soon be. `None` if there is no room.
async fn block_for(pass: &Pass, storage: &Storage) -> Result<Option<(HeapBlock, Place)>> {
    let size_bytes = storage.size_bytes();
    if slabs_limit_bytes(pass) < size_bytes {
        return Ok(None);
    }
    let take = |fit| {
        let mut state = pass.lock();
        state.free_dead();
        (state.memory).take_heap_block(storage, fit, &pass.host)
    };
    if let Some(taken) = take(HoleChoice::Best) {
        return Ok(Some(taken));
    }
    pass.drop_stale_copies();
    if let Some(taken) = take(HoleChoice::Best) {
        return Ok(Some(taken));
    }
    create_slab(pass, size_bytes).await?;
    if let Some(taken) = take(HoleChoice::Anywhere) {
        return Ok(Some(taken));
    }
    loop {
        while tiers::shed_host_copies(pass, size_bytes)? > 0 {
            if let Some(taken) = take(HoleChoice::Anywhere) {
                return Ok(Some(taken));
            }
        }
        if !arrivals::wait_for_block(pass).await? {
            break;
        }
    }
    if !pass.lock().memory.has_empty_heap_slabs() {
        return Ok(None);
    }
    // Empty slabs are too small. They make way once the device has finished with them.
    pass.submit()?;
    pass.wait_idle().await?;
    create_slab(pass, size_bytes).await?;
    Ok(take(HoleChoice::Anywhere))
}

/// The bytes of the host's limit that slabs may take. They leave a part to reads ahead. Otherwise
/// nothing would be read ahead when the heap is full and the rest is on the disk.
fn slabs_limit_bytes(pass: &Pass) -> u64 {
    let limit_bytes = pass.host.limit_bytes();
    let reads_bytes = (limit_bytes / READS_OF_LIMIT).min(READS_BYTES);
    limit_bytes - (reads_bytes - reads_bytes % MIB)
}

/// The bytes that slabs may still take.
pub(in crate::engine) fn unslabbed_bytes(pass: &Pass) -> u64 {
    slabs_limit_bytes(pass).saturating_sub(pass.host.kept_bytes())
}

/// Creates a slab of the heap with room for `size_bytes`, as large as the host's limit allows. Does
/// nothing if there is no memory for one.
async fn create_slab(pass: &Pass, size_bytes: u64) -> Result<()> {
    let plan = || {
        let state = pass.lock();
        let heap = state.memory.heap.as_ref()?;
        let left_bytes = unslabbed_bytes(pass);
        let room_bytes = heap.whole_granules_within(left_bytes);
        Some((heap.growth(size_bytes)?, room_bytes))
    };
    let Some((mut growth, mut room_bytes)) = plan() else {
        return Ok(());
    };
    if room_bytes < growth.slab_bytes {
        // Empty slabs take room that a slab of another class needs.
        release_empty(pass);
        (growth, room_bytes) = plan().unwrap_or((growth, room_bytes));
    }
    if room_bytes < growth.least_bytes {
        return Ok(());
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
        return Ok(());
    };
    let growth = Growth {
        slab_bytes,
        ..growth
    };
    let label = "lapidary slab in the host's memory";
    let created = pass.driver.create_host_slab(slab_bytes, label);
    let created = pass.until(created).await?;
    let Ok(buffer) = created else {
        if let Some(heap) = &mut pass.lock().memory.heap {
            heap.refused();
        }
        return Ok(());
    };
    let added = (pass.lock().memory).add_heap_slab(&growth, buffer, charge);
    if !matches!(added, Ok(true)) {
        pass.driver.destroy_buffer(buffer, 0);
    }
    Ok(())
}

impl Engine {
    /// The host has read bytes of a mapped slab of the heap. Memory without a cache makes this
    /// slow. The time of a small read says nothing about the memory.
    pub(in crate::engine) fn note_host_read(&self, bytes: u64, time: Option<Duration>) {
        if bytes < LEAST_READ_BYTES {
            return;
        }
        let counters = &mut self.lock().counters;
        counters.host_read_bytes += bytes;
        counters.host_read_ns += time.map_or(0, |time| time.as_nanos() as u64);
    }
}

/// Releases the slabs of the heap that are empty and that the device has finished with.
pub(in crate::engine) fn release_empty(engine: &Engine) {
    let empty = {
        let mut state = engine.lock();
        state.free_dead();
        (state.memory).take_empty_heap_slabs(engine.driver.completed())
    };
    for buffer in empty {
        engine.driver.destroy_buffer(buffer, 0);
    }
}
