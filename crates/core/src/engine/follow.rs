//! The limits that hold: what the app says, or what the operating system leaves if that is less.

use super::handle::Engine;
use super::limits::Limits;
use crate::driver::AdapterKind;

/// Tells the ledger what holds now: the app's limit, or what the system leaves if that is less.
pub(super) fn apply_limits(engine: &Engine) {
    apply(engine, &engine.lock_limits());
}

/// With the lock on the limits: who applies older ones would undo what another has set.
pub(super) fn apply(engine: &Engine, limits: &Limits) {
    let budget = &limits.budget;
    let app_bytes = budget.device_bytes.unwrap_or(u64::MAX);
    let hard_bytes = app_bytes.min(engine.outside.os_limit_bytes().unwrap_or(u64::MAX));
    // What the system takes it may give back.
    let lasting_bytes = match engine.outside.os_is_static() {
        true => hard_bytes,
        false => app_bytes,
    };
    let ledger = engine.driver.ledger();
    ledger.set_limit(hard_bytes, lasting_bytes, budget.staging_bytes);
    note_excess(engine, limits);
}

/// Lets the next execution pass get down to the limits, if they are passed. They stay what they
/// are meanwhile.
pub(super) fn note_excess(engine: &Engine, _limits: &Limits) {
    let must_shrink = must_drain(engine) || excess_bytes(engine) > 0;
    engine.outside.set_must_shrink(must_shrink);
}

/// By how much what is reserved passes the limit.
pub(super) fn excess_bytes(engine: &Engine) -> u64 {
    let levels = engine.driver.ledger().levels();
    levels.reserved_bytes.now.saturating_sub(levels.limit_bytes)
}

/// Do slabs take what is kept for staging?
pub(super) fn must_drain(engine: &Engine) -> bool {
    engine.driver.ledger().slab_excess_bytes() > 0
}

/// Asks the operating system what it leaves to us, and goes by it.
pub(super) fn follow_os(engine: &Engine) {
    if engine.outside.os_is_static() {
        return;
    }
    let Some(os_budget) = engine.driver.os_budget() else {
        return;
    };
    let is_static = os_budget.is_static;
    engine.outside.set_os_static(is_static);
    if is_static && engine.caps().kind == AdapterKind::Cpu {
        // The heap of a software rasterizer is a number that its authors chose.
        return;
    }
    let ours_bytes = engine.driver.ledger().levels().reserved_bytes.now;
    engine.outside.follow_os(os_budget, ours_bytes);
    apply_limits(engine);
}
