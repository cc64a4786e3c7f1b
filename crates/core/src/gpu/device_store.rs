//! The memory of another device as a store.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::{Gpu, Share};
use crate::buffer::Buffer;
use crate::engine::{recovery, shares};
use crate::error::{Error, Result, StoreFailure};
use crate::memory::{Kept, Residency, ShareOptions};
use crate::transfer::{Key, Store};

/// The memory of another device: what one device evicts are buffers of the other.
///
/// They are in a [best-effort](ShareOptions::best_effort) share of that device. So it lends what
/// its own work does not need, and takes it back as soon as that work needs it. Then it evicts
/// these buffers to its own tiers, and they are read from there. So it lends no more than its own
/// host, stores and disk have room for: the rest could not be taken back.
///
/// If that device is lost, so are the tensors whose bytes were only on it, or in its heap in the
/// host's memory ([`Options::host_heap`](crate::Options::host_heap)). What it had evicted to its
/// other tiers can be read again after its [`reopen`](Gpu::reopen).
///
/// ```no_run
/// use lapidary_core::stores::{DeviceStore, StoreTier};
/// use lapidary_core::{Gpu, Options};
///
/// # fn demo() -> lapidary_core::Result<()> {
/// let second = Gpu::open(Options { adapter: Some("second".into()), ..Options::default() })?;
/// let borrowed = StoreTier::new("second", DeviceStore::new(&second)?, 2 << 30);
/// let first = Gpu::open(Options { stores: vec![borrowed], ..Options::default() })?;
/// # let _ = first;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DeviceStore {
    share: Share,
    values: Mutex<HashMap<Key, Buffer>>,
}

impl DeviceStore {
    /// A store in the memory of this device, or of its share. The tier says how much it may hold.
    ///
    /// # Errors
    /// [`Error::Share`] within a share that is closed, and [`Error::DeviceLost`].
    pub fn new(gpu: &Gpu) -> Result<DeviceStore> {
        Ok(DeviceStore {
            share: gpu.share("lent to another device", ShareOptions::best_effort())?,
            values: Mutex::default(),
        })
    }
}

impl Store for DeviceStore {
    fn write(&self, key: Key, bytes: &[u8]) -> Result<(), StoreFailure> {
        if !shares::could_leave(&self.share.engine().here(), bytes.len() as u64) {
            return Err(StoreFailure::Full);
        }
        let value = self.share.buffer_from(bytes);
        let value = value.map_err(|error| self.refusal(error))?;
        value.force().map_err(|error| self.refusal(error))?;
        self.values.lock().insert(key, value);
        Ok(())
    }

    fn read(&self, key: Key, bytes: &mut [u8]) -> Result<(), StoreFailure> {
        let value = self.values.lock().get(&key).cloned();
        let value = value.ok_or(StoreFailure::NotFound)?;
        let read = value.read_with(|found: &[u8]| {
            let fits = found.len() == bytes.len();
            if fits {
                bytes.copy_from_slice(found);
            }
            fits
        });
        match read.map_err(|error| self.loss(&value, &error).unwrap_or_else(|| failure(error)))? {
            true => Ok(()),
            false => Err(StoreFailure::Damaged("another length".into())),
        }
    }

    fn remove(&self, key: Key) -> Result<(), StoreFailure> {
        // The lock is released before the buffer is.
        let value = self.values.lock().remove(&key);
        drop(value);
        Ok(())
    }
}

impl DeviceStore {
    /// What a loss of the device means for a value that cannot be read. `None` if the error has
    /// another cause, or if the device was reopened meanwhile.
    fn loss(&self, value: &Buffer, error: &Error) -> Option<StoreFailure> {
        let Error::DeviceLost { reason } = cause(error) else {
            return None;
        };
        let lost = self.was_lost(reason);
        match recovery::kept_in_loss(&value.engine().here(), &value.storage().here()) {
            Ok(Some(kept)) if !kept.is_nothing() => {
                let place = match kept {
                    Kept { on_host: true, .. } => "in its host's memory",
                    Kept {
                        in_store: Some(_), ..
                    } => "in a store of its own",
                    _ => "on its disk",
                };
                let why = format!("{lost}. The bytes are {place}: call its `reopen`");
                Some(StoreFailure::Later(why))
            }
            Ok(Some(_)) => Some(StoreFailure::Lost(lost)),
            Ok(None) if value.residency() == Residency::Poisoned => Some(StoreFailure::Lost(lost)),
            _ => None,
        }
    }

    fn was_lost(&self, reason: &str) -> String {
        format!("the device `{}` was lost: {reason}", self.share.caps().name)
    }

    /// Why a value could not be written.
    fn refusal(&self, error: Error) -> StoreFailure {
        match cause(&error) {
            Error::DeviceLost { reason } => {
                let lost = self.was_lost(reason);
                StoreFailure::Later(format!("{lost}. It lends again after its `reopen`"))
            }
            // What was to be written has no value there. It is still where it was.
            Error::Poisoned { .. } => StoreFailure::Other(error.to_string()),
            _ => failure(error),
        }
    }
}

/// The error itself, or why a buffer has no value.
fn cause(error: &Error) -> &Error {
    match error {
        Error::Poisoned { cause, .. } => cause,
        error => error,
    }
}

fn failure(error: Error) -> StoreFailure {
    match error {
        Error::OutOfMemory(_) | Error::NeverFits { .. } => StoreFailure::Full,
        // It was reopened meanwhile: the engine asks again.
        Error::DeviceLost { .. } => StoreFailure::Gone(error.to_string()),
        Error::Poisoned { .. } => StoreFailure::Damaged(error.to_string()),
        // The device had evicted the value to a store of its own.
        Error::Store(error) => error.failure.clone(),
        error => StoreFailure::Other(error.to_string()),
    }
}
