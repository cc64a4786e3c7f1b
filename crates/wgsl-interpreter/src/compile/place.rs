//! The place of a variable, or of a part of it.

use crate::code::{Address, Reg, Space};

/// The target of a pointer.
#[derive(Clone, Debug)]
pub(super) struct Pointee {
    pub(super) space: Space,
    /// In words, or in bytes of a buffer.
    pub(super) at: u32,
    pub(super) dynamic: Reg,
    /// The variable, in [`Code::names`](crate::code::Code::names).
    pub(super) name: u32,
    /// Whether a part of it may be read before it was written.
    pub(super) is_tracked: bool,
}

impl Pointee {
    pub(super) fn address(&self) -> Address {
        Address {
            at: self.at,
            dynamic: self.dynamic,
        }
    }

    pub(super) fn is_buffer(&self) -> bool {
        matches!(self.space, Space::Buffer(_))
    }
}
