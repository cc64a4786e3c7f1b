//! What is alive, by who made it.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Leak;
use crate::engine::Engine;
use crate::engine::state::{State, address};
use crate::memory::Storage;

impl Engine {
    /// The storages that somebody but the queue holds, by who made them, the most bytes first.
    pub(crate) fn leaks(&self) -> Vec<Leak> {
        let mut leaks: Vec<Leak> = Vec::new();
        let alive = self.lock().alive();
        let mut places = FxHashMap::default();
        for storage in &alive {
            let (site, scope) = storage.made_at();
            let maker = (std::ptr::from_ref(site) as usize, scope, storage.name());
            let place = *places.entry(maker).or_insert_with(|| {
                leaks.push(Leak {
                    made_at: storage.tag(),
                    storages: 0,
                    bytes: 0,
                });
                leaks.len() - 1
            });
            leaks[place].storages += 1;
            leaks[place].bytes += storage.len_bytes();
        }
        leaks.sort_by_key(|leak| std::cmp::Reverse(leak.bytes));
        leaks
    }
}

impl State {
    /// The storages that somebody but the queue holds.
    fn alive(&self) -> Vec<Arc<Storage>> {
        // By address, how often the queue holds one; the queue keeps it alive meanwhile.
        let mut queued: FxHashMap<usize, (Arc<Storage>, usize)> = FxHashMap::default();
        let left = self.left.cmds.iter().map(|(cmd, _)| cmd);
        for cmd in self.queue.iter().chain(left).chain(&self.recorded) {
            cmd.each_operand(|storage, _| {
                let entry = queued.entry(address(storage));
                entry.or_insert_with(|| (storage.clone(), 0)).1 += 1;
            });
        }
        let mut alive = self.memory.alive();
        alive.retain(|storage| {
            let held = queued
                .get(&address(storage))
                .map_or(0, |(_, held)| held + 1);
            // One is this list's.
            Arc::strong_count(storage) > held + 1
        });
        let unplaced = queued.into_values().filter(|(storage, held)| {
            storage.slot().is_none() && Arc::strong_count(storage) > held + 1
        });
        alive.extend(unplaced.map(|(storage, _)| storage));
        alive
    }
}
