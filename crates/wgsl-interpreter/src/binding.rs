//! A buffer of a dispatch.

/// A buffer of a dispatch. The kernel's declaration says whether it may be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The number of the bind group.
    pub group: u32,
    /// The number within the group.
    pub index: u32,
    /// The contents, in little-endian order.
    pub bytes: Vec<u8>,
    /// Whether the contents count as unwritten, so that a read before a write is a finding. The
    /// interpreter fills such a buffer with a pattern.
    pub is_fresh: bool,
}

impl Binding {
    /// A buffer with contents.
    pub fn new(group: u32, index: u32, bytes: Vec<u8>) -> Self {
        Binding {
            group,
            index,
            bytes,
            is_fresh: false,
        }
    }

    /// A buffer of `size_bytes` that the kernel has to write before it reads.
    pub fn fresh(group: u32, index: u32, size_bytes: usize) -> Self {
        Binding {
            is_fresh: true,
            ..Binding::new(group, index, vec![0; size_bytes])
        }
    }
}
