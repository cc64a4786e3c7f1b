//! Stores: memory outside of this machine, or anything else that keeps bytes under keys, as a tier
//! of evicted tensors between the host's memory and the disk.
//!
//! A [`Store`] of the app only writes, reads and removes values. The keys, the checksums and the
//! account are the engine's. A tensor is cut into parts of at most 1 MiB. Each part has a key and a
//! checksum, which stays in this process, so bytes are either right or not returned at all.
//!
//! ```text
//!   execution pass ─ writer, reader (`block`) ─► queue ─► thread of the store (`worker`) ─► Store
//!        waits with a time-out                    │
//!                       account and health (`ledger`): bytes in use, failures, rest
//! ```
//!
//! Each store has one thread, so a store that hangs holds up no other one. A pass waits for a call
//! no longer than the time-out. After that it goes on with the next tier, and the store rests.

mod block;
mod blocks;
mod ledger;
mod open;
#[cfg(feature = "redis")]
mod redis;
#[cfg(test)]
mod tests;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result, StoreFailure};
use crate::printable::printable;
use crate::units::MIB;

use blocks::Blocks;
pub(crate) use blocks::{OpenStore, StoreBlock, StoreReader, StoreWriter};
pub use ledger::StoreUse;
#[cfg(feature = "redis")]
pub use redis::RedisStore;

/// No value is larger.
pub const MOST_VALUE_BYTES: u64 = MIB;

/// Most stores of a device.
pub(crate) const MOST_STORES: usize = 4;

/// Reports show this much of a name.
const NAME_COLUMNS: usize = 24;

const TIMEOUT: Duration = Duration::from_secs(2);

/// The name of a value in a store: 16 bytes that no other value has, also of another process.
///
/// It prints as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// A random number, the same for all values of a device.
    run: u64,
    number: u64,
}

impl Key {
    /// The bytes of the key.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.run) << 64 | u128::from(self.number)).to_be_bytes()
    }

    /// The key of the part with this number, if this is the key of the first part.
    fn of_part(self, part: u32) -> Key {
        Key {
            number: self.number.wrapping_add(u64::from(part)),
            ..self
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.run, self.number)
    }
}

/// Keeps values under keys: in another node's memory, in an object store, wherever the app wants.
///
/// The engine calls a store on a thread that only serves this store, one call at a time. A call may
/// block. If it takes longer than [`StoreTier::timeout`], the engine goes on without the result.
/// The store gets its next call when this one returns. A call should end some day: the thread and
/// at most 1 MiB wait for it. A panic counts as a failure.
///
/// The engine has a checksum of every value. A store may lose or garble values: that concerns only
/// the tensors whose bytes they were. A store must not use the [`Gpu`](crate::Gpu) that it serves,
/// which would wait for the store.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
///
/// use lapidary_core::stores::{Key, Store, StoreFailure};
///
/// struct InMemory(Mutex<HashMap<Key, Vec<u8>>>);
///
/// impl Store for InMemory {
///     fn write(&self, key: Key, bytes: &[u8]) -> Result<(), StoreFailure> {
///         self.0.lock().unwrap().insert(key, bytes.to_vec());
///         Ok(())
///     }
///
///     fn read(&self, key: Key, bytes: &mut [u8]) -> Result<(), StoreFailure> {
///         let values = self.0.lock().unwrap();
///         let value = values.get(&key).ok_or(StoreFailure::NotFound)?;
///         if value.len() != bytes.len() {
///             return Err(StoreFailure::Damaged("another length".into()));
///         }
///         bytes.copy_from_slice(value);
///         Ok(())
///     }
///
///     fn remove(&self, key: Key) -> Result<(), StoreFailure> {
///         self.0.lock().unwrap().remove(&key);
///         Ok(())
///     }
/// }
/// ```
pub trait Store: Send + Sync {
    /// Keeps `bytes`, at most [`MOST_VALUE_BYTES`], under a key that has no value yet.
    ///
    /// # Errors
    /// Any failure. The engine then removes the key, because a part of the value may be there.
    fn write(&self, key: Key, bytes: &[u8]) -> Result<(), StoreFailure>;

    /// Fills `bytes`, which is as long as the value that was written.
    ///
    /// # Errors
    /// [`StoreFailure::NotFound`] without a value, and [`StoreFailure::Damaged`] for one of another
    /// length: then the bytes are lost. After any other failure the engine reads again.
    fn read(&self, key: Key, bytes: &mut [u8]) -> Result<(), StoreFailure>;

    /// Forgets a value. There may be none.
    ///
    /// # Errors
    /// Any failure. The engine tries again later. Until then the bytes count as used.
    fn remove(&self, key: Key) -> Result<(), StoreFailure>;
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn write(&self, key: Key, bytes: &[u8]) -> Result<(), StoreFailure> {
        (**self).write(key, bytes)
    }

    fn read(&self, key: Key, bytes: &mut [u8]) -> Result<(), StoreFailure> {
        (**self).read(key, bytes)
    }

    fn remove(&self, key: Key) -> Result<(), StoreFailure> {
        (**self).remove(key)
    }
}

/// A store as a tier of evicted tensors: see [`Options::stores`](crate::Options::stores).
#[derive(Clone)]
pub struct StoreTier {
    name: String,
    store: Arc<dyn Store>,
    most_bytes: u64,
    timeout: Duration,
    /// Opens the tier, or with `true` its twin for a dry run.
    open: fn(StoreTier, bool) -> Arc<dyn Blocks>,
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
            open: open::open,
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
        Err(Error::Option {
            option: "stores",
            reason,
        })
    }
}

impl fmt::Debug for StoreTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreTier")
            .field("name", &self.name)
            .field("most_bytes", &self.most_bytes)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

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
