//! The limits in force: the smaller of the app's limit and the operating system's.

use std::sync::atomic::Ordering;

use crate::driver::{AdapterKind, OsLimit};
use crate::engine::handle::Engine;
use crate::memory::Budget;

/// Gives the ledger the limit in force: the smaller of the app's limit and the operating system's.
pub(crate) fn apply_limits(engine: &Engine) {
    apply(engine, &engine.lock_budget());
}

/// The caller holds the lock on the budget. Otherwise an older one could replace a newer one.
pub(crate) fn apply(engine: &Engine, budget: &Budget) {
    let os_bytes = (engine.outside.os.lock().as_ref()).map(OsLimit::limit_bytes);
    let app_bytes = budget.device_bytes.unwrap_or(u64::MAX);
    let hard_bytes = app_bytes.min(os_bytes.unwrap_or(u64::MAX));
    // The operating system may raise its limit again.
    let lasting_bytes = match engine.outside.os_is_static.load(Ordering::Relaxed) {
        true => hard_bytes,
        false => app_bytes,
    };
    let ledger = engine.driver.ledger();
    ledger.set_limit(hard_bytes, lasting_bytes, budget.staging_bytes);
    note_excess(engine, budget);
}

/// Lets the next execution pass shrink to the limits, if the bytes in use exceed them. The caller
/// holds the lock on the budget, so that it does not change meanwhile.
pub(super) fn note_excess(engine: &Engine, _budget: &Budget) {
    let must_shrink = must_drain(engine) || excess_bytes(engine) > 0;
    (engine.outside.must_shrink).store(must_shrink, Ordering::Release);
}

/// The bytes by which the reserved bytes exceed the limit.
pub(crate) fn excess_bytes(engine: &Engine) -> u64 {
    let levels = engine.driver.ledger().levels();
    levels.reserved_bytes.now.saturating_sub(levels.limit_bytes)
}

/// Whether slabs take a part of the bytes that the ledger keeps for staging.
pub(crate) fn must_drain(engine: &Engine) -> bool {
    engine.driver.ledger().slab_excess_bytes() > 0
}

/// Asks the operating system for its limit, and applies it.
pub(crate) fn follow_os(engine: &Engine) {
    if engine.outside.os_is_static.load(Ordering::Relaxed) {
        return;
    }
    let Some(os_budget) = engine.driver.os_budget() else {
        return;
    };
    let is_static = os_budget.is_static;
    (engine.outside.os_is_static).store(is_static, Ordering::Relaxed);
    if is_static && engine.caps().kind == AdapterKind::Cpu {
        // The heap size of a software rasterizer is a number that its authors chose.
        return;
    }
    let ours_bytes = engine.driver.ledger().levels().reserved_bytes.now;
    match &mut *engine.outside.os.lock() {
        Some(limit) => drop(limit.follow(os_budget, ours_bytes)),
        none => *none = Some(OsLimit::new(os_budget, ours_bytes)),
    }
    apply_limits(engine);
}
