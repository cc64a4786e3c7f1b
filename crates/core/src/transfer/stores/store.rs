//! What an app gives: a store, which keeps values under keys.

use std::fmt;
use std::sync::Arc;

use crate::error::StoreFailure;
use crate::units::MIB;

/// No value is larger.
pub const MOST_VALUE_BYTES: u64 = MIB;

/// The name of a value in a store: 16 bytes that no other value has, also of another process.
///
/// It prints as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// A random number, the same for all values of a device.
    pub(super) run: u64,
    pub(super) number: u64,
}

impl Key {
    /// The bytes of the key.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.run) << 64 | u128::from(self.number)).to_be_bytes()
    }

    /// The key of the part with this number, if this is the key of the first part.
    pub(super) fn of_part(self, part: u32) -> Key {
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
/// block. If it takes longer than [`StoreTier::timeout`](super::StoreTier::timeout), the engine
/// goes on without the result. The store gets its next call when this one returns. A call should
/// end some day: the thread and at most 1 MiB wait for it. A panic counts as a failure.
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
    /// [`StoreFailure::NotFound`] without a value, [`StoreFailure::Damaged`] for one of another
    /// length, and [`StoreFailure::Lost`] if what held it is gone: then the bytes are lost. After
    /// any other failure the engine reads again: at once, but for [`StoreFailure::Later`] only when
    /// the bytes are wanted again.
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
