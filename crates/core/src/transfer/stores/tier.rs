//! A store with its limits, as the app names it in its options.

use std::sync::Arc;
use std::time::Duration;

use super::ledger::NAME_COLUMNS;
use super::store::Store;
use crate::error::{Error, Result};
use crate::printable::printable;

/// Most stores of a device.
pub(crate) const MOST_STORES: usize = 4;

const TIMEOUT: Duration = Duration::from_secs(2);

/// A store as a tier of evicted tensors: see [`Options::stores`](crate::Options::stores).
#[derive(Clone)]
pub struct StoreTier {
    pub(super) name: String,
    pub(super) store: Arc<dyn Store>,
    pub(super) most_bytes: u64,
    pub(super) timeout: Duration,
}

impl StoreTier {
    /// A tier of at most `most_bytes` in a store. Reports and errors show the first 24 letters of
    /// the name.
    pub fn new(name: impl Into<String>, store: impl Store + 'static, most_bytes: u64) -> StoreTier {
        StoreTier {
            name: printable(&name.into(), NAME_COLUMNS),
            store: Arc::new(store),
            most_bytes,
            timeout: TIMEOUT,
        }
    }

    /// Sets how long the engine waits for a call of the store: 2 s by default, an hour at most.
    ///
    /// After a time-out, or three other failures in a row, the store rests for five times as long.
    /// Meanwhile nothing is evicted to it, and reads from it fail at once. Then one call tries it
    /// again. A full store rests likewise, but is still read.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> StoreTier {
        StoreTier { timeout, ..self }
    }

    /// Checks the tiers of a device.
    ///
    /// # Errors
    /// [`Error::Option`] for too many tiers, for a time-out of 0, and for any tier in a browser.
    pub(crate) fn check_all(tiers: &[StoreTier]) -> Result<()> {
        let reason = if tiers.is_empty() {
            return Ok(());
        } else if cfg!(target_arch = "wasm32") {
            "a browser gives the engine no thread that could wait for a store".into()
        } else if tiers.len() > MOST_STORES {
            format!("{} stores, at most {MOST_STORES}", tiers.len())
        } else if tiers.iter().any(|tier| tier.timeout.is_zero()) {
            "a time-out of 0 leaves a store no time to answer".into()
        } else {
            return Ok(());
        };
        Err(Error::option("stores", reason))
    }
}

debug_by_name!(StoreTier {
    name,
    most_bytes,
    timeout
});

/// Two tiers are equal if they have the same name and limits, and share the store itself.
impl PartialEq for StoreTier {
    fn eq(&self, other: &StoreTier) -> bool {
        let numbers = |tier: &StoreTier| (tier.most_bytes, tier.timeout);
        self.name == other.name
            && numbers(self) == numbers(other)
            && Arc::ptr_eq(&self.store, &other.store)
    }
}

impl Eq for StoreTier {}
