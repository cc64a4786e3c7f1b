//! The driver over wgpu.

/// A device of wgpu.
#[derive(Debug)]
pub(crate) struct WgpuDriver {}
