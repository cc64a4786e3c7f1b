//! After a loss: another device in the place of the one that is gone, and what came over.
//!
//! A storage whose bytes are in the host's memory, on disk or at a source comes back when
//! somebody uses it, as if it had been evicted. One that was only on the device has no value any
//! more. Commands that had not run stay queued: they run on the new device, as far as what they
//! need has come over.

use std::sync::Arc;

use super::batch::Batch;
use super::caches::{BindGroups, Pipelines};
use super::follow;
use super::pass::Pass;
use crate::driver::{DriverError, DriverResult};
use crate::error::{Error, Result};
use crate::memory::Recovered;
use crate::transfer::refusal;

/// Forgets what was on the device that is lost; why it is.
pub(super) fn give_up_lost(pass: &Pass) -> Result<Error> {
    let Some(reason) = pass.driver.lost() else {
        return Err(Error::Option {
            option: "reopen",
            reason: "the device is not lost".into(),
        });
    };
    let cause = Error::DeviceLost { reason };
    // While calls of other threads still fail: what they create from now on is the new
    // device's.
    pass.uploads.forget_all();
    pass.restore_staging.forget_all();
    pass.readbacks.forget_all(&cause);
    pass.driver.ledger().forget_all();
    Ok(cause)
}

/// What is left, once there is another device.
pub(super) fn take_stock(
    pass: &Pass,
    cause: Error,
    reopened: DriverResult<()>,
) -> Result<Recovered> {
    reopened.map_err(|error| match error {
        DriverError::Lost(reason) => Error::DeviceLost { reason },
        error => refusal("to reopen the device", error),
    })?;
    let cause = Arc::new(cause);
    let mut guard = pass.lock();
    let state = &mut *guard;
    state.batch = Batch::default();
    state.timing.forget();
    drop(state.cleanings.take_all());
    state.pace.forget();
    state.pipelines = Pipelines::default();
    state.groups = BindGroups::new(pass.driver.clone());
    if let Some(diagnose) = &mut state.diagnose {
        diagnose.device_gone();
    }
    state.unplace_head();
    let recovered = state
        .memory
        .device_gone(&cause)
        .map_err(|error| Error::Driver {
            what: "the device's limits",
            message: error.to_string(),
        })?;
    state.try_again();
    // Nor has what others write that have staged and not appended yet.
    state.staging_loss.lost(pass.uploads.epoch(), cause);
    state.queue.lose_staged(&state.staging_loss);
    drop(guard);
    follow::apply_limits(pass);
    pass.is_found();
    tell!(INFO, "the device was reopened", {});
    Ok(recovered)
}
