//! Reopening after a device loss: a new device, and the storages that survive.
//!
//! A storage with a copy in memory of the host alone, in a store, on disk or at a source counts as
//! evicted. It is restored when a command needs it. A storage that was only on the device, or in
//! the heap that the device addresses, is poisoned. Commands that had not run stay queued. They run
//! on the new device if their operands survived. Uploads among them are poisoned: their bytes were
//! in staging (`queue::staging_loss`).

use std::sync::Arc;
#[cfg(feature = "tracing")]
use std::sync::atomic::Ordering;

#[cfg(not(target_arch = "wasm32"))]
use super::block_on;
#[cfg(not(target_arch = "wasm32"))]
use super::handle::Engine;
use super::pass::Pass;
use super::reclaim::limits_in_force;
use super::state::caches::{BindGroups, Pipelines};
use super::tiers::arrivals;
use crate::driver::{DriverError, DriverResult};
use crate::error::{Error, Result};
use crate::memory::Recovered;
#[cfg(not(target_arch = "wasm32"))]
use crate::memory::{Kept, Storage};
use crate::transfer::refusal;

/// Forgets the state of the lost device. Returns the error of the loss.
pub(super) fn forget_lost_device(pass: &Pass) -> Result<Error> {
    let Some(reason) = pass.driver.lost() else {
        return Err(Error::option("reopen", "the device is not lost"));
    };
    let cause = Error::DeviceLost { reason };
    // Calls of other threads still fail here. Later they create buffers on the new device.
    pass.uploads.forget_all();
    pass.restore_staging.forget_all();
    pass.readbacks.forget_all(&cause);
    pass.driver.ledger().forget_all();
    Ok(cause)
}

/// Where a storage of a lost device has its bytes, which then outlive the loss. `None` if the
/// device is not lost.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn kept_in_loss(engine: &Arc<Engine>, storage: &Storage) -> Result<Option<Kept>> {
    // No eviction is under way that could still make a copy.
    let pass = Pass::with(engine, block_on("a read", Pass::lock(engine))?);
    if pass.driver.lost().is_none() {
        return Ok(None);
    }
    let kept = pass.lock().memory.slots.kept(storage);
    Ok(Some(Kept {
        // The heap that the device addresses is lost with it.
        on_host: kept.on_host && kept.in_heap.is_none(),
        in_heap: None,
        ..kept
    }))
}

/// Updates the state for the new device. Returns what survived.
pub(super) fn recover(pass: &Pass, cause: Error, reopened: DriverResult<()>) -> Result<Recovered> {
    reopened.map_err(|error| match error {
        DriverError::Lost(reason) => Error::DeviceLost { reason },
        error => refusal("to reopen the device", error),
    })?;
    // What has reached the disk or a store survives, whatever was in the heap.
    arrivals::take_in_arrived(pass);
    let cause = Arc::new(cause);
    let mut guard = pass.lock();
    let state = &mut *guard;
    let batch = std::mem::take(&mut state.batch);
    (batch.reads.iter()).for_each(|(reading, ..)| reading.fail(Error::clone(&cause)));
    state.refused_changes.forget();
    state.timing.times = None;
    let cleanings = state.cleanings.take_all();
    state.pace.forget();
    state.pipelines = Pipelines::default();
    state.groups = BindGroups::new(pass.driver.clone());
    if let Some(diagnose) = &mut state.diagnose {
        diagnose.device_gone();
    }
    state.unplace_head();
    let recovered = state.memory.device_gone(&cause);
    state.take_up_left_behind();
    // Uploads that threads have staged but not appended yet are lost too.
    state.staging_loss.lost(pass.uploads.epoch(), cause);
    state.queue.lose_staged(&state.staging_loss);
    drop(guard);
    // They hold host memory or disk space, which is freed outside the lock.
    drop(cleanings);
    limits_in_force::apply_limits(pass);
    #[cfg(feature = "tracing")]
    pass.is_loss_logged.store(false, Ordering::Relaxed);
    tell!(INFO, "the device was reopened", {});
    Ok(recovered)
}
