//! The number of ops in a submission, and the last submission.

use crate::driver::{Device, Submission};

/// The most ops of a submission. So the device gets work early, and no watchdog ends a submission.
const MAX_BATCH_OPS: usize = 256;

/// The most ops of the first submission to an idle device. Each later submission may have twice as
/// many.
const FIRST_BATCH_OPS: usize = 32;

/// The sizes of submissions.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The most ops of any submission.
    most_ops: usize,
    /// The most ops of the next submission. It starts small when the device is idle, and grows.
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
    /// The most ops of the next submission.
    #[inline]
    pub(crate) fn most_ops(&self) -> usize {
        self.most_ops.min(self.next_ops)
    }

    /// Submits every later command alone.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn submit_each(&mut self) {
        self.most_ops = 1;
    }

    /// Whether every command is submitted alone.
    pub(crate) fn submits_each(&self) -> bool {
        self.most_ops == 1
    }

    /// Makes the next submission small, so that an idle device gets work early.
    pub(crate) fn begin_early(&mut self) {
        self.next_ops = FIRST_BATCH_OPS;
    }

    /// Lets the next submission be larger than the last.
    pub(crate) fn grow(&mut self) {
        self.next_ops = (2 * self.next_ops).min(MAX_BATCH_OPS);
    }

    /// Notes the last submission.
    pub(crate) fn submitted(&mut self, submission: Submission) {
        self.last = Some(submission);
    }

    pub(crate) fn last(&self) -> Option<&Submission> {
        self.last.as_ref()
    }

    /// Forgets the last submission, because its device is gone.
    pub(crate) fn forget(&mut self) {
        self.last = None;
    }

    /// Whether the device has finished all submissions, as far as the engine has noticed.
    pub(crate) fn is_idle(&self, driver: &Device) -> bool {
        let last = self.last.as_ref();
        last.is_none_or(|last| last.serial <= driver.completed())
    }
}
