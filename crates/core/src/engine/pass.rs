//! The proof of holding the execution lock: functions that need the lock take a [`Pass`].

pub(super) mod execution_lock;
mod submit;
pub(super) mod urgent;

use std::ops::Deref;
use std::sync::Arc;

use super::handle::Engine;
use crate::driver::{BoxFuture, MaybeSend};
use crate::error::{Error, Result};
use crate::memory::Storage;
use crate::waits::{self, Waits};
use execution_lock::ExecutionGuard;

/// The engine, for the holder of the execution lock. No other thread encodes, reclaims memory or
/// submits meanwhile. A holder may wait, with the engine's lock released.
pub(super) struct Pass {
    engine: Arc<Engine>,
    /// Released on drop. `None` if the creator of the pass keeps the lock.
    _lock: Option<ExecutionGuard>,
}

impl Deref for Pass {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Pass {
    /// Waits for the execution lock and runs `work` under it. If the work may have to wait, other
    /// waiters for the lock poll it too, and it goes on if this is dropped.
    ///
    /// `work` builds the future in place. A pass has thousands of bytes, which are too many to move
    /// at each call.
    pub(super) async fn run<T, F>(
        engine: &Arc<Engine>,
        work: impl FnOnce(Pass) -> F + MaybeSend + 'static,
    ) -> Result<T>
    where
        T: MaybeSend + 'static,
        F: Future<Output = Result<T>> + MaybeSend + 'static,
    {
        let lock = Pass::lock(engine).await?;
        Pass::run_locked(engine, lock, work).await
    }

    /// As [`run`](Self::run), unless another thread's pass does meanwhile what the caller wants.
    /// Passes say so after each submission while shares have priorities.
    pub(super) async fn run_unless<F>(
        engine: &Arc<Engine>,
        is_done: impl Fn() -> bool,
        work: impl FnOnce(Pass) -> F + MaybeSend + 'static,
    ) -> Result<()>
    where
        F: Future<Output = Result<()>> + MaybeSend + 'static,
    {
        if engine.is_inside() {
            return Err(Error::Reentered);
        }
        match engine.execution_lock()?.lock_unless(is_done).await {
            Some(lock) => Pass::run_locked(engine, lock, work).await,
            None => Ok(()),
        }
    }

    /// As [`run`](Self::run), for a caller that has the lock.
    pub(super) async fn run_locked<T, F>(
        engine: &Arc<Engine>,
        lock: ExecutionGuard,
        work: impl FnOnce(Pass) -> F + MaybeSend + 'static,
    ) -> Result<T>
    where
        T: MaybeSend + 'static,
        F: Future<Output = Result<T>> + MaybeSend + 'static,
    {
        let of = |engine| Pass {
            engine,
            _lock: None,
        };
        // Natively only a simulated device may wait. Other programs do not contain the work twice.
        #[cfg(any(target_arch = "wasm32", test, feature = "sim"))]
        if engine.driver.returns_early() {
            let pass = of(engine.without_lock());
            let ran = lock.run(async move { work(pass).await }).await;
            return ran.unwrap_or(Err(Error::driver(
                "an execution pass",
                "it panicked in another task",
            )));
        }
        let result = work(of(engine.clone())).await;
        drop(lock);
        result
    }

    /// Waits for the execution lock.
    pub(super) async fn lock(engine: &Engine) -> Result<ExecutionGuard> {
        if engine.is_inside() {
            return Err(Error::Reentered);
        }
        Ok(engine.execution_lock()?.lock().await)
    }

    /// What the driver answered, or an error if the device is lost by now.
    pub(super) fn unless_lost<T>(&self, answer: T) -> Result<T> {
        self.check_lost()?;
        Ok(answer)
    }

    /// Meets a need for memory. What the pass waits for meanwhile counts, also for the maker of the
    /// storage that needs it. A dry run counts nothing.
    pub(super) async fn for_memory<T>(
        &self,
        storage: Option<&Storage>,
        need: BoxFuture<'_, T>,
    ) -> T {
        let note = |waits: &Waits| {
            if self.is_dry() {
                return;
            }
            let state = &mut *self.lock();
            state.counters.waited(waits);
            if let Some(storage) = storage {
                state.waits.note(storage, waits, &mut state.memory);
            }
        };
        waits::watch(self.has_clock(), need, note).await
    }

    /// As [`for_memory`](Self::for_memory), for a storage's bytes. If it was never evicted, its
    /// source gives them for the first time, and no lack of memory is the cause.
    pub(super) async fn for_return<T>(&self, storage: &Storage, need: BoxFuture<'_, T>) -> T {
        let was_evicted = self.lock().memory.slots.was_evicted(storage);
        match was_evicted {
            true => self.for_memory(Some(storage), need).await,
            false => need.await,
        }
    }

    /// The pass of a caller that has the lock.
    pub(super) fn with(engine: &Arc<Engine>, lock: ExecutionGuard) -> Pass {
        Pass {
            engine: engine.clone(),
            _lock: Some(lock),
        }
    }

    /// The execution lock, if it is free.
    pub(super) fn try_lock(engine: &Engine) -> Option<ExecutionGuard> {
        engine.execution_lock().ok()?.try_lock()
    }

    /// A pass, if the execution lock is free. For work that does not wait in a browser: it is not
    /// kept if the caller gives up.
    pub(super) fn try_begin(engine: &Arc<Engine>) -> Option<Pass> {
        Some(Pass::with(engine, Pass::try_lock(engine)?))
    }
}
