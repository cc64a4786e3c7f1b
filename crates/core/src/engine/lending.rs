//! What shares are parts of, what they were promised, and what may be lent now.

use super::handle::Engine;
use crate::driver::AdapterKind;
use crate::memory::{Lending, Whole};

/// What the amounts of shares are parts of.
pub(super) fn whole(engine: &Engine) -> Whole {
    let ledger = engine.driver.ledger();
    let is_limited = ledger.levels().said_bytes < u64::MAX;
    let known = match engine.caps().kind {
        // The heap size of a software rasterizer is a number that its authors chose.
        AdapterKind::Cpu => None,
        _ => engine.driver.os_budget(),
    };
    Whole {
        limit_bytes: match is_limited {
            true => ledger.slab_limit_bytes(),
            false => u64::MAX,
        },
        device_bytes: known.map(|os_budget| os_budget.budget_bytes),
    }
}

/// Notes what may be lent now, and the limit of watermarks. Lets amounts follow the operating
/// system's limit. An execution pass calls this when it begins.
pub(super) fn note_lending(engine: &Engine) {
    let (has_shares, has_watermarks) = {
        let state = engine.lock();
        (
            !state.memory.shares().is_empty(),
            state.memory.has_watermarks(),
        )
    };
    if !has_shares && !has_watermarks {
        return;
    }
    let limit_bytes = whole(engine).limit_bytes;
    (engine.lock().memory).set_watermark_limit(limit_bytes);
    if !has_shares {
        return;
    }
    follow_limits(engine);
    note_promises(engine);
    let host_bytes = match engine.caps().maps_slabs {
        true => 0,
        false => engine
            .host
            .limit_bytes()
            .saturating_sub(engine.host.used_bytes()),
    };
    let disk_bytes = match cfg!(target_arch = "wasm32") {
        true => 0,
        false => engine.spill.left_bytes(),
    };
    let room_bytes = host_bytes.saturating_add(disk_bytes);
    let lending = Lending {
        limit_bytes,
        room_bytes,
    };
    let is_bounded = limit_bytes < u64::MAX && room_bytes < limit_bytes;
    (engine.lock().memory.shares_mut()).set_lending(is_bounded.then_some(lending));
}

/// Lets staging leave what is guaranteed to shares, and the queue follow their priorities.
pub(super) fn note_promises(engine: &Engine) {
    let mut state = engine.lock();
    if state.memory.shares().has_priorities() {
        state.queue.use_priorities();
    }
    let promised_bytes = state.memory.shares().promised_bytes();
    state.driver.ledger().set_promised(promised_bytes);
}

/// Computes the amounts of shares again, after the limits changed.
pub(super) fn follow_limits(engine: &Engine) {
    let whole = whole(engine);
    let mut state = engine.lock();
    if !state.memory.shares().is_empty() {
        state.memory.shares_mut().follow(whole);
    }
}
