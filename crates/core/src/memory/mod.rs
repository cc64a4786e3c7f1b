//! Storages and where they are. One part for each subject:
//!
//! ```text
//!   Storage ──slot──► Slots { block, place } ──► Slabs { buffer, last use } ──► BufferId
//!                                                  └── alloc::Pools decides which block
//!   Memory: what happens to a block ──► Census, Shares, Watermarks, Canaries, Previous
//! ```
//!
//! A part may read another one that it gets as an argument. Only [`Memory`] owns the parts and
//! changes several at once. In `placing` storages get and leave blocks, and `levels` tells the
//! parts that count them.
//!
//! This module decides and counts. It never waits and never submits. When a slab must be created or
//! a submission awaited, it says so, and the engine's execution pass does it. Every call here holds
//! the engine's lock.

mod budget;
mod canary;
mod census;
mod copies;
mod dead;
mod freed;
mod heap;
mod history;
mod levels;
mod made_for;
mod map;
mod owner;
mod peak;
mod place;
mod placing;
mod previous;
mod report;
pub(crate) mod scope;
mod share;
mod shares;
mod slabs;
mod slots;
mod source;
mod storage;
mod tag;
mod tags;
pub mod victims;
mod watermarks;

use std::sync::Arc;

use crate::alloc::{AllocError, Growth, PoolConfig, Pools, SlabId, Step};
use crate::driver::{BufferId, Caps};
use crate::error::{Error, Result};
use crate::number_map::NumberMap;

pub(crate) use crate::printable::{printable, printable_end};
pub use budget::Budget;
pub(crate) use budget::{HostAccount, HostCharge, HostUse};
pub(crate) use canary::{CANARY_BYTES, Canaries, Change, PATTERN, Zone};
use census::Census;
pub use census::ClassUse;
pub(crate) use copies::{Copies, HeapBlock, HostCopy, Kept, RematerializerToken, Tier};
pub(crate) use dead::Dead;
pub use dead::DeadList;
pub(crate) use heap::HostHeap;
use history::Ring;
pub use history::{Event, History, Moment};
pub use made_for::MadeFor;
pub(crate) use map::Map;
pub use map::{Block, BlockState, EvictedStorage, SlabMap};
pub(crate) use place::{Heap, HoleChoice, Place};
pub(crate) use placing::PendingRestore;
use previous::Previous;
pub use report::SlabUse;
pub(crate) use report::by_maker;
pub use scope::{Scope, enter_scope};
pub use share::{Amount, ShareOptions};
pub(crate) use share::{MadeBy, ShareHandle, ShareId, share_error};
#[cfg(feature = "metrics")]
pub(crate) use shares::series as share_series;
use shares::{Claim, SharePaths};
pub(crate) use shares::{Hindrance, Lending, Shares, Unmet, Whole, Whom};
pub(crate) use slabs::Slabs;
use slots::Slots;
pub(crate) use slots::{Candidate, Fakes, Whereabouts};
pub use source::Source;
pub use storage::{Advice, Residency};
pub use storage::{Companion, Storage};
pub use tag::Tag;
pub use tags::TagUse;
pub(crate) use victims::{TransferCost, Weight, choose};
use watermarks::Watermarks;

/// What a [`reopen`](crate::Gpu::reopen) found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Bytes that were kept elsewhere. They are restored when a command uses them.
    pub kept_bytes: u64,
    /// Number of storages with these bytes; views share one.
    pub kept: u64,
    /// Storages whose bytes were nowhere but on the device, or in a heap of the host's memory that
    /// it addresses: the tag and the bytes of each. They are [`Poisoned`](Error::Poisoned) until
    /// they are written again.
    pub gone: Vec<(String, u64)>,
    /// The bytes of [`gone`](Self::gone) that were evicted to such a heap:
    /// [`Options::host_heap`](crate::Options::host_heap).
    pub gone_with_heap_bytes: u64,
}

/// All storages of one engine.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) slots: Slots,
    pub(crate) slabs: Slabs,
    /// The heap in the host's memory, where the device addresses one.
    pub(crate) heap: Option<HostHeap>,
    /// The last number given to a slab, of the device or of the heap.
    slab_number: u32,
    pub(crate) census: Census,
    /// The history, if one is kept.
    pub(crate) events: Ring,
    pub(crate) shares: Shares,
    share_paths: SharePaths,
    pub(crate) watermarks: Watermarks,
    pub(crate) previous: Previous,
    pub(crate) canaries: Canaries,
    pub(crate) dead_list: Arc<DeadList>,
    /// What was taken from the dead list; empty except while `free_dead` runs.
    taken_dead: Vec<Dead>,
}

