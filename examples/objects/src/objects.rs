//! An object store as a store of lapidary.

use std::sync::Arc;

use lapidary::stores::{Key, Store, StoreFailure};
use object_store::path::Path;
use object_store::{Error, ObjectStore};

/// Keeps each value as an object, `lapidary/` and its key.
///
/// `pollster` waits for the calls, which is enough for a folder and for memory. A store on the
/// network also wants a runtime of `tokio`: wait with its `Handle::block_on`. Objects of a process
/// that was killed stay, so let the store expire what is old.
#[derive(Debug)]
pub(crate) struct Objects(Arc<dyn ObjectStore>);

impl Objects {
    pub(crate) fn new(store: Arc<dyn ObjectStore>) -> Objects {
        Objects(store)
    }

    /// The number of objects.
    pub(crate) fn count(&self) -> Result<usize, StoreFailure> {
        let folder = Path::from("lapidary");
        let listed = pollster::block_on(self.0.list_with_delimiter(Some(&folder)));
        listed.map(|listed| listed.objects.len()).map_err(failure)
    }
}

impl Store for Objects {
    fn write(&self, key: Key, bytes: &[u8]) -> Result<(), StoreFailure> {
        let path = path(key);
        let written = self.0.put(&path, bytes.to_vec().into());
        pollster::block_on(written).map(drop).map_err(failure)
    }

    fn read(&self, key: Key, bytes: &mut [u8]) -> Result<(), StoreFailure> {
        let read = async { self.0.get(&path(key)).await?.bytes().await };
        let value = pollster::block_on(read).map_err(failure)?;
        if value.len() != bytes.len() {
            let reason = format!("{} bytes instead of {}", value.len(), bytes.len());
            return Err(StoreFailure::Damaged(reason));
        }
        bytes.copy_from_slice(&value);
        Ok(())
    }

    fn remove(&self, key: Key) -> Result<(), StoreFailure> {
        let path = path(key);
        let removed = self.0.delete(&path);
        pollster::block_on(removed).map_err(failure)
    }
}

fn path(key: Key) -> Path {
    Path::from(format!("lapidary/{key}"))
}

fn failure(error: Error) -> StoreFailure {
    match error {
        Error::NotFound { .. } => StoreFailure::NotFound,
        other => StoreFailure::Other(other.to_string()),
    }
}
