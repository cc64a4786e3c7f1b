//! Jobs: work that is admitted when the memory that it needs is free.
//!
//! A job says its peak. It runs in a share of its own, with the peak as its guarantee and its
//! ceiling. `plan` decides in numbers which jobs run. `list` gives them shares and wakes those that
//! wait.

mod job;
mod list;
mod plan;

use std::ops::Deref;

#[cfg(doc)]
use crate::Error;
use crate::error::Result;
use crate::gpu::Gpu;

pub use job::{Job, JobUse};
use list::Entered;
pub(crate) use list::{Board, JobList};

/// Admits jobs to the memory of a handle: of a device, or of a share of it. From
/// [`Gpu::jobs`](crate::Gpu::jobs); all clones and all handles of the same share have one list.
///
/// - Jobs whose peaks fit together run together. The order is that of priority, then deadline, then
///   arrival. A job may pass an earlier one that does not fit yet, or has no deadline. But a job
///   that was passed 32 times lets none of its priority or a lower one pass.
/// - Work of a higher priority goes first, always: under a steady stream of it, jobs of lower
///   priorities wait. A job does not wait for running ones of a lower priority. They go on, and
///   their buffers are evicted for it. They are guaranteed less meanwhile, and so are the shares
///   within them, the youngest first.
/// - The memory of all jobs is what the device's budget leaves beside the guarantees of other
///   shares. On the handle of a share, it is that share's guarantee.
///
/// ```
/// use lapidary_core::jobs::Job;
/// # fn demo(gpu: &lapidary_core::Gpu) -> lapidary_core::Result<()> {
///
/// let running = gpu.jobs().admit(Job::new("thumbnails", 64 << 20).with_priority(-1))?;
/// let pixels = running.buffer_zeroed(16 << 20)?; // a `Running` is a handle
/// drop(running); // the next job may begin
/// # Ok(()) }
/// ```
///
/// `G` is the handle that a job gets: that of this crate, or of one above it.
#[derive(Clone, Debug)]
pub struct Jobs<G = Gpu> {
    list: JobList,
    over: fn(Gpu) -> G,
}

impl<G> Jobs<G> {
    pub(crate) fn new(list: JobList, over: fn(Gpu) -> G) -> Jobs<G> {
        Jobs { list, over }
    }

    fn running(&self, (entered, gpu): (Entered, Gpu)) -> Running<G> {
        let gpu = (self.over)(gpu);
        Running { entered, gpu }
    }

    /// Waits until a job may run.
    ///
    /// It also waits for memory that others have pinned, or hold without another place for it.
    ///
    /// # Errors
    /// [`Error::NeverFits`] for a peak beyond the memory of all jobs, also if that falls below the
    /// peak while the job waits. [`Error::Share`] if its deadline passes, it is cancelled, or the
    /// share around it is closed while it waits, and for its name as [`Gpu::share`]. The same in a
    /// [dry run](Gpu::dry_run), unless this list is that of its handle. [`Error::Option`] on a
    /// device without a budget. [`Error::Reentered`] inside a function of the app that the engine
    /// called, as nothing can wait there. [`Error::DeviceLost`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn admit(&self, job: Job) -> Result<Running<G>> {
        Ok(self.running(self.list.admit(job)?))
    }

    /// As [`admit`](Self::admit), as a future: the only form in a browser. It does not block the
    /// thread that polls it. A deadline, or a budget that was raised, is noticed when another job
    /// begins to wait or ends, and by [`Gpu::poll`].
    pub async fn admit_async(&self, job: Job) -> Result<Running<G>> {
        Ok(self.running(self.list.admit_async(job).await?))
    }

    /// The jobs that wait and those that run, in the order of their arrival.
    pub fn list(&self) -> Vec<JobUse> {
        self.list.list()
    }

    /// Cancels a job. If it waits, it is not admitted. If it runs, none of its commands runs after
    /// this, and its calls are errors. It is in no list any more, and the next job may begin.
    /// `false` if there is no such job.
    pub fn cancel(&self, id: u64) -> bool {
        self.list.cancel(id)
    }
}

/// An admitted job: a [`Gpu`] of the job's share. The job ends when this is dropped. Buffers that
/// live on then are guaranteed nothing.
///
/// `G` is the handle that it gives: that of this crate, or of one above it.
#[derive(Debug)]
pub struct Running<G = Gpu> {
    /// Dropped before the handle, which may be the last one of the share.
    entered: Entered,
    gpu: G,
}

impl<G> Running<G> {
    /// The number of the job, for [`Jobs::cancel`].
    pub fn id(&self) -> u64 {
        self.entered.id()
    }
}

impl<G> Deref for Running<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.gpu
    }
}
