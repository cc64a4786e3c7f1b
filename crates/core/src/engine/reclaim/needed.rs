//! The storages that the command at the head of the queue needs.

use std::sync::Arc;

use rustc_hash::FxHashSet;

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

/// The operands of the command at the head of the queue, if the storage is one of them; else only
/// the storage.
pub(super) fn needed_storages(state: &State, storage: &Arc<Storage>) -> Vec<Arc<Storage>> {
    let mut seen: Vec<Arc<Storage>> = vec![storage.clone()];
    if let Some(cmd) = state.queue.head() {
        let mut needs = false;
        cmd.each_operand(&mut |operand, _| needs |= Arc::ptr_eq(operand, storage));
        cmd.each_operand(&mut |operand, _| {
            let known = seen.iter().any(|other| Arc::ptr_eq(other, operand));
            if needs && !known && !state.memory.slots.is_imported(operand) {
                seen.push(operand.clone());
            }
        });
    }
    seen
}

/// The bytes of the [`needed_storages`].
pub(super) fn needed_bytes(state: &State, storage: &Arc<Storage>) -> u64 {
    let needed = needed_storages(state, storage);
    needed
        .iter()
        .map(|storage| state.memory.slabs.granted_bytes(storage.size_bytes()))
        .sum()
}
