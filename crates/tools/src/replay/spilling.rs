//! The cost of a budget where only bytes count. The operators of a trace run one after the other on
//! a device without slabs or fragmentation.
//!
//! An operator needs all its operands at once. An eviction costs the storage's bytes if it changed
//! since the host last had them. A restore costs its bytes. A release costs nothing.
//!
//! The victims are chosen by `victims` of the core, or by Belady's algorithm, the reference.
//! Belady's algorithm knows the future: it evicts the storage whose next use is furthest. It drops
//! storages without a next use at no cost.

use super::trace::{Event, Operand, Role, Trace};
use lapidary_core::internal::victims::{TransferCost, Uses, Weight, choose};

/// How victims are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Belady's algorithm, which knows the future.
    Oracle,
    /// The engine's choice, when operators come in batches of `batch`. It knows the current batch
    /// and nothing after it.
    Choice { batch: usize },
}

/// The cost of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spilled {
    pub out_bytes: u64,
    pub in_bytes: u64,
    /// Number of evictions.
    pub victims: u64,
    /// Operators that did not run because their operands need more than the whole device.
    pub refused: u64,
    /// Peak of the bytes on the device.
    pub peak_bytes: u64,
}

impl Spilled {
    /// Bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.out_bytes.saturating_add(self.in_bytes)
    }
}

/// A transfer has a fixed cost, equal to that of about this many KiB: 50 µs at 1 GiB/s.
const COST: TransferCost = TransferCost {
    ns_per_transfer: 50_000,
    ns_per_kib: 1_000,
};

const NEVER: usize = usize::MAX;

#[derive(Clone, Debug, Default)]
struct Storage {
    size_bytes: u64,
    /// Its index in `residents`.
    resident: Option<usize>,
    /// The host has the same bytes.
    is_clean: bool,
    uses: Uses,
    /// The next operator that uses it.
    next: usize,
    /// The current operator if it uses this storage, counted from 1.
    pinned_by: usize,
}

struct Device<'a> {
    order: Order,
    capacity_bytes: u64,
    used_bytes: u64,
    storages: Vec<Storage>,
    residents: Vec<usize>,
    spilled: Spilled,
    trace: &'a Trace,
    /// For each operand of the trace, the operator that uses the same storage next.
    next_uses: Vec<usize>,
}

/// Runs a trace on a device of `capacity_bytes`.
pub fn spill(trace: &Trace, capacity_bytes: u64, order: Order) -> Spilled {
    let mut device = Device {
        order,
        capacity_bytes,
        used_bytes: 0,
        storages: vec![Storage::default(); trace.storages],
        residents: Vec::new(),
        spilled: Spilled::default(),
        trace,
        next_uses: next_uses(trace),
    };
    let mut now = 0;
    for &event in &trace.events {
        match event {
            Event::Alloc { id, bytes } => device.storages[id].size_bytes = bytes,
            Event::Free { id } => device.take_away(id),
            Event::Run { first, count } => {
                device.run(now, first, count);
                now += 1;
            }
        }
    }
    device.spilled
}

fn next_uses(trace: &Trace) -> Vec<usize> {
    let mut next_uses = vec![NEVER; trace.operands.len()];
    let mut next = vec![NEVER; trace.storages];
    let runs = trace.events.iter().filter_map(|event| match event {
        Event::Run { first, count } => Some(*first..first + count),
        _ => None,
    });
    let runs: Vec<_> = runs.collect();
    for (now, operands) in runs.into_iter().enumerate().rev() {
        for index in operands {
            let id = trace.operands[index].id;
            next_uses[index] = next[id];
            next[id] = now;
        }
    }
    next_uses
}

