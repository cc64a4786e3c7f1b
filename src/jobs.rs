//! Jobs: work that is admitted when the memory that it needs is free: see [`Jobs`].

use lapidary_core::Result;
pub use lapidary_core::jobs::{Job, JobUse};

use crate::gpu::Gpu;

/// Admits jobs to the memory of a handle: see [`lapidary_core::jobs::Jobs`].
///
/// ```no_run
/// use lapidary::DType;
/// use lapidary::jobs::Job;
/// # fn main() -> lapidary::Result<()> {
/// # let gpu = lapidary::Gpu::open(Default::default())?;
///
/// // What the work needs, before it runs.
/// let dry = gpu.dry_run(|gpu| gpu.zeros(&[4096, 4096], DType::F32)?.sum_all())?;
/// let job = Job::new("sum", dry.peak_added_bytes).with_priority(-1);
/// let running = gpu.jobs().admit(job)?;
/// let sum = running.zeros(&[4096, 4096], DType::F32)?.sum_all()?;
/// # let _ = sum;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Jobs(lapidary_core::jobs::Jobs);

/// An admitted job: a [`Gpu`] of the job's share. The job ends when this is dropped. Tensors that
/// live on then are guaranteed nothing.
pub type Running = lapidary_core::jobs::Running<Gpu>;

impl Jobs {
    /// Waits until a job may run.
    ///
    /// # Errors
    /// As [`lapidary_core::jobs::Jobs::admit`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn admit(&self, job: Job) -> Result<Running> {
        Ok(self.0.admit(job)?.map(Gpu::over))
    }

    /// As [`admit`](Self::admit), as a future: the only form in a browser.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub async fn admit_async(&self, job: Job) -> Result<Running> {
        Ok(self.0.admit_async(job).await?.map(Gpu::over))
    }

    /// The jobs that wait and those that run, in the order of their arrival.
    pub fn list(&self) -> Vec<JobUse> {
        self.0.list()
    }

    /// Cancels a job: see [`lapidary_core::jobs::Jobs::cancel`]. `false` if there is no such job.
    pub fn cancel(&self, id: u64) -> bool {
        self.0.cancel(id)
    }
}

impl Gpu {
    /// Admits jobs to this handle's memory, so that those run together whose peaks fit together.
    pub fn jobs(&self) -> Jobs {
        let core: &lapidary_core::Gpu = self;
        Jobs(core.jobs())
    }
}
