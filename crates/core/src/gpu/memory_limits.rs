//! The budget, and what a program does to live within it.

use std::sync::Arc;

use super::Gpu;
use crate::engine::{Pressure, PressureGuard, block_on};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::memory::Budget;
use crate::shortage::Holder;

/// How much is moved before the clock is looked at.
#[cfg(not(target_arch = "wasm32"))]
const COMPACTION_SLICE_BYTES: u64 = 4 << 20;

/// What a [`compact`](Gpu::compact) did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// Bytes of tensors that were moved.
    pub moved_bytes: u64,
    /// Bytes of slabs that this emptied, and that were given back.
    pub released_bytes: u64,
    /// The greatest holders of what is in the way: pinned, in slabs that are not full.
    pub pinned: Vec<Holder>,
}

impl Gpu {
    /// What this `Gpu` may take, as it was set.
    pub fn budget(&self) -> Budget {
        self.engine.budget()
    }

    /// Changes what this `Gpu` may take, and gets down to it: what is empty is given back, blocks
    /// are moved together, and tensors are evicted to the host's memory or to disk.
    ///
    /// Returns the shortfall, which is 0 as a rule: the bytes by which what cannot leave still
    /// passes the device's limit, such as pinned tensors, and tensors that neither the host nor the
    /// disk has room for. Until there is less, nothing more is created; work that needs more stays
    /// queued.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// use lapidary_core::Budget;
    ///
    /// let shortfall_bytes = gpu.set_budget(Budget::device(512 << 20))?;
    /// assert_eq!(shortfall_bytes, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] for limits that contradict each other and [`Error::Reentered`] inside a
    /// callback: then nothing has changed; [`Error::DeviceLost`].
    pub fn set_budget(&self, budget: Budget) -> Result<u64> {
        block_on("Gpu::set_budget", self.set_budget_async(budget))
    }

    /// As [`set_budget`](Gpu::set_budget), as a future: the only form in a browser.
    ///
    /// # Errors
    /// As [`set_budget`](Gpu::set_budget).
    pub async fn set_budget_async(&self, budget: Budget) -> Result<u64> {
        self.engine.set_budget(budget).await
    }

