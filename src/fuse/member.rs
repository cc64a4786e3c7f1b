//! A launch that may be fused, and the limits of the kernel that it becomes a part of.

use std::sync::Arc;

use crate::ops::elementwise::element::Seen;
use lapidary_core::adapter::AdapterKind;
use lapidary_core::internal::{Arg, Launch};

/// A launch that may be fused.
#[derive(Debug)]
pub(super) struct Member {
    /// Its position among the recorded commands.
    pub(super) order: usize,
    pub(super) launch: Launch,
    pub(super) seen: Seen,
    pub(super) section: &'static str,
    pub(super) uses_scalars: [bool; 2],
}

/// The limits of one kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) kind: AdapterKind,
    pub(super) wide_words: bool,
    pub(super) window_bytes: u64,
    pub(super) windows: u64,
    /// Most bytes of all operands together.
    pub(super) bytes: u64,
}

impl Limits {
    pub(super) fn allow(&self, args: &[Arg]) -> bool {
        let (mut bytes, mut windows) = (0_u64, 0);
        for (index, arg) in args.iter().enumerate() {
            let mut before = args[..index].iter();
            if !before.any(|other| Arc::ptr_eq(&other.storage, &arg.storage)) {
                let size_bytes = arg.storage.size_bytes();
                bytes = bytes.saturating_add(size_bytes);
                windows += size_bytes.div_ceil(self.window_bytes);
            }
        }
        windows <= self.windows && bytes <= self.bytes
    }
}
