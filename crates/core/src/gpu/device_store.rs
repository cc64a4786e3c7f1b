//! The memory of another device as a store.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::Gpu;
use crate::buffer::Buffer;
use crate::engine::shares;
use crate::error::{Error, Result, StoreFailure};
use crate::memory::Share;
use crate::transfer::{Key, Store};

/// The memory of another device: what one device evicts are buffers of the other.
///
/// They are in a [best-effort](Share::best_effort) share of that device. So it lends what its own
/// work does not need, and takes it back as soon as that work needs it. Then it evicts these
/// buffers to its own tiers, and they are read from there. So it lends no more than its own host,
/// stores and disk have room for: the rest could not be taken back.
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
    share: Gpu,
    values: Mutex<HashMap<Key, Buffer>>,
}

impl DeviceStore {
    /// A store in the memory of this device, or of its share. The tier says how much it may hold.
    ///
    /// # Errors
    /// [`Error::Share`] within a share that is closed, and [`Error::DeviceLost`].
    pub fn new(gpu: &Gpu) -> Result<DeviceStore> {
        Ok(DeviceStore {
            share: gpu.share("lent to another device", Share::best_effort())?,
            values: Mutex::default(),
        })
    }
}

impl Store for DeviceStore {
    fn write(&self, key: Key, bytes: &[u8]) -> Result<(), StoreFailure> {
        if !shares::could_leave(self.share.engine(), bytes.len() as u64) {
            return Err(StoreFailure::Full);
        }
        let value = self.share.buffer_from(bytes).map_err(failure)?;
        value.force().map_err(failure)?;
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
        match read.map_err(failure)? {
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

fn failure(error: Error) -> StoreFailure {
    match error {
        Error::OutOfMemory(_) | Error::NeverFits { .. } => StoreFailure::Full,
        Error::DeviceLost { .. } => StoreFailure::Gone(error.to_string()),
        Error::Poisoned { .. } => StoreFailure::Damaged(error.to_string()),
        error => StoreFailure::Other(error.to_string()),
    }
}