impl Memory {
    pub(crate) fn new(
        pools: Pools,
        never_move: bool,
        has_heap: bool,
        dead_list: Arc<DeadList>,
    ) -> Self {
        Memory {
            slots: Slots::new(),
            heap: has_heap.then(|| HostHeap::new(pools.clone(), never_move)),
            slabs: Slabs::new(Heap::Device, pools, never_move),
            slab_number: 0,
            census: Census::new(),
            events: Ring::default(),
            shares: Shares::default(),
            share_paths: SharePaths::default(),
            watermarks: Watermarks::default(),
            previous: Previous::default(),
            canaries: Canaries::default(),
            dead_list,
            taken_dead: Vec::new(),
        }
    }

    /// Empty pools for a device.
    pub(crate) fn pools(caps: &Caps, never_move: bool) -> Result<Pools> {
        let config = PoolConfig::new(caps.offset_alignment_bytes, caps.max_buffer_bytes);
        let config = match never_move {
            true => config.without_moves(),
            false => config,
        };
        Pools::new(config).map_err(|error| Error::option("device limits", error.to_string()))
    }

    /// Turns on canaries, and poison in freed blocks. Call it before the first block exists.
    pub(crate) fn watch_blocks(&mut self, canaries: bool, poisons: bool) {
        self.slabs.canary_bytes = if canaries { CANARY_BYTES } else { 0 };
        if canaries || poisons {
            self.canaries.watch(poisons);
        }
    }

    /// Frees the places of dropped storages. Passes everything else on the dead list to `other`.
    pub(crate) fn free_dead(&mut self, mut other: impl FnMut(Dead)) {
        let mut taken_dead = std::mem::take(&mut self.taken_dead);
        self.dead_list.swap(&mut taken_dead);
        for dead in taken_dead.drain(..) {
            match dead {
                Dead::Slot(slot) => self.free_slot(slot),
                Dead::Share(share) => {
                    self.shares.forget(share);
                    other(dead);
                }
                Dead::Watermark(id) => self.watermarks.remove(id),
                Dead::HeapBlock(part) => {
                    let heap = self.heap.as_mut();
                    if heap.is_some_and(|heap| heap.free(&part)) {
                        let (storage, bytes) = (part.storage, part.size_bytes);
                        self.events.push(Event::HostFree { storage, bytes });
                    }
                }
                dead => other(dead),
            }
        }
        self.taken_dead = taken_dead;
    }

    /// A storage has a rematerializer with these inputs from now on.
    pub(crate) fn rematerialize_by(
        &mut self,
        storage: &Storage,
        id: u64,
        inputs: Vec<Arc<Storage>>,
        is_automatic: bool,
    ) {
        let inputs = inputs.into_iter();
        let inputs = inputs.map(|input| {
            input.feed_rematerializer();
            let writes = self.slots.writes_to(&input);
            (input, writes)
        });
        let token = Arc::new(RematerializerToken {
            id,
            inputs: inputs.collect(),
            is_automatic,
            dead: self.dead_list.clone(),
        });
        (self.slots).copied(storage, |copies| copies.rematerializer = Some(token));
    }

    /// The command that is being encoded names the storage, to write to it or only to read it.
    pub(crate) fn record_operand(&mut self, storage: &Storage, is_written: bool) {
        if let Some(place) = self.slots.record_operand(storage, is_written) {
            self.slabs.touch(place);
        }
    }

    /// The batch was submitted with this serial, or refused (`None`).
    pub(crate) fn batch_ended(&mut self, serial: Option<u64>) {
        self.slots.next_batch();
        self.slabs.batch_ended(serial);
        if let Some(heap) = &mut self.heap {
            heap.slabs.batch_ended(serial);
        }
    }

    /// The storages whose bytes are in the host's memory, with no copy elsewhere that is as good.
    /// Those of one slab of the heap follow each other, the slab with the fewest of them last.
    pub(crate) fn on_host(&self) -> Vec<Arc<Storage>> {
        let mut storages = self.slots.on_host();
        let mut counts: NumberMap<usize> = NumberMap::default();
        let slab = |storage: &Arc<Storage>| {
            let place = self.heap_place(storage);
            place.map_or(u64::MAX, |place| place.buffer.0.number())
        };
        for storage in &storages {
            *counts.entry(slab(storage)).or_default() += 1;
        }
        storages.sort_by_key(|storage| {
            let slab = slab(storage);
            (std::cmp::Reverse(counts[&slab]), slab)
        });
        storages
    }

