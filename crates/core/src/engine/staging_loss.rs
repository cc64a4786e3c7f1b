//! What was staged on a device that has been replaced since.

use std::sync::Arc;

use super::cmd::Cmd;
use crate::error::Error;

/// Which uploads were lost with a device, and why.
#[derive(Clone, Debug, Default)]
pub(super) struct StagingLoss {
    /// What was staged before this epoch is lost, ...
    epoch: u64,
    /// ... for this reason.
    cause: Option<Arc<Error>>,
}

impl StagingLoss {
    /// What was staged before this epoch is lost.
    pub(super) fn lost(&mut self, epoch: u64, cause: Arc<Error>) {
        self.epoch = epoch;
        self.cause = Some(cause);
    }

    /// An upload whose bytes are lost becomes one without a value.
    pub(super) fn apply(&self, cmd: &mut Cmd) {
        if let (Cmd::Upload { dst, region, .. }, Some(cause)) = (&*cmd, &self.cause) {
            if region.epoch < self.epoch {
                let (dst, cause) = (dst.clone(), cause.clone());
                *cmd = Cmd::Poison { dst, cause };
            }
        }
    }
}