impl Device<'_> {
    fn run(&mut self, now: usize, first: usize, count: usize) {
        let trace = self.trace;
        let operands = &trace.operands[first..first + count];
        let (mut needed_bytes, mut missing_bytes) = (0, 0);
        for (operand, index) in operands.iter().zip(first..) {
            let storage = &mut self.storages[operand.id];
            storage.next = self.next_uses[index];
            storage.pinned_by = now + 1;
            needed_bytes += storage.size_bytes;
            if storage.resident.is_none() {
                missing_bytes += storage.size_bytes;
            }
        }
        if needed_bytes > self.capacity_bytes {
            self.spilled.refused += 1;
            return;
        }
        let wanted_bytes = self.used_bytes + missing_bytes;
        if wanted_bytes > self.capacity_bytes {
            self.make_room(now, wanted_bytes - self.capacity_bytes);
        }
        for &operand in operands {
            self.use_operand(now, operand);
        }
        assert!(self.used_bytes <= self.capacity_bytes);
        self.spilled.peak_bytes = self.spilled.peak_bytes.max(self.used_bytes);
    }

    fn use_operand(&mut self, now: usize, Operand { id, role }: Operand) {
        let storage = &mut self.storages[id];
        if storage.resident.is_none() {
            storage.resident = Some(self.residents.len());
            self.residents.push(id);
            self.used_bytes += storage.size_bytes;
            if role != Role::Make {
                let in_bytes = &mut self.spilled.in_bytes;
                *in_bytes = in_bytes.saturating_add(storage.size_bytes);
            }
        }
        match role {
            Role::Make => storage.uses = Uses::new(now as u32),
            _ => storage.uses.touch(now as u32),
        }
        storage.is_clean &= role == Role::Read;
    }

    fn make_room(&mut self, now: usize, needed_bytes: u64) {
        let unpinned = |id: &usize| self.storages[*id].pinned_by != now + 1;
        let mut candidates: Vec<usize> = self.residents.iter().copied().filter(unpinned).collect();
        let victims: Vec<usize> = match self.order {
            Order::Oracle => {
                candidates.sort_by_key(|&id| (NEVER - self.storages[id].next, id));
                let mut left_bytes = needed_bytes;
                let enough = candidates.iter().position(|&id| {
                    left_bytes = left_bytes.saturating_sub(self.storages[id].size_bytes);
                    left_bytes == 0
                });
                candidates.truncate(enough.map_or(candidates.len(), |last| last + 1));
                candidates
            }
            Order::Choice { batch } => {
                let known = batch - 1 - now % batch;
                let weigh = |id: &usize| self.weight(*id, now, known);
                let chosen = choose(&candidates, weigh, needed_bytes, 0);
                chosen.into_iter().map(|index| candidates[index]).collect()
            }
        };
        for id in victims {
            self.evict(id);
        }
    }

    fn weight(&self, id: usize, now: usize, known: usize) -> Weight {
        let storage = &self.storages[id];
        let next = storage.next.saturating_sub(now);
        let next = (next <= known).then_some(next as u32);
        Weight {
            size_bytes: storage.size_bytes,
            is_clean: storage.is_clean,
            distance: storage
                .uses
                .distance_knowing(now as u32, next, known as u32),
            back_ns: COST.ns(storage.size_bytes),
        }
    }

    fn evict(&mut self, id: usize) {
        self.take_away(id);
        self.spilled.victims += 1;
        let storage = &mut self.storages[id];
        let is_dead = self.order == Order::Oracle && storage.next == NEVER;
        if !storage.is_clean && !is_dead {
            let out_bytes = &mut self.spilled.out_bytes;
            *out_bytes = out_bytes.saturating_add(storage.size_bytes);
            storage.is_clean = true;
        }
    }

    fn take_away(&mut self, id: usize) {
        let Some(index) = self.storages[id].resident.take() else {
            return;
        };
        self.used_bytes -= self.storages[id].size_bytes;
        self.residents.swap_remove(index);
        if let Some(&moved) = self.residents.get(index) {
            self.storages[moved].resident = Some(index);
        }
    }
}
