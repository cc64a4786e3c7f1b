//! How many ops a submission has, and what was submitted last.

use crate::driver::{Device, Submission};

/// Ops of one submission, at most: the device has work early, and stays clear of watchdogs.
const MAX_BATCH_OPS: usize = 256;

/// Ops of the first submission to a device that has nothing to do; each one after it may have twice
/// as many as the one before.
const FIRST_BATCH_OPS: usize = 32;

/// When the device is given work.
#[derive(Debug)]
pub(super) struct Pace {
    /// Ops of one submission, at most.
    most_ops: usize,
    /// Ops of the next submission, while the device waits for work: few at first, then more.
    next_ops: usize,
    last: Option<Submission>,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            most_ops: MAX_BATCH_OPS,
            next_ops: MAX_BATCH_OPS,
            last: None,
        }
    }
}

impl Pace {
    /// Ops of the next submission, at most.
    #[inline]
    pub(super) fn most_ops(&self) -> usize {
        self.most_ops.min(self.next_ops)
    }

    /// From now on every command is submitted alone.
    #[cfg(any(test, feature = "sim"))]
    pub(super) fn submit_each(&mut self) {
        self.most_ops = 1;
    }

    /// Is every command submitted alone?
    pub(super) fn submits_each(&self) -> bool {
        self.most_ops == 1
    }

    /// The device has nothing to do: it gets little at first, so that it gets it early.
    pub(super) fn begin_early(&mut self) {
        self.next_ops = FIRST_BATCH_OPS;
    }

    /// A batch was submitted: the next one may be larger.
    pub(super) fn grow(&mut self) {
        self.next_ops = (2 * self.next_ops).min(MAX_BATCH_OPS);
    }

    /// This was submitted.
    pub(super) fn submitted(&mut self, submission: Submission) {
        self.last = Some(submission);
    }

    pub(super) fn last(&self) -> Option<&Submission> {
        self.last.as_ref()
    }

    /// The device is gone, and all that it had to do.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    /// Is all done that was submitted, as far as that was noticed?
    pub(super) fn is_idle(&self, driver: &Device) -> bool {
        let last = self.last.as_ref();
        last.is_none_or(|last| last.serial <= driver.completed())
    }
}
