//! Shares: handles with a guarantee and a ceiling of their own, over the same device.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::{Gpu, GpuMemory};
use crate::driver::MaybeShared;
#[cfg(doc)]
use crate::engine::MemoryStats;
use crate::engine::shares::{self, End};
use crate::engine::{Engine, Handle, Watermark, WatermarkGuard, block_on};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::jobs::{JobList, Jobs};
use crate::memory::ShareOptions;
use crate::shortage::ShareUse;

impl Gpu {
    /// A handle for a share of this device's memory. Buffers that are made through it count for the
    /// share, and so do all results that are computed from them.
    ///
    /// - The **guarantee** is room that the share gets whenever it wants it. While it does not, the
    ///   room is lent. Lent room comes back by evicting the coldest buffers of those who borrowed
    ///   it. They do not fail; their buffers come back when they are used. A share lends no more
    ///   than the host's memory, the stores and the disk have room for: the rest could not come
    ///   back.
    /// - The **ceiling** is a hard limit: a share that needs more evicts buffers of its own. An
    ///   operation that does not fit below it is an error. If the ceiling is lowered, what is above
    ///   it leaves in the next pass.
    /// - Beyond the guarantees all borrowers are equal. One that wants more takes from those who
    ///   have borrowed more than itself, and from those who run nothing.
    ///
    /// Memory that passes from one share to another is cleared first, so a kernel with a wrong
    /// index reads zeros and no bytes of others. Buffers of two shares do not meet in one
    /// operation; [`Buffer::to`](crate::Buffer::to) copies between them. All shares have one queue,
    /// one set of compiled kernels, and one staging memory.
    ///
    /// A **priority** orders work: recorded commands of a share run before those of shares with a
    /// lower one, in their own order. [`flush`](Gpu::flush) and reads on the handle of a share
    /// leave what has a lower priority; on a handle of the device they run everything. While there
    /// are higher priorities, a pass encodes work of a lower one only when the device has finished
    /// the submission before. It submits such work after some milliseconds of it. So commands of a
    /// high priority wait for the submission on the device, and at most for the next one
    /// ([`MemoryStats::longest_submission_ns`]). While another thread runs a pass, that pass runs
    /// them first. Then a read or a `flush` ends, and the pass goes on. Other calls, such as a pin
    /// or a new budget, wait for its end.
    ///
    /// The pass may also have to prepare a command of a lower priority. Then the part that has
    /// begun ends first, and the commands run in the middle of the rest.
    /// [`MemoryStats::longest_hold_ns`] says how long such a part took at most. The parts are:
    ///
    /// - the eviction or the restore of 8 MiB, or of 1/16 of a limit below 128 MiB, with requests
    ///   to a store and calls of a [`Source`](crate::Source). If work of a higher priority takes
    ///   the memory of a restore, that restore begins again, as one part;
    /// - moves of as much in a compaction, or of one larger buffer;
    /// - the last steps of a search for memory that lay the operands side by side;
    /// - the compilation of a kernel.
    ///
    /// Evictions because a ceiling was lowered are such parts, too. Evictions because the budget
    /// was lowered are one part, as nothing may exceed it. What the app compacts itself
    /// ([`compact`](GpuMemory::compact)) is not cut, and not counted.
    ///
    /// Called on the handle of a share, this makes a share within it. The sum of the guarantees
    /// within a share is at most its own.
    ///
    /// ```
    /// use lapidary_core::shares::{Amount, ShareOptions};
    /// # fn demo(gpu: &lapidary_core::Gpu) -> lapidary_core::Result<()> {
    ///
    /// // The frame must never wait for the job, and the job may have all that is left.
    /// let frame = gpu.share("frame", ShareOptions::guaranteed(256 << 20))?;
    /// let job = gpu.share("job", ShareOptions::guaranteed(0).with_ceiling(Amount::OfBudget(75)))?;
    /// let particles = frame.buffer_zeroed(64 << 20)?;
    /// let samples = job.buffer_zeroed(512 << 20)?;
    /// for share in gpu.memory().stats().shares {
    ///     println!("{}: {} bytes", share.path, share.bytes.now);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// A guarantee is given only if it can be kept. Memory that others have pinned may be in its
    /// way, or memory that they hold and that has no place elsewhere. Then the call runs the queue,
    /// drops what has its bytes elsewhere, too, and tries once more. In a browser nothing can wait;
    /// call [`flush_async`](Gpu::flush_async) before.
    ///
    /// # Errors
    /// [`Error::Share`] for a name that is empty or has a `/`, and within a closed share. Also for
    /// guarantees beyond the budget or beyond the guarantee of the share around, and for those that
    /// could not be kept. Also for a ceiling below the guarantee, and for parts of an unknown
    /// amount. [`Error::DeviceLost`].
    pub fn share(&self, name: &str, options: ShareOptions) -> Result<Share> {
        let engine = Handle::new(shares::add(&self.engine.here(), name, options)?);
        Ok(Share {
            gpu: self.of_share(engine.clone()),
            engine,
        })
    }
}

impl Gpu {
    /// The handle of a share of this device, whose engine that is.
    pub(crate) fn of_share(&self, engine: Handle<Engine>) -> Gpu {
        Gpu {
            engine,
            _handles: self._handles.clone(),
        }
    }

