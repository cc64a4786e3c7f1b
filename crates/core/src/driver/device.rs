//! A driver with an account. Every buffer is reserved in the budget before it is created, and
//! counts until the device has released it.
//!
//! The layers below hold a [`Device`]. It forwards all calls to a driver, and changes four.
//! Creating a buffer asks the [`Ledger`] first, destroying one says when its bytes return, and
//! submissions are counted for that. So slabs, staging and read-back buffers never exceed the
//! budget, not for a moment, but for what a drain to a lowered budget needs ([`Ledger`]).
//! Submissions and waits also tell how fast the device is.

use std::ops::Deref;
use std::sync::Arc;

use super::ledger::{Account, Ledger};
use super::meter::Meter;
use super::{
    BoxFuture, BufferId, BufferKind, Driver, DriverError, DriverResult, Op, Signal, Submission,
};
use crate::units::Level;
use crate::waits::{self, WaitsFor};

/// Whether any driver of this program may return before it is done.
const MAY_RETURN_EARLY: bool = cfg!(any(target_arch = "wasm32", test, feature = "sim"));

/// A driver whose buffers are accounted for. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    driver: Arc<dyn Driver>,
    ledger: Arc<Ledger>,
    meter: Arc<Meter>,
}

impl Deref for Device {
    type Target = dyn Driver;

    fn deref(&self) -> &Self::Target {
        &*self.driver
    }
}

impl Device {
    /// A device without a limit.
    pub(crate) fn new(driver: Arc<dyn Driver>) -> Self {
        Device {
            driver,
            ledger: Arc::new(Ledger::new()),
            meter: Arc::default(),
        }
    }

    /// As [`Driver::returns_early`]. Natively only a simulated device does.
    #[inline]
    pub(crate) fn returns_early(&self) -> bool {
        MAY_RETURN_EARLY && self.driver.returns_early()
    }

