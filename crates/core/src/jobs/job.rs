//! What the app says of a job, and what it is told: names, numbers and reasons.

use std::fmt;
use std::time::Duration;

#[cfg(doc)]
use super::Jobs;
use super::plan::{Plan, Reason};
use crate::engine::shares::{self, Unmet};
use crate::error::Error;
use crate::memory::{ShareOptions, share_error};
use crate::printable::printable;
use crate::units::Bytes;

/// What a job needs: see [`Jobs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub(super) name: String,
    pub(super) peak_bytes: u64,
    pub(super) priority: i8,
    pub(super) deadline: Option<Duration>,
}

impl Job {
    /// A job that holds at most `peak_bytes` on the device at once. A dry run finds that number:
    /// [`DryRun::peak_added_bytes`](crate::stats::DryRun::peak_added_bytes). Its program returns
    /// what the job has at its end, so that this counts.
    ///
    /// The job is held to it: it evicts its own buffers to stay below, and an operation that needs
    /// more is an error. Other jobs notice nothing. A job with a peak of 0 has no buffers of its
    /// own.
    pub fn new(name: &str, peak_bytes: u64) -> Job {
        Job {
            name: name.to_owned(),
            peak_bytes,
            priority: 0,
            deadline: None,
        }
    }

    /// The same with this priority. A job with a higher one is admitted before, and its commands
    /// run first. It takes memory from running jobs with a lower one, whose buffers are evicted.
    pub fn with_priority(self, priority: i8) -> Job {
        Job { priority, ..self }
    }

    /// The same with a deadline, from the call that asks for admission on. Among jobs of one
    /// priority the earlier deadline goes first. A job that still waits then is an error.
    pub fn with_deadline(self, deadline: Duration) -> Job {
        Job {
            deadline: Some(deadline),
            ..self
        }
    }
}

/// Lists show only the beginning of a longer name, as errors do.
const NAME_COLUMNS: usize = 60;

/// What a job does: one row of [`Jobs::list`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobUse {
    /// The number of the job, for [`Jobs::cancel`].
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its peak, in bytes.
    pub peak_bytes: u64,
    /// Its priority.
    pub priority: i8,
    /// What it is guaranteed now: its peak or, below jobs of a higher priority, what these leave.
    /// `None` while it waits.
    ///
    /// Memory that others have pinned may keep it lower when such a job ends. Then it rises when
    /// another job begins to wait or ends, or at a [`Gpu::poll`](crate::Gpu::poll).
    pub guaranteed_bytes: Option<u64>,
    /// Why it waits, with the numbers. `None` while it runs.
    pub waits_because: Option<String>,
}

impl Job {
    /// The error of a peak beyond the memory of all jobs.
    pub(super) fn never_fits(&self, capacity_bytes: u64) -> Error {
        Error::never_fits(
            "a job",
            self.peak_bytes,
            capacity_bytes,
            "All jobs together have that much memory. Raise the budget or the guarantee, or \
                   split the job",
        )
    }

    /// The error of this job, for this reason.
    pub(super) fn error(&self, reason: impl Into<String>) -> Error {
        share_error(&self.name, reason)
    }

    /// The share that it runs in.
    pub(super) fn share(&self, guaranteed_bytes: u64) -> ShareOptions {
        ShareOptions::guaranteed(guaranteed_bytes)
            .with_ceiling(self.peak_bytes.max(1))
            .with_priority(self.priority)
    }
}

impl Reason {
    /// Why a job waits. `unmet`: what was in its way, though it fits beside the other jobs.
    pub(super) fn text(&self, job: &Job, unmet: Option<Unmet>, plan: &Plan) -> String {
        let (peak, free) = (Bytes(job.peak_bytes), Bytes(self.free_bytes));
        let all = Bytes(plan.capacity_bytes);
        let before = match self.before {
            0 => String::new(),
            1 => "; 1 job is before it".into(),
            count => format!("; {count} jobs are before it"),
        };
        match (job.peak_bytes <= self.free_bytes, unmet) {
            (true, Some(unmet)) if !self.is_held_back => shares::in_the_way(unmet) + &before,
            (true, _) if self.is_held_back => format!(
                "it would fit, but a job before it was passed too often and comes first{before}"
            ),
            _ => format!(
                "it needs {peak}, and jobs of its priority and higher ones leave {free} of \
                 {all}{before}"
            ),
        }
    }
}

impl fmt::Display for JobUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = printable(&self.name, NAME_COLUMNS);
        write!(f, "{} {name}: {}", self.id, Bytes(self.peak_bytes))?;
        match (&self.waits_because, self.guaranteed_bytes) {
            (Some(why), _) => write!(f, ", waits: {why}"),
            (None, Some(bytes)) => write!(f, ", runs with {}", Bytes(bytes)),
            (None, None) => Ok(()),
        }
    }
}
