//! Values that a recorded operation needs for its backward.

use std::panic::Location;
use std::sync::Arc;

use super::line;
use crate::tensor::Tensor;
use crate::tensor::layout::Layout;
use lapidary_core::internal::{Engine, Handle, Storage};
use lapidary_core::{DType, Error, Result};

/// A tensor whose elements must stay as they are until the backward. It has no history and no
/// device, which both may hold it.
#[derive(Debug)]
pub(crate) struct Saved {
    storage: Handle<Storage>,
    layout: Layout,
    dtype: DType,
    version: u64,
}

impl Tensor {
    /// Its elements, for a node to hold until its backward.
    pub(crate) fn saved(&self) -> Saved {
        let storage = self.storage.clone().resolved();
        storage.own().save();
        Saved {
            layout: self.layout.clone(),
            dtype: self.dtype,
            version: storage.own().version(),
            storage,
        }
    }
}

impl Clone for Saved {
    fn clone(&self) -> Self {
        self.storage.own().save();
        Saved {
            storage: self.storage.clone(),
            layout: self.layout.clone(),
            ..*self
        }
    }
}

impl Saved {
    /// Are these elements of this storage?
    pub(super) fn is_of(&self, storage: &Arc<Storage>) -> bool {
        Arc::ptr_eq(self.storage.own(), storage)
    }

    /// The tensor, unless something was written to its memory meanwhile.
    pub(crate) fn get(
        &self,
        engine: &Handle<Engine>,
        operation: &'static str,
        recorded_at: &'static Location<'static>,
    ) -> Result<Tensor> {
        // Not of a fake: that counts from 0.
        if self.storage.own().version() == self.version {
            let (storage, layout) = (self.storage.clone(), self.layout.clone());
            return Ok(Tensor::from_parts(engine, storage, layout, self.dtype).detached());
        }
        let written = match self.storage.own().written_at() {
            Some(at) => format!("{} wrote to it", line(at)),
            None => "an upload or a command of the app wrote to it".into(),
        };
        Err(Error::Gradient {
            operation: "backward",
            reason: format!(
                "`{operation}`, recorded at {}, needs the tensor made at {}, but {written} since. \
                 Write to a copy, or after backward",
                line(recorded_at),
                self.storage.own().tag(),
            ),
        })
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        self.storage.own().unsave();
    }
}