    /// The account of the device's bytes.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Creates a buffer as [`Driver::create_buffer`] does, if the budget has room for it.
    pub(crate) fn create_buffer<'a>(
        &'a self,
        account: Account,
        size_bytes: u64,
        label: &'a str,
    ) -> BoxFuture<'a, DriverResult<BufferId>> {
        Box::pin(async move {
            loop {
                let Some(reserved) = self.reserve(account, size_bytes) else {
                    return Err(DriverError::OverBudget);
                };
                let kind = account.kind();
                let created = self.driver.create_buffer(kind, size_bytes, label).await;
                match created {
                    Ok(buffer) => {
                        if !reserved.becomes(buffer) {
                            // The buffer may belong to the old device, so the driver creates it
                            // once more on the new one.
                            self.driver.destroy_buffer(buffer);
                            continue;
                        }
                        if account == Account::Slabs {
                            // To answer this, the driver counts all of its memory. So it is asked
                            // only after a creation that may have taken much.
                            self.driver_bytes();
                        }
                    }
                    Err(DriverError::OutOfMemory) => self.ledger.refused(size_bytes),
                    Err(_) => {}
                }
                return created;
            }
        })
    }

    /// Creates a slab in the host's memory. The ledger of the device does not count it.
    pub(crate) async fn create_host_slab(
        &self,
        size_bytes: u64,
        label: &str,
    ) -> DriverResult<BufferId> {
        let epoch = self.ledger.epoch();
        let created = (self.driver).create_buffer(BufferKind::HostSlab, size_bytes, label);
        let buffer = created.await?;
        if self.ledger.epoch() != epoch {
            // It may belong to the device before.
            self.driver.destroy_buffer(buffer);
            return Err(DriverError::replaced());
        }
        Ok(buffer)
    }

    /// Reserves bytes of the budget. `None` if the budget has fewer left.
    fn reserve(&self, account: Account, size_bytes: u64) -> Option<Reserved<'_>> {
        let epoch = self.ledger.reserve(account, size_bytes)?;
        Some(Reserved {
            ledger: &self.ledger,
            account,
            size_bytes,
            epoch,
        })
    }

    /// The bytes of the device's memory that the driver holds. `None` if it does not tell.
    pub(crate) fn driver_bytes(&self) -> Option<Level> {
        let held_bytes = self.driver.driver_reserved_bytes()?;
        Some(self.ledger.driver_holds(held_bytes))
    }

    /// As [`create_buffer`](Self::create_buffer), but mapped already and without a wait. `None` if
    /// the driver cannot do that.
    pub(crate) fn create_mapped(
        &self,
        account: Account,
        size_bytes: u64,
        label: &str,
    ) -> Option<DriverResult<BufferId>> {
        // Only a browser's driver can.
        if cfg!(not(target_arch = "wasm32")) {
            return None;
        }
        let Some(reserved) = self.reserve(account, size_bytes) else {
            return Some(Err(DriverError::OverBudget));
        };
        let created = self.driver.create_mapped(size_bytes, label)?;
        if let Ok(buffer) = created {
            if !reserved.becomes(buffer) {
                self.driver.destroy_buffer(buffer);
                return Some(Err(DriverError::replaced()));
            }
        }
        Some(created)
    }

    /// Submits work as [`Driver::submit`] does, and records its serial and its predicted time.
    pub(crate) fn submit(
        &self,
        ops: &[Op],
        params: &[u8],
        predicted_ns: f64,
    ) -> DriverResult<Submission> {
        let submission = self.driver.submit(ops, params)?;
        self.ledger.submitted(submission.serial);
        if self.is_measured() {
            let completed = self.driver.completed();
            self.meter
                .submitted(submission.serial, predicted_ns, completed);
        }
        Ok(submission)
    }

    /// Waits as [`Driver::wait`] does, and measures the work that the caller waits for.
    pub(crate) fn wait<'a>(&'a self, signal: &'a Signal) -> BoxFuture<'a, DriverResult<()>> {
        self.wait_for(WaitsFor::Device, signal)
    }

    /// As [`wait`](Self::wait), where a pass that needs memory waits for something else than the
    /// device.
    pub(crate) fn wait_for<'a>(
        &'a self,
        what: WaitsFor,
        signal: &'a Signal,
    ) -> BoxFuture<'a, DriverResult<()>> {
        match signal.outcome().is_none() && waits::are_watched() {
            true => Box::pin(waits::wait(what, self.wait_measured(signal))),
            false => self.wait_measured(signal),
        }
    }

    fn wait_measured<'a>(&'a self, signal: &'a Signal) -> BoxFuture<'a, DriverResult<()>> {
        if self.is_measured() && signal.outcome().is_none() {
            return Box::pin(async move {
                self.meter.begins_wait(self.driver.completed());
                let waited = self.driver.wait(signal).await;
                self.meter.ended_wait(self.driver.completed());
                waited
            });
        }
        self.driver.wait(signal)
    }

    /// A simulated device has no times, so that the same calls have the same outcome. A dry run
    /// computes nothing, and a browser has no clock.
    fn is_measured(&self) -> bool {
        let has_times = cfg!(not(target_arch = "wasm32")) && self.driver.caps().backend != "sim";
        has_times && self.driver.has_contents()
    }

    /// Predicts times from now on as another device does.
    pub(crate) fn predict_as(&self, other: &Device) {
        self.meter.scale_as(&other.meter);
    }

    /// The measured time of work ÷ its predicted time; 1 if nothing was measured.
    pub(crate) fn time_scale(&self) -> f64 {
        self.meter.scale()
    }

    /// The longest time of a submission that somebody waited for, in nanoseconds.
    pub(crate) fn longest_submission_ns(&self) -> u64 {
        self.meter.longest_ns()
    }

    /// As [`destroy_buffer`](Self::destroy_buffer), for a buffer that any submission so far may
    /// still use.
    pub(crate) fn destroy_in_use(&self, buffer: BufferId) {
        self.destroy_buffer(buffer, self.ledger.last_serial());
    }

    /// Destroys a buffer. Its bytes count as *retiring* until submission `last_serial` is done.
    /// That is the last submission that uses the buffer; 0 for none. The account ignores buffers of
    /// the app.
    pub(crate) fn destroy_buffer(&self, buffer: BufferId, last_serial: u64) {
        self.driver.destroy_buffer(buffer);
        let completed = self.driver.completed();
        self.ledger.destroyed(buffer, last_serial, completed);
    }

    /// Counts the bytes that the device has released since the last call. Returns their number.
    pub(crate) fn settle(&self) -> u64 {
        self.ledger.settle(self.driver.completed())
    }
}

/// Reserved bytes that belong to no buffer yet.
struct Reserved<'a> {
    ledger: &'a Ledger,
    account: Account,
    size_bytes: u64,
    epoch: u64,
}

impl Reserved<'_> {
    /// Gives the bytes to a buffer. `false` if the device was replaced meanwhile; then the bytes
    /// are released.
    fn becomes(mut self, buffer: BufferId) -> bool {
        let size_bytes = std::mem::take(&mut self.size_bytes);
        self.ledger
            .created(buffer, self.account, size_bytes, self.epoch)
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if self.size_bytes > 0 {
            self.ledger
                .release(self.account, self.size_bytes, self.epoch);
        }
    }
}
