//! Who has the execution lock: functions that need it take a [`Pass`], which only it can give.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::execution_lock::ExecutionGuard;
use super::handle::Engine;
use crate::driver::MaybeSend;
use crate::error::{Error, Result};

/// The engine, for whoever has the execution lock: nobody else encodes, reclaims memory or submits
/// meanwhile. A call may wait with it; the engine's lock is released then.
pub(super) struct Pass {
    engine: Arc<Engine>,
    /// Given back on drop, unless whoever made this keeps it.
    _lock: Option<ExecutionGuard>,
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pass")
    }
}

impl Deref for Pass {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Pass {
    /// Waits for the execution lock and does `work` under it. Where the work may have to wait,
    /// others do some of it who want the lock.
    ///
    /// It is made in its place: an execution pass is thousands of bytes, too many to move for each
    /// call.
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

    /// As [`run`](Self::run), with the lock.
    pub(super) async fn run_locked<T, F>(
        engine: &Arc<Engine>,
        lock: ExecutionGuard,
        work: impl FnOnce(Pass) -> F + MaybeSend + 'static,
    ) -> Result<T>
    where
        T: MaybeSend + 'static,
        F: Future<Output = Result<T>> + MaybeSend + 'static,
    {
        let pass = Pass {
            engine: engine.clone(),
            _lock: None,
        };
        if !engine.driver.may_wait() {
            let result = work(pass).await;
            drop(lock);
            return result;
        }
        lock.lend(async move { work(pass).await }).await
    }

    /// Waits for the execution lock.
    pub(super) async fn lock(engine: &Engine) -> Result<ExecutionGuard> {
        if engine.is_inside() {
            return Err(Error::Reentered);
        }
        Ok(engine.execution_lock.lock().await)
    }

    /// The pass of whoever holds the lock.
    pub(super) fn with(engine: &Arc<Engine>, lock: ExecutionGuard) -> Pass {
        Pass {
            engine: engine.clone(),
            _lock: Some(lock),
        }
    }

    /// The execution lock, if nobody has it.
    pub(super) fn try_begin(engine: &Arc<Engine>) -> Option<Pass> {
        let lock = engine.execution_lock.try_lock()?;
        Some(Pass::with(engine, lock))
    }
}
