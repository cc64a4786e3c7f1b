//! Bytes between host and device: staging for uploads, buffers for reading back.
//!
//! Both are bounded and reused: after a few rounds a steady loop creates no buffer here. This
//! room knows the driver and nothing of tensors; the engine decides when a copy is encoded.

mod readback;
mod upload;

pub(crate) use readback::{Piece, Readbacks, Reading, Sink};
pub(crate) use upload::{Region, Uploads};
