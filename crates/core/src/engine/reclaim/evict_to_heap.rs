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

use super::{coldest, compact};
use crate::driver::{BoxFuture, Op};
use crate::engine::heap::{create_slab, slabs_limit_bytes, unslabbed_bytes};
use crate::engine::pass::Pass;
use crate::engine::state::State;
use crate::engine::state::changes::BlockOp;
use crate::engine::state::cleaning::Cleaning;
use crate::engine::tiers::{self, arrivals};
use crate::error::Result;
use crate::memory::{Candidate, Copies, Heap, HeapBlock, HoleChoice, HostCopy, Place};

/// The outcome of a move.
pub(super) enum Moved {
    /// The storage is in the heap, and its block is free.
    Away,
    /// Meanwhile the storage was written, moved, pinned or evicted, or lost its value: by commands
    /// that ran between two parts, or since the driver refused a batch.
    Changed,
    /// The heap has no room for it, or there is no such heap.
    NoRoom,
}

/// Moves a victim to the heap in the host's memory.
pub(super) fn evict_to_heap<'a>(
    pass: &'a Pass,
    victim: &'a Candidate,
) -> BoxFuture<'a, Result<Moved>> {
    Box::pin(async move {
        if !pass.caps().host_heap {
            return Ok(Moved::NoRoom);
        }
        let storage = &victim.storage;
        let writes = pass.lock().memory.slots.writes_to(storage);
        let taken = block_for(pass, victim).await?;
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
        let is_begun = |one: &Cleaning| one.is_of(storage) && !one.is_demotion;
        let begun = state.cleanings.take_first(is_begun);
        copy_part(&mut state, victim.place, to, at..size_bytes);
        if at > 0 {
            // If the driver refuses the last part, the whole is copied again.
            let whole = BlockOp::moved(victim.place, to, size_bytes);
            state.batch.changes.push(whole);
        }
        let copies = Copies {
            host: Some(Arc::new(HostCopy::Heap(block))),
            ..Copies::default()
        };
        state.mark_evicted(storage, copies);
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
        0 => state.push_move(from, to, size_bytes),
        at => state.push_op(Op::Copy(from.at(at), to.at(at), size_bytes)),
    }
}

/// A block of the heap for a victim, and its place. If need be, it drops what is outdated,
/// then creates a slab, then takes any hole, then drops blocks whose bytes are also elsewhere,
/// or will soon be, and moves blocks together. `None` if there is no room.
///
/// What is dropped costs no copy now, and perhaps none later, so it goes before any move. A move
/// costs a copy and no wait, so it goes before the waits: for a block that is on its way to the
/// disk, for slabs that a larger one replaces, and, at last, for a block that is used later.
async fn block_for(pass: &Pass, victim: &Candidate) -> Result<Option<(HeapBlock, Place)>> {
    let storage = &victim.storage;
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
    let growth = (pass.lock().memory.heap.as_ref()).and_then(|heap| heap.growth(size_bytes));
    if let Some(growth) = growth {
        create_slab(pass, &growth).await?;
    }
    if let Some(taken) = take(HoleChoice::Anywhere) {
        return Ok(Some(taken));
    }
    loop {
        while tiers::shed_host_copies(pass, size_bytes)? > 0 {
            if let Some(taken) = take(HoleChoice::Anywhere) {
                return Ok(Some(taken));
            }
        }
        // A limit of 0 allows no further slab, which the pass would have to wait for.
        compact::compact_heap(pass, size_bytes, 0).await?;
        if let Some(taken) = take(HoleChoice::Anywhere) {
            return Ok(Some(taken));
        }
        if !arrivals::wait_for_block(pass).await? {
            break;
        }
    }
    let most_bytes =
        (pass.lock().memory.heap.as_ref()).map_or(0, |heap| heap.most_bytes(unslabbed_bytes(pass)));
    compact::compact_heap(pass, size_bytes, most_bytes).await?;
    if let Some(taken) = take(HoleChoice::Anywhere) {
        return Ok(Some(taken));
    }
    let has_room_beside = pass.host.missing_bytes(size_bytes) == 0;
    if has_room_beside || !coldest::send_colder_on(pass, victim).await? {
        return Ok(None);
    }
    compact::compact_heap(pass, size_bytes, 0).await?;
    Ok(take(HoleChoice::Anywhere))
}
