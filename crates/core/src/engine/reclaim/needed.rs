//! The storages that the command at the head of the queue needs.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::engine::kernel::{Launch, Role};
use crate::engine::queue::cmd::Cmd;
use crate::engine::state::State;
use crate::memory::Storage;

/// The slots of the storages that must not be evicted: the operands of the command at the head of
/// the queue.
pub(super) fn needed_slots(state: &State) -> FxHashSet<usize> {
    let mut needed = FxHashSet::default();
    if let Some(cmd) = state
        .queue
        .head()
        .filter(|_| !state.head.may_evict_operands)
    {
        cmd.each_operand(&mut |storage, _| needed.extend(storage.slot().map(|slot| slot as usize)));
    }
    needed
}

/// Whether the command at the head of the queue needs the storage.
pub(super) fn is_needed(state: &State, storage: &Arc<Storage>) -> bool {
    let mut needs = false;
    if let Some(cmd) = state.queue.head() {
        cmd.each_operand(&mut |operand, _| needs |= Arc::ptr_eq(operand, storage));
    }
    needs
}

/// The operands of the command at the head of the queue that need memory, if the storage is one of
/// them; else only the storage. A result that takes over the place of an operand needs none.
pub(super) fn needed_storages(state: &State, storage: &Arc<Storage>) -> Vec<Arc<Storage>> {
    let Some(cmd) = state.queue.head().filter(|_| is_needed(state, storage)) else {
        return vec![storage.clone()];
    };
    // First, as further handles would hide who else holds an operand.
    let in_place = match cmd {
        Cmd::Launch(launch) => results_in_place(state, launch, storage),
        _ => Vec::new(),
    };
    let is_in = |list: &[Arc<Storage>], one: &Arc<Storage>| {
        list.iter().any(|other| Arc::ptr_eq(other, one))
    };
    let mut seen: Vec<Arc<Storage>> = vec![storage.clone()];
    cmd.each_operand(&mut |operand, _| {
        let needs_none = is_in(&in_place, operand) || state.memory.slots.is_imported(operand);
        if !needs_none && !is_in(&seen, operand) {
            seen.push(operand.clone());
        }
    });
    seen
}

/// The results without a place that will take over the place of an operand, once that is on the
/// device. The request for room has a handle of `wanted`.
fn results_in_place(state: &State, launch: &Launch, wanted: &Arc<Storage>) -> Vec<Arc<Storage>> {
    let slots = &state.memory.slots;
    let mut taken: Vec<&Arc<Storage>> = Vec::new();
    let mut in_place = Vec::new();
    for (index, output) in launch.args.iter().enumerate() {
        let result = &output.storage;
        let is_new = launch.program.role(index) == Role::Write
            && slots.find(result).is_none()
            && !slots.is_evicted(result)
            && !Arc::ptr_eq(result, wanted);
        if !is_new {
            continue;
        }
        let donor = launch.donors(output).find(|(donor, uses)| {
            let holders = uses + usize::from(Arc::ptr_eq(donor, wanted));
            Arc::strong_count(donor) == holders
                && (slots.in_slab(donor) || slots.is_evicted(donor))
                && !taken.iter().any(|other| Arc::ptr_eq(other, donor))
        });
        if let Some((donor, _)) = donor {
            taken.push(donor);
            in_place.push(result.clone());
        }
    }
    in_place
}

/// The bytes of the [`needed_storages`].
pub(super) fn needed_bytes(state: &State, storage: &Arc<Storage>) -> u64 {
    let needed = needed_storages(state, storage);
    needed
        .iter()
        .map(|storage| state.memory.slabs.granted_bytes(storage.size_bytes()))
        .sum()
}
