//! The budget as the engine keeps it: what the app said, and what became of it.

use std::sync::PoisonError;

use super::{Engine, block_on};
use crate::error::Result;
use crate::memory::Budget;
use crate::units::MIB;

/// Of the device's budget, one part in so many is kept for staging, ...
const STAGING_SHARE: u64 = 16;

/// ... but no more than this.
const STAGING_MOST_BYTES: u64 = 64 * MIB;

/// What the engine goes by besides the ledger's limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) budget: Budget,
    pub(super) soft_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            budget: Budget::default(),
            soft_bytes: u64::MAX,
        }
    }
}

impl Engine {
    pub(super) fn budget(&self) -> Limits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the limits. What is in use above them stays until [`shrink`](Self::shrink).
    pub(crate) fn set_budget(&self, budget: Budget) -> Result<()> {
        budget.check()?;
        let hard_bytes = budget.device_bytes.unwrap_or(u64::MAX);
        let staging_bytes = match budget.device_bytes {
            Some(bytes) => (bytes / STAGING_SHARE).min(STAGING_MOST_BYTES),
            None => 0,
        };
        let staging_bytes = budget.staging_bytes.unwrap_or(staging_bytes);
        self.driver.ledger().set_limit(hard_bytes, staging_bytes);
        self.host.set_limit(budget.host_bytes.unwrap_or(u64::MAX));
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.budget = budget;
        limits.soft_bytes = budget.soft_device_bytes.unwrap_or(u64::MAX);
        Ok(())
    }
}