    /// Creates slabs ahead, so that a program need not wait for them later, until `bytes` are
    /// reserved, those there are included, or the budget is used up. Returns how many bytes are.
    ///
    /// What nobody uses goes again: [`trim`](Gpu::trim) and
    /// [`poll`](Gpu::release_idle_after) give it back, and so does whoever needs the room.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// let reserved_bytes = gpu.reserve(256 << 20)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    pub fn reserve(&self, bytes: u64) -> Result<u64> {
        block_on("Gpu::reserve", self.reserve_async(bytes))
    }

    /// As [`reserve`](Gpu::reserve), as a future: the only form in a browser.
    ///
    /// # Errors
    /// As [`reserve`](Gpu::reserve).
    pub async fn reserve_async(&self, bytes: u64) -> Result<u64> {
        self.engine.reserve(bytes).await
    }

    /// Gives the driver back slabs that hold nothing, longest unused first, while more than
    /// `keep_bytes` are reserved; with 0, idle staging too. Returns the bytes of slabs given back.
    /// No tensor moves or leaves: for that there are [`compact`](Gpu::compact) and
    /// [`set_budget`](Gpu::set_budget).
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// // Between two phases of a program.
    /// let given_back_bytes = gpu.trim(0)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`flush`](Gpu::flush).
    pub fn trim(&self, keep_bytes: u64) -> Result<u64> {
        block_on("Gpu::trim", self.trim_async(keep_bytes))
    }

    /// As [`trim`](Gpu::trim), as a future: the only form in a browser.
    ///
    /// # Errors
    /// As [`trim`](Gpu::trim).
    pub async fn trim_async(&self, keep_bytes: u64) -> Result<u64> {
        self.engine.trim(keep_bytes).await
    }

    /// Moves tensors together, at most `limit_bytes` of them, so that slabs become empty and can
    /// be given back. For a frame loop: a few MiB a frame, until nothing is moved any more. Nobody
    /// notices but by the time it takes; pinned tensors stay where they are.
    ///
    /// There is no need to call it: a request that finds no room moves what it must. A tensor that
    /// is larger than the limit is not moved, and none with
    /// [`Options::never_move`](crate::Options::never_move).
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// # let draw_frame = || {};
    /// loop {
    ///     draw_frame();
    ///     gpu.poll()?;
    ///     if gpu.compact(4 << 20)?.moved_bytes == 0 {
    ///         break;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`flush`](Gpu::flush).
    pub fn compact(&self, limit_bytes: u64) -> Result<Compacted> {
        block_on("Gpu::compact", self.compact_async(limit_bytes))
    }

    /// As [`compact`](Gpu::compact), as a future: the only form in a browser.
    ///
    /// # Errors
    /// As [`compact`](Gpu::compact).
    pub async fn compact_async(&self, limit_bytes: u64) -> Result<Compacted> {
        let (moved_bytes, released_bytes) = self.engine.compact(limit_bytes).await?;
        Ok(Compacted {
            moved_bytes,
            released_bytes,
            pinned: self.engine.pinned_in_the_way(),
        })
    }

    /// As [`compact`](Gpu::compact), for at most so much time, waiting for the device after every
    /// few MiB: it may take longer by one such slice, or by one tensor that is larger.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// let compacted = gpu.compact_for(std::time::Duration::from_millis(2))?;
    /// println!("{} bytes were given back", compacted.released_bytes);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`flush`](Gpu::flush).
    #[cfg(not(target_arch = "wasm32"))]
    pub fn compact_for(&self, time: std::time::Duration) -> Result<Compacted> {
        let until = std::time::Instant::now().checked_add(time);
        let mut all = Compacted::default();
        let mut slice_bytes = COMPACTION_SLICE_BYTES;
        while until.is_none_or(|until| std::time::Instant::now() < until) {
            let slice = self.compact(slice_bytes)?;
            all.pinned = slice.pinned;
            if slice.moved_bytes == 0 {
                // What is left to move may be larger than a slice.
                match slice_bytes.checked_mul(4) {
                    Some(larger_bytes) => slice_bytes = larger_bytes,
                    None => break,
                }
                continue;
            }
            all.moved_bytes += slice.moved_bytes;
            all.released_bytes += slice.released_bytes;
            self.finish()?;
        }
        Ok(all)
    }

    /// Calls back when memory is short, before tensors are moved or evicted, so that the app can
    /// drop what it can do without. Until the guard is dropped.
    ///
    /// It is asked again as long as it frees something; once it has freed nothing, not before the
    /// next call that runs the queue.
    ///
    /// The callback runs on whichever thread needs the memory, with no lock of ours held, but
    /// while work is under way: calls that would wait for that work are refused with
    /// [`Error::Reentered`]. It should not wait for other threads that use this `Gpu`. A panic in
    /// it is caught.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// use std::sync::{Arc, Mutex};
    ///
    /// let cache = Arc::new(Mutex::new(vec![gpu.buffer_zeroed(4 << 20)?]));
    /// let in_callback = cache.clone();
    /// let _guard = gpu.on_pressure(move |_pressure| in_callback.lock().unwrap().clear());
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(not(target_arch = "wasm32"))]
    pub fn on_pressure(
        &self,
        callback: impl Fn(&Pressure) + Send + Sync + 'static,
    ) -> PressureGuard {
        self.engine.on_pressure(Arc::new(callback))
    }

    /// Calls back when memory is short, before tensors are moved or evicted, so that the app can
    /// drop what it can do without. Until the guard is dropped. Calls that would wait are refused
    /// with [`Error::Reentered`] in it, and a panic in it is caught.
    #[cfg(target_arch = "wasm32")]
    pub fn on_pressure(&self, callback: impl Fn(&Pressure) + 'static) -> PressureGuard {
        self.engine.on_pressure(Arc::new(callback))
    }

    /// After so many calls of [`poll`](Gpu::poll) without a use, a slab that holds nothing, and
    /// staging, are given back: 600 to begin with, which is ten seconds of a frame loop; 0 for
    /// never. Polls are counted, not time, so a clock that jumps changes nothing.
    pub fn release_idle_after(&self, polls: u32) {
        self.engine.set_idle_polls(polls);
    }
}
