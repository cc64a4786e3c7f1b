//! Values that a recorded operation needs for its backward.

use std::panic::Location;
use std::sync::Arc;

use super::line;
use crate::tensor::Tensor;
use crate::tensor::layout::Layout;
use lapidary_core::internal::{Engine, Storage};
use lapidary_core::{DType, Error, Result};

/// A tensor whose elements must stay as they are until the backward. It has no history and no
/// device, which both may hold it.
#[derive(Debug)]
pub(crate) struct Saved {
    storage: Arc<Storage>,
    layout: Layout,
    dtype: DType,
    version: u64,
}

impl Tensor {
    /// Its elements, for a node to hold until its backward.
    pub(crate) fn saved(&self) -> Saved {
        let storage = self.engine.storage_here(&self.storage).clone();
        storage.save();
        Saved {
            layout: self.layout.clone(),
            dtype: self.dtype,
            version: storage.version(),
            storage,
        }
    }
}

impl Clone for Saved {
    fn clone(&self) -> Self {
        self.storage.save();
        Saved {
            storage: Arc::clone(&self.storage),
            layout: self.layout.clone(),
            ..*self
        }
    }
}

impl Saved {
    /// Are these elements of this storage?
    pub(super) fn is_of(&self, storage: &Arc<Storage>) -> bool {
        Arc::ptr_eq(&self.storage, storage)
    }

    /// The tensor, unless something was written to its memory meanwhile.
    pub(crate) fn get(
        &self,
        engine: &Arc<Engine>,
        operation: &'static str,
        recorded_at: &'static Location<'static>,
    ) -> Result<Tensor> {
        if self.storage.version() == self.version {
            let (storage, layout) = (Arc::clone(&self.storage), self.layout.clone());
            return Ok(Tensor::from_parts(engine, storage, layout, self.dtype).detached());
        }
        let written = match self.storage.written_at() {
            Some(at) => format!("{} wrote to it", line(at)),
            None => "an upload or a command of the app wrote to it".into(),
        };
        Err(Error::Gradient {
            operation: "backward",
            reason: format!(
                "`{operation}`, recorded at {}, needs the tensor made at {}, but {written} since. \
                 Write to a copy, or after backward",
                line(recorded_at),
                self.storage.tag(),
            ),
        })
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        self.storage.unsave();
    }
}
