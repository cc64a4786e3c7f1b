//! After a loss: another device in the place of the one that is gone, and what came over.
//!
//! A storage whose bytes are in the host's memory, on disk or at a source comes back when
//! somebody uses it, as if it had been evicted. One that was only on the device has no value any
//! more. Commands that had not run stay queued: they run on the new device, as far as what they
//! need has come over.

use std::sync::Arc;

use super::Engine;
use super::caches::{BindGroups, Pipelines};
use super::cmd::Cmd;
use super::state::{Batch, State};
use crate::driver::{DriverError, DriverResult};
use crate::error::{Error, Result};
use crate::memory::Recovered;
use crate::transfer::refusal;

impl Engine {
    /// Puts a new device into the place of one that was lost, and takes stock.
    pub(crate) async fn reopen(self: &Arc<Self>) -> Result<Recovered> {
        let execution_lock = self.lock_execution().await?;
        let work = move |engine: Arc<Self>| async move {
            let cause = engine.give_up_lost()?;
            let reopened = engine.driver.reopen().await;
            engine.take_stock(cause, reopened)
        };
        self.with_execution_lock(execution_lock, work).await
    }

    /// The same by `readopt`, which does not wait.
    pub(crate) async fn reopen_by(
        &self,
        readopt: impl FnOnce() -> DriverResult<()>,
    ) -> Result<Recovered> {
        let _execution_lock = self.lock_execution().await?;
        let cause = self.give_up_lost()?;
        self.take_stock(cause, readopt())
    }

    /// Forgets what was on the device that is lost; why it is.
    fn give_up_lost(&self) -> Result<Error> {
        let Some(reason) = self.driver.lost() else {
            return Err(Error::Option {
                option: "reopen",
                reason: "the device is not lost".into(),
            });
        };
        let cause = Error::DeviceLost { reason };
        // While calls of other threads still fail: what they create from now on is the new
        // device's.
        self.uploads.forget_all();
        self.restore_staging.forget_all();
        self.readbacks.forget_all(&cause);
        self.driver.ledger().forget_all();
        Ok(cause)
    }

    /// What is left, once there is another device.
    fn take_stock(&self, cause: Error, reopened: DriverResult<()>) -> Result<Recovered> {
        reopened.map_err(|error| match error {
            DriverError::Lost(reason) => Error::DeviceLost { reason },
            error => refusal("to reopen the device", error),
        })?;
        let cause = Arc::new(cause);
        let mut state = self.lock();
        state.batch = Batch::default();
        state.times = None;
        state.cleaning.clear();
        state.last_submission = None;
        state.pipelines = Pipelines::default();
        state.groups = BindGroups::new(self.driver.clone());
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
        state.drop_staged(self.uploads.epoch(), &cause);
        drop(state);
        self.apply_limits();
        #[cfg(feature = "tracing")]
        self.lost_is_told
            .store(false, std::sync::atomic::Ordering::Relaxed);
        tell!(INFO, "the device was reopened", {});
        Ok(recovered)
    }
}

impl State {
    /// Uploads whose bytes were staged on the device that is gone: what they write has no value.
    /// Nor has what others write that have staged and not appended yet.
    fn drop_staged(&mut self, epoch: u64, cause: &Arc<Error>) {
        self.staging_epoch = epoch;
        self.staging_lost = Some(cause.clone());
        for cmd in self.queue.iter_mut() {
            cmd.lose_staged(epoch, &self.staging_lost);
        }
    }
}

impl Cmd {
    /// An upload that was staged before this epoch becomes one without bytes.
    pub(super) fn lose_staged(&mut self, epoch: u64, lost: &Option<Arc<Error>>) {
        if let (Cmd::Upload { dst, region, .. }, Some(cause)) = (&*self, lost) {
            if region.epoch < epoch {
                let (dst, cause) = (dst.clone(), cause.clone());
                *self = Cmd::Poison { dst, cause };
            }
        }
    }
}
