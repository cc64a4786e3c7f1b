//! Where a storage lies.

use crate::driver::{At, BufferId};

/// Where a storage's bytes are at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) buffer: BufferId,
    /// A multiple of the device's storage offset alignment.
    pub(crate) offset_bytes: u64,
    /// Index of the slab; `None` in an imported buffer.
    pub(super) slab: Option<u32>,
}

impl Place {
    /// A place in a buffer that is no slab.
    #[cfg(test)]
    pub(crate) fn new(buffer: BufferId, offset_bytes: u64) -> Place {
        let slab = None;
        Place {
            buffer,
            offset_bytes,
            slab,
        }
    }

    /// The part from so many bytes on.
    pub(crate) fn from(self, bytes: u64) -> Place {
        let offset_bytes = self.offset_bytes + bytes;
        Place {
            offset_bytes,
            ..self
        }
    }

    /// The place so many bytes further on.
    pub(crate) fn at(self, bytes: u64) -> At {
        At(self.buffer, self.offset_bytes + bytes)
    }
}

/// The memory in which slabs lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heap {
    Device,
    Host,
}

/// The holes that a request may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HoleChoice {
    /// The holes that the pools keep for its size.
    #[default]
    Best,
    /// Any hole, in a slab of any class, because no slab can be created.
    Anywhere,
}
