//! The budget, and the calls by which a program stays within it.

use std::sync::Arc;

#[cfg(doc)]
use super::Gpu;
use super::GpuMemory;
use crate::driver::MaybeShared;
use crate::engine::{Pressure, PressureGuard, block_on};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::memory::Budget;
use crate::shortage::Holder;

/// Bytes to move between two looks at the clock.
#[cfg(not(target_arch = "wasm32"))]
const COMPACTION_SLICE_BYTES: u64 = 4 << 20;

/// Result of [`compact`](GpuMemory::compact).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// Bytes of buffers that were moved.
    pub moved_bytes: u64,
    /// Bytes of slabs that became empty and were released.
    pub released_bytes: u64,
    /// The largest holders of pinned buffers in slabs that are not full. They block compaction.
    pub pinned: Vec<Holder>,
}

impl GpuMemory<'_> {
    /// The budget as the app set it.
    pub fn budget(self) -> Budget {
        self.engine.here().budget()
    }

    /// Changes the budget, and brings memory use down to it. The engine releases empty slabs, moves
    /// blocks together, and evicts buffers to the host's memory, to stores or to disk.
    ///
    /// Returns the shortfall in bytes, usually 0: how far memory that cannot leave still exceeds
    /// the device's limit. Such memory is pinned buffers, and buffers that neither the host, a
    /// store nor the disk has room for. Until the shortfall is gone, the engine creates nothing,
    /// and work that needs memory stays queued.
    ///
    /// Ceilings of shares that are parts of the budget change with it. If a share exceeds its
    /// ceiling by more than that, this is the shortfall, and only work of that share stays queued.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// use lapidary_core::Budget;
    ///
    /// let shortfall_bytes = gpu.memory().set_budget(Budget::device(512 << 20))?;
    /// assert_eq!(shortfall_bytes, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] for limits that contradict each other or the guarantees of shares,
    /// [`Error::Share`] on the handle of a share, and [`Error::Reentered`] inside a callback. None
    /// of them changes the budget. [`Error::DeviceLost`].
    pub fn set_budget(self, budget: Budget) -> Result<u64> {
        block_on("GpuMemory::set_budget", self.set_budget_async(budget))
    }

    /// As [`set_budget`](GpuMemory::set_budget), as a future: the only form in a browser.
    pub async fn set_budget_async(self, budget: Budget) -> Result<u64> {
        self.engine.here().set_budget(budget).await
    }

    /// Creates slabs ahead, so that the program does not wait for them later. Stops when `bytes`
    /// are reserved, including existing slabs, or when the budget is used up. Returns the reserved
    /// bytes.
    ///
    /// Unused slabs are released by [`trim`](GpuMemory::trim), by
    /// [`poll`](GpuMemory::release_idle_after), and when other requests need the room.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// let reserved_bytes = gpu.memory().reserve(256 << 20)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    pub fn reserve(self, bytes: u64) -> Result<u64> {
        block_on("GpuMemory::reserve", self.reserve_async(bytes))
    }

    /// As [`reserve`](GpuMemory::reserve), as a future: the only form in a browser.
    pub async fn reserve_async(self, bytes: u64) -> Result<u64> {
        self.engine.here().reserve(bytes).await
    }

    /// Releases empty slabs, longest unused first, while more than `keep_bytes` are reserved. With
    /// 0 it also releases idle staging. Returns the bytes of the released slabs. It moves and
    /// evicts no buffer: [`compact`](GpuMemory::compact) and [`set_budget`](GpuMemory::set_budget)
    /// do.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// // Between two phases of a program.
    /// let given_back_bytes = gpu.memory().trim(0)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`flush`](Gpu::flush).
    pub fn trim(self, keep_bytes: u64) -> Result<u64> {
        block_on("GpuMemory::trim", self.trim_async(keep_bytes))
    }

    /// As [`trim`](GpuMemory::trim), as a future: the only form in a browser.
    pub async fn trim_async(self, keep_bytes: u64) -> Result<u64> {
        self.engine.here().trim(keep_bytes).await
    }

    /// Moves at most `limit_bytes` of buffers together, so that slabs become empty and can be
    /// released. For a frame loop: a few MiB a frame, until nothing is moved any more. It has no
    /// effect on results. Pinned buffers stay where they are.
    ///
    /// Calling it is optional: a request that finds no room moves buffers itself. A buffer larger
    /// than the limit is not moved. [`Options::never_move`](crate::Options::never_move) turns all
    /// moves off.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// # let draw_frame = || {};
    /// loop {
    ///     draw_frame();
    ///     gpu.poll()?;
    ///     if gpu.memory().compact(4 << 20)?.moved_bytes == 0 {
    ///         break;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`flush`](Gpu::flush).
    pub fn compact(self, limit_bytes: u64) -> Result<Compacted> {
        block_on("GpuMemory::compact", self.compact_async(limit_bytes))
    }

    /// As [`compact`](GpuMemory::compact), as a future: the only form in a browser.
    pub async fn compact_async(self, limit_bytes: u64) -> Result<Compacted> {
        let (moved_bytes, released_bytes) = self.engine.here().compact(limit_bytes).await?;
        Ok(Compacted {
            moved_bytes,
            released_bytes,
            pinned: self.engine.here().pinned_in_the_way(),
        })
    }

    /// As [`compact`](GpuMemory::compact), for at most `time`. It waits for the device after every
    /// few MiB. So it may exceed the time by one such slice, or by one larger buffer.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// let compacted = gpu.memory().compact_for(std::time::Duration::from_millis(2))?;
    /// println!("{} bytes were given back", compacted.released_bytes);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`flush`](Gpu::flush).
    #[cfg(not(target_arch = "wasm32"))]
    pub fn compact_for(self, time: std::time::Duration) -> Result<Compacted> {
        let until = std::time::Instant::now().checked_add(time);
        let mut all = Compacted::default();
        let mut slice_bytes = COMPACTION_SLICE_BYTES;
        while until.is_none_or(|until| std::time::Instant::now() < until) {
            let slice = self.compact(slice_bytes)?;
            all.pinned = slice.pinned;
            if slice.moved_bytes == 0 {
                // The next block to move may be larger than a slice.
                match slice_bytes.checked_mul(4) {
                    Some(larger_bytes) => slice_bytes = larger_bytes,
                    None => break,
                }
                continue;
            }
            all.moved_bytes += slice.moved_bytes;
            all.released_bytes += slice.released_bytes;
            block_on("GpuMemory::compact_for", self.engine.here().finish())?;
        }
        Ok(all)
    }

    /// Registers a callback for memory shortage, until the guard is dropped. It is called before
    /// buffers are moved or evicted, so that the app can drop buffers that it does not need.
    ///
    /// The callback is called again as long as it frees something. Once it frees nothing, it is not
    /// called before the next call that runs the queue.
    ///
    /// It runs on the thread that needs the memory, without any lock of lapidary, but while work is
    /// under way. Calls that would wait for that work return [`Error::Reentered`]. It should not
    /// wait for other threads that use this `Gpu`. A panic in it is caught.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// use std::sync::{Arc, Mutex};
    ///
    /// let cache = Arc::new(Mutex::new(vec![gpu.buffer_zeroed(4 << 20)?]));
    /// let in_callback = cache.clone();
    /// let _guard = gpu.memory().on_pressure(move |_pressure| in_callback.lock().unwrap().clear());
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_pressure(
        self,
        callback: impl Fn(&Pressure) + MaybeShared + 'static,
    ) -> PressureGuard {
        self.engine.here().on_pressure(Arc::new(callback))
    }

    /// Sets after how many calls of [`poll`](Gpu::poll) without a use an empty slab, or staging, is
    /// released. The default is 600, ten seconds of a frame loop; 0 means never. It counts polls,
    /// not time, so a clock that jumps has no effect.
    pub fn release_idle_after(self, polls: u32) {
        self.engine.here().set_idle_polls(polls);
    }
}
