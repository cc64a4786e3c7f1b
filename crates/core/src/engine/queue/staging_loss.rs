//! Uploads whose staged bytes were lost with a device.

use std::sync::Arc;

use super::cmd::Cmd;
use crate::error::Error;

/// The loss of staged bytes with a device, and its cause.
#[derive(Clone, Debug, Default)]
pub(crate) struct StagingLoss {
    /// Bytes staged before this epoch are lost.
    epoch: u64,
    /// The cause of the loss.
    cause: Option<Arc<Error>>,
}

impl StagingLoss {
    /// Notes that bytes staged before this epoch are lost.
    pub(crate) fn lost(&mut self, epoch: u64, cause: Arc<Error>) {
        self.epoch = epoch;
        self.cause = Some(cause);
    }

    /// Replaces an upload whose bytes are lost by a command that poisons the target.
    pub(crate) fn apply(&self, cmd: &mut Cmd) {
        if let (Cmd::Upload { dst, region, .. }, Some(cause)) = (&*cmd, &self.cause) {
            if region.epoch < self.epoch {
                let (dst, cause) = (dst.clone(), cause.clone());
                *cmd = Cmd::Poison { dst, cause };
            }
        }
    }
}