    /// The slabs of the heap in which a place lies.
    pub(crate) fn slabs_around(&mut self, place: Place) -> &mut Slabs {
        let is_hosts = (self.heap.as_ref()).is_some_and(|heap| heap.slabs.is_at(place));
        self.slabs_of(if is_hosts { Heap::Host } else { Heap::Device })
    }

    /// The slabs of a heap.
    pub(crate) fn slabs_of(&mut self, heap: Heap) -> &mut Slabs {
        self.slabs_and_slots(heap).0
    }

    fn slabs_and_slots(&mut self, heap: Heap) -> (&mut Slabs, &Slots) {
        let slabs = match &mut self.heap {
            Some(host) if heap == Heap::Host => &mut host.slabs,
            _ => &mut self.slabs,
        };
        (slabs, &self.slots)
    }

    /// Adds the slab that was created for `growth`.
    pub(crate) fn add_slab(
        &mut self,
        growth: &Growth,
        buffer: BufferId,
    ) -> Result<SlabId, AllocError> {
        let number = self.next_slab_number();
        let id = self.slabs.add(growth, buffer, number)?;
        (self.census).slab_added(growth.class, growth.slab_bytes);
        self.events.push(Event::SlabCreated {
            slab: number,
            bytes: growth.slab_bytes,
            class: growth.class,
        });
        Ok(id)
    }

    /// A number that no other slab has.
    fn next_slab_number(&mut self) -> u32 {
        self.slab_number = self.slab_number.wrapping_add(1);
        self.slab_number
    }

    /// Removes an empty slab. The caller destroys the returned buffer; the returned serial is the
    /// last submission that names it.
    pub(crate) fn release(&mut self, id: SlabId) -> Option<(BufferId, u64)> {
        let slab = self.slabs.remove(id)?;
        let index = Some(id.index() as u32);
        self.canaries.forget(index);
        self.previous.forget(index);
        self.census.slab_gone(slab.class, slab.size_bytes);
        self.events.push(Event::SlabReleased {
            slab: slab.number,
            bytes: slab.size_bytes,
        });
        Some((slab.buffer, slab.last_serial))
    }

    /// The steps that make room for a storage of this size, while all slabs of the heap together
    /// hold at most `limit_bytes`. Pinned storages stay at their places.
    pub(crate) fn plan(
        &mut self,
        heap: Heap,
        size_bytes: u64,
        limit_bytes: u64,
    ) -> Result<Vec<Step>, AllocError> {
        let (slabs, slots) = self.slabs_and_slots(heap);
        slabs.plan(slots, size_bytes, limit_bytes)
    }

    /// Moves of at most `limit_bytes` that empty slabs.
    pub(crate) fn plan_pass(&mut self, heap: Heap, limit_bytes: u64) -> Vec<Step> {
        let (slabs, slots) = self.slabs_and_slots(heap);
        slabs.plan_pass(slots, limit_bytes)
    }

    /// Moves and releases of slabs that shrink the reserved bytes towards `target_bytes`.
    pub(crate) fn plan_shrink(&mut self, heap: Heap, target_bytes: u64) -> Vec<Step> {
        let (slabs, slots) = self.slabs_and_slots(heap);
        slabs.plan_shrink(slots, target_bytes)
    }

    /// Adds a share: see [`Shares::add`].
    pub(crate) fn add_share(
        &mut self,
        name: &str,
        said: ShareOptions,
        around: Option<&Arc<ShareHandle>>,
        made_by: MadeBy,
        whole: Whole,
    ) -> Result<Arc<ShareHandle>> {
        let dead_list = self.dead_list.clone();
        let path = self.share_paths.numbered(name, around);
        let handle = (self.shares).add(path, said, around, made_by, whole, &dead_list)?;
        self.previous.record(self.slabs.all());
        Ok(handle)
    }

    /// What a table of shares promises and could not keep now. A storage that is pinned only as
    /// often as `but` says does not count as pinned.
    pub(crate) fn unmet(&self, table: &Shares, lending: Lending, but: &NumberMap<u32>) -> Unmet {
        let pinned = || shares::pinned_bytes(&self.slots, &self.slabs, but);
        table.unmet(lending, self.slabs.live_bytes(), pinned)
    }

