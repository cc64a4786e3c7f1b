//! Jobs: work that is admitted when the memory that it needs is free: see [`Jobs`].

pub use lapidary_core::jobs::{Job, JobUse};

use crate::gpu::Gpu;

/// Admits jobs to the memory of a handle.
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
pub type Jobs = lapidary_core::jobs::Jobs<Gpu>;

/// An admitted job: a [`Gpu`] of the job's share. The job ends when this is dropped. Tensors that
/// live on then are guaranteed nothing.
pub type Running = lapidary_core::jobs::Running<Gpu>;

impl Gpu {
    /// Admits jobs to this handle's memory, so that those run together whose peaks fit together.
    pub fn jobs(&self) -> Jobs {
        self.jobs_over(Gpu::over)
    }
}
