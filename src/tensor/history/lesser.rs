//! Results of which a backward needs less than the elements.
//!
//! ```text
//!   y = relu(x)      keeps y, which the next product keeps too
//!   z = max_pool(y)  needs no y: only relu does, which keeps the bits of y > 0 from now on
//! ```
//!
//! While an operation is recorded, nobody knows what comes after it. So it keeps its result. An
//! operation that comes later, and needs less itself, has it keep less.

use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::saved::Saved;
use crate::tensor::Tensor;
use lapidary_core::Result;
use lapidary_core::internal::{Engine, Handle, MadeFor, MaybeShared, Storage};

/// Makes of a result what its backward needs.
pub(crate) type MakeLesser = dyn MakeLesserFn;
pub(crate) trait MakeLesserFn: Fn(&Tensor) -> Result<Tensor> + MaybeShared {}
impl<F: Fn(&Tensor) -> Result<Tensor> + MaybeShared> MakeLesserFn for F {}

/// A result, or the part of it that a backward needs.
pub(super) struct Lesser(Mutex<State>);

struct State {
    kept: Saved,
    /// Makes the part. `None` once that is kept.
    reduce: Option<Arc<MakeLesser>>,
}

impl Lesser {
    pub(super) fn new(result: &Tensor, reduce: &Arc<MakeLesser>) -> Arc<Lesser> {
        Arc::new(Lesser(Mutex::new(State {
            kept: result.saved(),
            reduce: Some(Arc::clone(reduce)),
        })))
    }

    /// What is kept, for the backward of the operation.
    pub(super) fn get(
        &self,
        engine: &Handle<Engine>,
        operation: &'static str,
        recorded_at: &'static Location<'static>,
    ) -> Result<Tensor> {
        let kept = self.lock().kept.clone();
        kept.get(engine, operation, recorded_at)
    }

    /// Is it the whole result, with this storage?
    pub(super) fn is_whole(&self, storage: &Arc<Storage>) -> bool {
        let state = self.lock();
        state.reduce.is_some() && state.kept.is_of(storage)
    }

    /// Keeps only the part from now on. A result that was overwritten stays, for the error.
    #[track_caller]
    pub(super) fn keep_less(
        &self,
        engine: &Handle<Engine>,
        operation: &'static str,
        recorded_at: &'static Location<'static>,
    ) -> Result<()> {
        let whole = self.get(engine, operation, recorded_at);
        let reduce = self.lock().reduce.clone();
        let (Ok(whole), Some(reduce)) = (whole, reduce) else {
            return Ok(());
        };
        let _line = MadeFor::line(recorded_at);
        // Nothing is computed under the lock.
        let part = reduce(&whole)?.saved();
        let mut state = self.lock();
        state.reduce = None;
        let before = std::mem::replace(&mut state.kept, part);
        drop(state);
        drop(before);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Lesser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lesser").field(&self.lock().kept).finish()
    }
}
