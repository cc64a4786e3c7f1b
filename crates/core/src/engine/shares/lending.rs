//! The memory that shares divide, what shares were promised, and what may be lent now.

use crate::driver::AdapterKind;
use crate::engine::handle::Engine;
use crate::engine::heap;
use crate::engine::state::State;
use crate::memory::{Budget, Lending, Whole};
use crate::transfer::OpenStore;

/// The most bytes of all slabs; `u64::MAX` for no limit.
pub(crate) fn limit_bytes(engine: &Engine) -> u64 {
    let ledger = engine.driver.ledger();
    match ledger.levels().said_bytes {
        u64::MAX => u64::MAX,
        _ => ledger.slab_limit_bytes(),
    }
}

/// The memory of the device, if the operating system tells. Asks it, so the caller holds no lock.
pub(crate) fn device_bytes(engine: &Engine) -> Option<u64> {
    let known = match engine.caps().kind {
        // The heap size of a software rasterizer is a number that its authors chose.
        AdapterKind::Cpu => None,
        _ => engine.driver.os_budget(),
    };
    known.map(|os_budget| os_budget.budget_bytes)
}

/// The memory that shares divide now. Whoever changes shares by it holds the state's lock, as
/// whoever changes the budget does.
pub(crate) fn whole(engine: &Engine, device_bytes: Option<u64>) -> Whole {
    Whole {
        limit_bytes: limit_bytes(engine),
        device_bytes,
    }
}

/// Notes what shares may lend now, and the limit of watermarks. Lets amounts follow the operating
/// system's limit. An execution pass calls this when it begins. Returns whether there are shares.
pub(crate) fn note_lending(engine: &Engine) -> bool {
    let has_parts = {
        let state = &mut *engine.lock();
        if state.memory.watermarks.has_any() {
            state.memory.watermarks.limit_bytes = limit_bytes(engine);
        }
        if state.memory.shares.is_empty() {
            return false;
        }
        state.memory.shares.has_parts()
    };
    if engine.caps().host_heap && engine.host.limit_bytes() < u64::MAX {
        // Empty slabs of the heap in the host's memory are room.
        heap::release_empty(engine);
    }
    let device_bytes = has_parts.then(|| device_bytes(engine)).flatten();
    let mut state = engine.lock();
    if has_parts {
        state.memory.shares.follow(whole(engine, device_bytes));
    }
    // A share also ends with its last holder.
    state.note_promises();
    let mut lending = lending(engine, limit_bytes(engine), &engine.budget());
    // The room of a copy that is between two parts is for bytes that are lent.
    let left_bytes = state.cleanings.left_bytes(None);
    lending.room_bytes = lending.room_bytes.saturating_add(left_bytes);
    if engine.caps().host_heap && lending.room_bytes < lending.limit_bytes {
        // What has gone on from the heap, or is on its way, is in two places. One makes way.
        let twice_bytes =
            state.cleanings.demoted_bytes(None) + state.memory.slots.demoted_bytes(None);
        lending.room_bytes = lending.room_bytes.saturating_add(twice_bytes);
    }
    let is_bounded = lending.room_bytes < lending.limit_bytes;
    (state.memory.shares).lending = is_bounded.then_some(lending);
    true
}

/// What may be lent where slabs have `limit_bytes`, with the room of `budget` for evicted bytes.
/// While bytes leave, they count in both places. So whoever holds the engine's lock never finds
/// more room than there is.
pub(super) fn lending(engine: &Engine, limit_bytes: u64, budget: &Budget) -> Lending {
    let host_bytes = match (engine.caps().maps_slabs, budget.host_bytes) {
        // Where host and device share one memory, nothing leaves to the host's memory.
        (true, _) => 0,
        (false, None) => u64::MAX,
        (false, Some(bytes)) => bytes.saturating_sub(engine.host.kept_bytes()),
    };
    let disk_bytes = match (cfg!(target_arch = "wasm32"), budget.disk_bytes) {
        (true, _) => 0,
        (false, None) => u64::MAX,
        (false, Some(bytes)) => bytes.saturating_sub(engine.spill.used_bytes()),
    };
    let stores = engine.stores.iter().map(OpenStore::room_bytes);
    Lending {
        limit_bytes,
        room_bytes: stores.fold(host_bytes.saturating_add(disk_bytes), u64::saturating_add),
    }
}

impl State {
    /// Lets staging leave what is guaranteed to shares, and the queue follow their priorities.
    pub(crate) fn note_promises(&mut self) {
        self.has_priorities |= self.memory.shares.has_priorities();
        let promised_bytes = self.memory.shares.promised_bytes();
        self.driver.ledger().set_promised(promised_bytes);
    }
}
