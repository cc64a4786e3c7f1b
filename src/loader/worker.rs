//! The calls of the app's functions: the source, and the function that prepares batches.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lapidary_core::internal::{MaybeSend, MaybeShared};
use lapidary_core::{Error, Result};

use super::queue::Queue;
use super::{LoaderOptions, PrepareError, Uploader};
use crate::gpu::Gpu;

/// A worker without its types.
pub(super) trait Step: MaybeShared {
    /// Prepares the next batch. `false` when there is nothing more to do.
    fn step(&self) -> bool;

    /// Lets go of the device and of the function that prepares. Steps that run now keep them until
    /// they end.
    fn close(&self);
}

/// Prepares batches, on several threads at once.
pub(super) struct Worker<I, F, B> {
    /// The queue lets one thread at a time in.
    source: Mutex<I>,
    /// `None` once the loader is closed. A thread in the source holds none of it, so a source that
    /// blocks keeps no device alive.
    desk: Mutex<Option<Arc<Desk<F>>>>,
    queue: Arc<Queue<Result<B>>>,
    bytes_ahead: Option<u64>,
}

/// What a batch is prepared with.
struct Desk<F> {
    gpu: Gpu,
    prepare: F,
}

impl<I: Iterator, F, B> Worker<I, F, B> {
    pub(super) fn new(
        gpu: Gpu,
        source: impl IntoIterator<IntoIter = I>,
        prepare: F,
        queue: Arc<Queue<Result<B>>>,
        options: LoaderOptions,
    ) -> Self {
        Worker {
            source: Mutex::new(source.into_iter()),
            desk: Mutex::new(Some(Arc::new(Desk { gpu, prepare }))),
            queue,
            bytes_ahead: options.bytes_ahead,
        }
    }
}

impl<I, F, B> Step for Worker<I, F, B>
where
    I: Iterator + MaybeSend,
    F: Fn(&Uploader<'_>, I::Item) -> Result<B, PrepareError> + MaybeShared,
    B: MaybeSend,
{
    fn step(&self) -> bool {
        if !self.queue.enter_source() {
            return false;
        }
        let item = caught(|| {
            let source = self.source.lock();
            source.unwrap_or_else(PoisonError::into_inner).next()
        });
        let has_batch = !matches!(item, Ok(None));
        let has_ended = !matches!(item, Ok(Some(_)));
        let Some(batch) = self.queue.leave_source(has_batch, has_ended) else {
            return false;
        };
        let item = match item {
            Ok(Some(item)) => item,
            Ok(None) => return false,
            Err(message) => {
                let cause = format!("the source panicked: {message}");
                self.queue.finish(batch, Err(failed(batch, cause.into())));
                return false;
            }
        };
        let Some(desk) = self.desk().clone() else {
            return false;
        };
        let reserve = |bytes| self.reserve(&desk.gpu, batch, bytes);
        let uploader = Uploader::new(&desk.gpu, &reserve);
        let prepared = match caught(|| (desk.prepare)(&uploader, item)) {
            Ok(prepared) => prepared.map_err(|error| failed(batch, error)),
            Err(message) => {
                let cause = format!("`prepare` panicked: {message}");
                Err(failed(batch, cause.into()))
            }
        };
        self.queue.finish(batch, prepared);
        true
    }

    fn close(&self) {
        // The lock is not held while values of the app are dropped.
        let desk = self.desk().take();
        drop(desk);
    }
}

impl<I, F, B> Worker<I, F, B> {
    fn desk(&self) -> MutexGuard<'_, Option<Arc<Desk<F>>>> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve(&self, gpu: &Gpu, batch: u64, bytes: u64) -> Result<()> {
        let most_bytes = self.bytes_ahead;
        let most_bytes = most_bytes.unwrap_or_else(|| gpu.engine().here().staging_limit_bytes());
        match self.queue.reserve(batch, bytes, most_bytes) {
            true => Ok(()),
            false => Err(failed(batch, "the loader was dropped".into())),
        }
    }
}

/// The error for a batch. An error of this crate stays as it is.
fn failed(batch: u64, error: PrepareError) -> Error {
    match error.downcast::<Error>() {
        Ok(ours) => *ours,
        Err(theirs) => Error::Loader {
            batch,
            cause: theirs.into(),
        },
    }
}

/// Calls a function of the app. Returns the message of its panic.
fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        let message = message_of(&*panic);
        // A value whose drop panics must not end the thread.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
        message
    })
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message").into()
}
