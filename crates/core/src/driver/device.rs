//! A driver with an account: every buffer is paid for before it is created, and until the device
//! has let go of it.
//!
//! [`Device`] is what the rooms above hold. It is a driver in all but three calls: creating a
//! buffer asks the [`Ledger`] first, destroying one says when its bytes come back, and submissions
//! are counted for that. So nothing, be it a slab, staging or a buffer for reading back, can pass
//! the budget, not for a moment.

use std::ops::Deref;
use std::sync::Arc;

use super::ledger::{Account, Ledger};
use super::{BufferId, Driver, DriverError, DriverResult, Op, Submission};
use crate::units::Level;

/// A driver whose buffers are accounted for. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    driver: Arc<dyn Driver>,
    ledger: Arc<Ledger>,
}

impl Deref for Device {
    type Target = dyn Driver;

    fn deref(&self) -> &Self::Target {
        &*self.driver
    }
}

impl Device {
    /// A driver without a limit.
    pub(crate) fn new(driver: Arc<dyn Driver>) -> Self {
        let ledger = Arc::new(Ledger::new());
        Device { driver, ledger }
    }

    /// The account.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Creates a buffer as [`Driver::create_buffer`] does, if the budget has room for it.
    pub(crate) async fn create_buffer(
        &self,
        account: Account,
        size_bytes: u64,
        label: &str,
    ) -> DriverResult<BufferId> {
        loop {
            let Some(reserved) = self.reserve(account, size_bytes) else {
                return Err(DriverError::OverBudget);
            };
            let kind = account.kind();
            let created = self.driver.create_buffer(kind, size_bytes, label).await;
            match created {
                Ok(buffer) => {
                    if !reserved.becomes(buffer) {
                        // Perhaps it is the old device's: once more, on the new one.
                        self.driver.destroy_buffer(buffer);
                        continue;
                    }
                    if account == Account::Slabs {
                        // The driver counts all that it holds for that, so it is asked where it may
                        // have taken much.
                        self.driver_bytes();
                    }
                }
                Err(DriverError::OutOfMemory) => self.ledger.refused(size_bytes),
                Err(_) => {}
            }
            return created;
        }
    }

    /// Takes bytes of the budget, if it has so many left.
    fn reserve(&self, account: Account, size_bytes: u64) -> Option<Reserved<'_>> {
        let epoch = self.ledger.reserve(account, size_bytes)?;
        Some(Reserved {
            ledger: &self.ledger,
            account,
            size_bytes,
            epoch,
        })
    }

    /// Asks the driver what it holds of the device's memory; none where it does not tell.
    pub(crate) fn driver_bytes(&self) -> Option<Level> {
        let held_bytes = self.driver.driver_reserved_bytes()?;
        Some(self.ledger.driver_holds(held_bytes))
    }

    /// As [`create_buffer`](Self::create_buffer), mapped already and without a wait, where the
    /// driver can do that.
    pub(crate) fn create_mapped(
        &self,
        account: Account,
        size_bytes: u64,
        label: &str,
    ) -> Option<DriverResult<BufferId>> {
        let Some(reserved) = self.reserve(account, size_bytes) else {
            return Some(Err(DriverError::OverBudget));
        };
        let created = self.driver.create_mapped(size_bytes, label)?;
        if let Ok(buffer) = created {
            if !reserved.becomes(buffer) {
                self.driver.destroy_buffer(buffer);
                return Some(Err(DriverError::Lost(super::REPLACED.to_owned())));
            }
        }
        Some(created)
    }

    /// Submits work as [`Driver::submit`] does, and takes note of how far that went.
    pub(crate) fn submit(&self, ops: &[Op], params: &[u8]) -> DriverResult<Submission> {
        let submission = self.driver.submit(ops, params)?;
        self.ledger.submitted(submission.serial);
        Ok(submission)
    }

    /// As [`destroy_buffer`](Self::destroy_buffer), for a buffer that whatever was submitted so far
    /// may still use.
    pub(crate) fn destroy_in_use(&self, buffer: BufferId) {
        self.destroy_buffer(buffer, self.ledger.last_serial());
    }

    /// Gives a buffer back. Its bytes count as *retiring* until submission `last_serial`, the last
    /// to name it, is done; 0 for none. A buffer of the app's is no concern of the account.
    pub(crate) fn destroy_buffer(&self, buffer: BufferId, last_serial: u64) {
        self.driver.destroy_buffer(buffer);
        let completed = self.driver.completed();
        self.ledger.destroyed(buffer, last_serial, completed);
    }

    /// Takes note of what the device has let go of since the last time. Returns how many bytes
    /// that freed.
    pub(crate) fn settle(&self) -> u64 {
        self.ledger.settle(self.driver.completed())
    }
}

/// Bytes that are reserved until somebody owns them.
struct Reserved<'a> {
    ledger: &'a Ledger,
    account: Account,
    size_bytes: u64,
    epoch: u64,
}

impl Reserved<'_> {
    /// They are a buffer's now; or they are given back, since the device has been replaced
    /// meanwhile.
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