    /// Admits jobs to this handle's memory, so that those run together whose peaks fit together.
    pub fn jobs(&self) -> Jobs {
        self.jobs_over(|gpu| gpu)
    }

    /// As [`jobs`](Gpu::jobs), for jobs that get the handle of a crate above this one.
    #[doc(hidden)]
    pub fn jobs_over<G>(&self, over: fn(Gpu) -> G) -> Jobs<G> {
        let list = JobList::over(self.clone(), self._handles.board(&self.engine));
        Jobs::new(list, over)
    }
}

/// A share of a device's memory: a [`Gpu`] with a guarantee and a ceiling of its own, which
/// [`Gpu::share`] makes.
///
/// It ends with its last handle and its last buffer. [`close`](Share::close) and
/// [`cancel`](Share::cancel) end it before. Cheap to clone.
///
/// `G` is the handle that it gives: that of this crate, or of one above it.
#[derive(Clone)]
pub struct Share<G = Gpu> {
    gpu: G,
    engine: Handle<Engine>,
}

impl<G> Share<G> {
    /// The handle of the share, for code that keeps a [`Gpu`] whatever it is of.
    pub fn gpu(&self) -> &G {
        &self.gpu
    }

    /// Changes the limits, while work may be running. If the share holds more than the new ceiling,
    /// its coldest buffers are evicted. Returns the shortfall in bytes, usually 0: how far memory
    /// that cannot leave still exceeds the ceiling.
    ///
    /// ```no_run
    /// # use lapidary_core::shares::{Share, ShareOptions};
    /// # fn demo(job: &Share) -> lapidary_core::Result<()> {
    /// let shortfall_bytes = job.resize(ShareOptions::guaranteed(0).with_ceiling(1 << 30))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Gpu::share`], and in a [dry run](Gpu::dry_run) in which the share was not made; nothing
    /// changes then.
    pub fn resize(&self, options: ShareOptions) -> Result<u64> {
        block_on("Share::resize", self.resize_async(options))
    }

    /// As [`resize`](Share::resize), as a future: the only form in a browser.
    pub async fn resize_async(&self, options: ShareOptions) -> Result<u64> {
        shares::resize(&self.engine.here(), options).await
    }

    /// Closes this share and those within it. They are guaranteed nothing from now on, and get no
    /// new buffers: whatever would make one is an [`Error::Share`]. Buffers that exist can be read
    /// and copied to another share until the app drops them.
    ///
    /// # Errors
    /// [`Error::Share`] in a [dry run](Gpu::dry_run) in which the share was not made.
    pub fn close(&self) -> Result<()> {
        shares::end_own(&self.engine.here(), "close", End::Closed)
    }

    /// Closes this share and those within it, and drops their work that has not run. The results of
    /// that work are [`Poisoned`](Error::Poisoned), with the reason. Work that the device has
    /// already got runs to its end. Other shares are not affected.
    ///
    /// # Errors
    /// As [`close`](Share::close).
    pub fn cancel(&self) -> Result<()> {
        shares::end_own(&self.engine.here(), "cancel", End::Cancelled)
    }
}

impl Share {
    /// The same share, with the handle of a crate above this one.
    #[doc(hidden)]
    pub fn map<G>(self, over: impl FnOnce(Gpu) -> G) -> Share<G> {
        Share {
            gpu: over(self.gpu),
            engine: self.engine,
        }
    }
}

/// Gives access to all methods of the handle.
impl<G> Deref for Share<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.gpu
    }
}

impl<G: fmt::Debug> fmt::Debug for Share<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.gpu.fmt(f)
    }
}

impl GpuMemory<'_> {
    /// What the share of this handle holds. `None` on a handle of the whole device.
    /// [`MemoryStats::shares`] has all shares of the device.
    pub fn share_use(self) -> Option<ShareUse> {
        shares::use_of(&self.engine.here())
    }

    /// Registers a callback for a watermark, until the guard is dropped. It is called each time the
    /// bytes on the device rise to `percent` of their limit. On the handle of a share, the bytes
    /// are those of the share. The limit is its lowest ceiling, or its guarantee if nothing around
    /// it has a limit. On a handle of the device they are the bytes of all blocks, and the budget
    /// without staging.
    ///
    /// The level must fall by an eighth of what it may be before a rise counts again.
    ///
    /// It is called on the thread that runs the queue, soon after the command that needed the
    /// memory, without a lock of lapidary. Calls that would wait for that work return
    /// [`Error::Reentered`]. A panic in it is caught. The feature `tracing` also reports it.
    ///
    /// ```no_run
    /// # fn demo(gpu: &lapidary_core::Gpu) -> lapidary_core::Result<()> {
    /// let _warning = gpu.memory().on_watermark(80, |mark| {
    ///     eprintln!("{} of {} bytes are in use", mark.bytes, mark.limit_bytes);
    /// });
    /// # Ok(()) }
    /// ```
    pub fn on_watermark(
        self,
        percent: u8,
        callback: impl Fn(&Watermark) + MaybeShared + 'static,
    ) -> WatermarkGuard {
        (self.engine.here()).on_watermark(percent, Arc::new(callback))
    }
}