    /// Changes the shares, unless a promise could not be kept then that can be kept now. The change
    /// itself may find that, too. If it fails, nothing has changed. Takes the change back in any
    /// case if it is a trial.
    pub(crate) fn promise<T>(
        &mut self,
        lending: Lending,
        is_trial: bool,
        change: impl FnOnce(&mut Memory) -> Result<Result<T, Unmet>>,
    ) -> Result<Result<T, Unmet>> {
        let (before, no_pins) = (self.shares.clone(), NumberMap::default());
        let promised = change(self).map(|changed| {
            let changed = changed?;
            let unmet = self.unmet(&self.shares, lending, &no_pins);
            // Most promises can be kept, so that no storage is looked at.
            let is_kept =
                unmet == Unmet::default() || !unmet.exceeds(self.unmet(&before, lending, &no_pins));
            match is_kept {
                true => Ok(changed),
                false => Err(unmet),
            }
        });
        if is_trial || !matches!(promised, Ok(Ok(_))) {
            self.shares.restore(before);
        }
        promised
    }

    /// A decision about who gives memory; `None` if there is no share.
    pub(crate) fn claim(&self, whom: Whom) -> Option<Claim> {
        let has_shares = !self.shares.is_empty();
        has_shares.then(|| {
            let (live_bytes, now) = (self.slabs.live_bytes(), self.slots.now());
            self.shares.claim(whom, live_bytes, now)
        })
    }

    /// The device is lost, with every place on it. Storages with copies count as evicted. The
    /// others have no value, with `cause`.
    pub(crate) fn device_gone(&mut self, cause: &Arc<Error>) -> Recovered {
        self.slabs.clear();
        if let Some(heap) = &mut self.heap {
            heap.clear();
        }
        self.slots.next_batch();
        self.canaries.forget(None);
        self.previous.forget(None);
        self.shares.all_lost();
        self.census.device_gone();
        self.events.push(Event::Reopened);
        let (mut recovered, mut lost) = (Recovered::default(), self.slots.lose_heap());
        recovered.gone_with_heap_bytes = lost.iter().map(|storage| storage.len_bytes()).sum();
        lost.extend(self.slots.leave_device());
        // A storage that would be computed from a lost one is lost too, and so on.
        loop {
            lost.extend(self.slots.not_computable());
            if lost.is_empty() {
                break;
            }
            for storage in lost.drain(..) {
                self.slots.poison(&storage, cause);
                let gone = (storage.tag().to_string(), storage.len_bytes());
                recovered.gone.push(gone);
            }
        }
        for slot in self.slots.rows() {
            if let (Some(copies), Some(storage)) = (&slot.copies, slot.storage.upgrade()) {
                recovered.kept += 1;
                recovered.kept_bytes += storage.len_bytes();
                storage.set_residency(copies.residency());
            }
        }
        recovered.gone.sort();
        recovered
    }

    /// The memory of a dry run: the same blocks in the same slabs, of storages that stand for those
    /// of the device. The slabs have no buffers yet: see [`give_buffers`](Self::give_buffers).
    /// `fakes` has the storages to keep, by the addresses of those that they stand for. All others
    /// are freed.
    pub(crate) fn fake(&self, fakes: &Fakes, dead_list: Arc<DeadList>) -> Memory {
        let (slots, without_fake) = self.slots.fake(fakes);
        let mut copy = Memory {
            slots,
            slabs: self.slabs.fake(),
            heap: (self.heap.as_ref()).map(|heap| heap.fake(self.slots.heap_blocks_beside(fakes))),
            slab_number: self.slab_number,
            census: self.census.fake(),
            events: Ring::default(),
            shares: self.shares.clone(),
            share_paths: self.share_paths.clone(),
            watermarks: Watermarks::default(),
            previous: self.previous.clone(),
            canaries: Canaries::default(),
            dead_list,
            taken_dead: Vec::new(),
        };
        for index in without_fake {
            copy.free_slot(index);
        }
        copy.slots.forgotten.clear();
        copy
    }

    /// Gives each slab of the device a buffer, by its size. `foreign` makes buffers that stand for
    /// the app's.
    pub(crate) fn give_buffers<E>(
        &mut self,
        mut make: impl FnMut(u64) -> Result<BufferId, E>,
        mut foreign: impl FnMut() -> BufferId,
    ) -> Result<(), E> {
        for slab in self.slabs.all_mut() {
            slab.buffer = make(slab.size_bytes)?;
        }
        for slot in self.slots.rows_mut() {
            let Some(place) = &mut slot.place else {
                continue;
            };
            match place.slab.map(|index| self.slabs.at(index as usize)) {
                Some(Some(slab)) => place.buffer = slab.buffer,
                Some(None) => {}
                None => place.buffer = foreign(),
            }
        }
        Ok(())
    }
}
