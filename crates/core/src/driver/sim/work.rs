//! What a submission does: copies, clears, and compiled kernels on the ranges bound to them.

use std::ops::Range;
use std::sync::Arc;

use super::interpreted::Interpreted;
use crate::driver::{At, Binding, BindingAccess, PipelineId, ReferenceKernel};

/// A compiled kernel.
#[derive(Clone)]
pub(super) struct Pipeline {
    pub(super) label: String,
    pub(super) bindings: Vec<BindingAccess>,
    pub(super) params_bytes: u32,
    pub(super) work: Work,
}

/// The way in which a dispatch computes.
#[derive(Clone)]
pub(super) enum Work {
    /// No computation: buffers have only sizes.
    Nothing,
    Reference(ReferenceKernel),
    Wgsl(Arc<Interpreted>),
}

/// Ranges bound to a kernel.
pub(super) struct BoundRanges {
    pub(super) pipeline: PipelineId,
    pub(super) bindings: Arc<[Binding]>,
}

/// An op that owns all that it needs, so that it can run after its kernel and bind group were
/// destroyed.
#[derive(Clone)]
pub(super) enum Step {
    Copy(At, At, u64),
    Clear(At, u64),
    /// Writes a range of the parameter bytes.
    Write(At, Range<usize>),
    Dispatch {
        kernel: Arc<Pipeline>,
        bindings: Arc<[Binding]>,
        params: Range<usize>,
        groups: [u32; 3],
    },
}

impl Step {
    /// Whether its WGSL is interpreted. Then it is executed during its submission, so that the
    /// submission returns its faults.
    pub(super) fn is_interpreted(&self) -> bool {
        matches!(self, Step::Dispatch { kernel, .. } if matches!(kernel.work, Work::Wgsl(_)))
    }
}
