//! Loaders: threads prepare batches and upload them ahead of a training loop.
//!
//! ```text
//!   source ──next──► prepare ──upload──► │ 7 │ 8 │ 9 │ ──next──► the loop
//!   one at a time    on threads          ahead, in the order     on its own thread
//!                                        of the source
//! ```
//!
//! [`Gpu::loader`] starts one, and the guide [`feed_a_training_loop`] shows it in a loop.
//!
//! The module `queue` keeps the order and the bounds, and knows neither devices nor the app's
//! functions. The module `worker` calls these functions; its panics end there.
//!
//! [`feed_a_training_loop`]: crate::guides::feed_a_training_loop

mod queue;
mod stats;
mod uploader;
mod worker;

use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;
#[cfg(not(target_arch = "wasm32"))]
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lapidary_core::internal::{MaybeSend, MaybeShared};
use lapidary_core::{Error, Result};

use crate::gpu::Gpu;
use queue::{Next, Queue};
use worker::{Step, Worker};

pub use stats::LoaderStats;
pub use uploader::Uploader;

/// The error of a function that prepares batches: any error.
pub type PrepareError = Box<dyn std::error::Error + Send + Sync>;

/// Most threads of a loader.
const MOST_THREADS: usize = 1024;

/// How far a loader works ahead: see [`Gpu::loader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Threads that prepare batches, at most 1024. With 0, and always in a browser, nothing is
    /// prepared ahead: the call that wants a batch prepares it. The default is 1.
    pub threads: usize,
    /// Most batches ahead: those that are being prepared or are ready, and were not delivered.
    /// At least 1. The default is 2.
    pub batches_ahead: usize,
    /// Most bytes that the batches ahead may have uploaded. An upload beyond it waits. The batch
    /// that is delivered next never waits, and may exceed the bound. `None`, the default: as many
    /// bytes as the staging of uploads may take
    /// ([`staging_limit_bytes`](crate::stats::MemoryStats::staging_limit_bytes)). That is at most
    /// 64 MiB, and less in a small budget.
    pub bytes_ahead: Option<u64>,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        LoaderOptions {
            threads: 1,
            batches_ahead: 2,
            bytes_ahead: None,
        }
    }
}

impl LoaderOptions {
    fn check(&self) -> Result<()> {
        if self.threads > MOST_THREADS {
            let threads = self.threads;
            return Err(Error::Option {
                option: "threads",
                reason: format!("{threads} are more than {MOST_THREADS}; use one for each core"),
            });
        }
        if self.batches_ahead == 0 {
            return Err(Error::Option {
                option: "batches_ahead",
                reason: "0 leaves no place for a batch; use 1, or 0 threads to prepare nothing \
                         ahead"
                    .into(),
            });
        }
        Ok(())
    }
}

impl Gpu {
    /// Prepares batches on threads and uploads them while the device computes. The result is an
    /// iterator over the batches.
    ///
    /// `prepare` makes a batch of an item of `source`. It may return anything: tensors, a struct,
    /// a tensor with file names. It uploads with its [`Uploader`]. Both functions run on the
    /// threads of the loader: `next` of the source on one thread at a time, `prepare` on several.
    ///
    /// Batches come in the order of the source, whatever the threads do. So the same source and
    /// the same seeds give the same training, with any options. Batches ahead are ordinary
    /// tensors: they count against the budget, and lapidary evicts them under pressure.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] {
    /// # let (gpu, _) = lapidary::Gpu::simulated(Default::default())?;
    /// use lapidary::loader::LoaderOptions;
    ///
    /// let options = LoaderOptions { threads: 2, batches_ahead: 4, ..Default::default() };
    /// let mut loader = gpu.loader(0..10_u32, options, |uploader, number| {
    ///     let pixels = vec![number as f32; 64]; // read and decoded here
    ///     let labels = uploader.tensor(&[number], &[1])?;
    ///     Ok((uploader.tensor(&pixels, &[1, 64])?, labels))
    /// })?;
    /// for (batch, expected) in (&mut loader).zip(0..) {
    ///     let (_images, labels) = batch?;
    ///     assert_eq!(labels.to_vec::<u32>()?, [expected]);
    /// }
    /// println!("{}", loader.stats());
    /// # }
    /// # Ok::<(), lapidary::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] for options out of range, and if the system starts no more threads.
    /// [`Error::DeviceLost`].
    pub fn loader<S, B>(
        &self,
        source: S,
        options: LoaderOptions,
        prepare: impl Fn(&Uploader<'_>, S::Item) -> Result<B, PrepareError> + MaybeShared + 'static,
    ) -> Result<Loader<B>>
    where
        S: IntoIterator,
        S::IntoIter: MaybeSend + 'static,
        B: MaybeSend + 'static,
    {
        options.check()?;
        self.engine().here().check_lost()?;
        let queue = Arc::new(Queue::new(options.batches_ahead));
        let worker = Worker::new(self.clone(), source, prepare, queue.clone(), options);
        let loader = Loader {
            gpu: self.clone(),
            queue,
            worker: Arc::new(worker),
            #[cfg(not(target_arch = "wasm32"))]
            threads: Vec::new(),
        };
        // A browser gives a library no threads.
        #[cfg(not(target_arch = "wasm32"))]
        let loader = loader.started(options)?;
        Ok(loader)
    }
}

/// Batches in the order of their source, prepared ahead: see [`Gpu::loader`].
///
/// As an iterator it gives a `Result` for each batch:
///
/// * An error of `prepare` stands in the place of its batch; the next batches follow. An
///   [`Error`] of this crate is passed on as it is. Any other error is the cause of
///   an [`Error::Loader`]. So is the message of a panic.
/// * A panic of the source is the last error. The loader ends after it.
/// * [`Error::DeviceLost`] ends the loader. After a
///   [`reopen`](lapidary_core::Gpu::reopen), make a new one from the place that you remember.
/// * [`Error::Reentered`] within a callback of the `Gpu`, if no batch is ready. Nothing is lost.
///
/// Before it waits for a batch, it runs all recorded work ([`flush`](lapidary_core::Gpu::flush)),
/// so that the device computes meanwhile. It blocks the thread, in an `async` function too.
///
/// Dropping it drops the batches ahead. It waits for calls of `prepare` that run now, and starts no
/// more. It does not wait for `next` of the source, whose thread ends when that call returns, and
/// holds nothing but the source until then.
pub struct Loader<B> {
    gpu: Gpu,
    queue: Arc<Queue<Result<B>>>,
    /// The app's functions, for a loader without threads.
    worker: Arc<dyn Step>,
    #[cfg(not(target_arch = "wasm32"))]
    threads: Vec<JoinHandle<()>>,
}

impl<B> Loader<B> {
    /// What the loader has done so far.
    pub fn stats(&self) -> LoaderStats {
        self.queue.stats()
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn started(mut self, options: LoaderOptions) -> Result<Self> {
        // More threads than batches ahead would have nothing to do.
        for started in 0..options.threads.min(options.batches_ahead) {
            let worker = self.worker.clone();
            let thread = thread::Builder::new().name("lapidary loader".into());
            let thread = thread.spawn(move || while worker.step() {});
            self.threads.push(thread.map_err(|error| Error::Option {
                option: "threads",
                reason: format!("the system starts no more than {started} of them: {error}"),
            })?);
        }
        Ok(self)
    }

    /// The next batch. An error here is not of a batch.
    fn advance(&self) -> Result<Option<Result<B>>> {
        self.gpu.engine().here().check_lost()?;
        if let Next::Pending = self.queue.look() {
            self.wait()?;
            self.gpu.engine().here().check_lost()?;
        }
        Ok(self.queue.take())
    }

    /// Waits until the next batch is ready, or there is none.
    fn wait(&self) -> Result<()> {
        // In a browser the page's next wait runs the queue.
        #[cfg(not(target_arch = "wasm32"))]
        self.gpu.flush()?;
        let waited = timed(|| match self.has_threads() {
            true => self.queue.wait(),
            false => while matches!(self.queue.look(), Next::Pending) && self.worker.step() {},
        });
        if let Next::Ready = self.queue.look() {
            let was_idle = self.gpu.engine().here().is_device_idle();
            self.queue.count_wait(waited, was_idle);
        }
        Ok(())
    }

    fn has_threads(&self) -> bool {
        #[cfg(not(target_arch = "wasm32"))]
        return !self.threads.is_empty();
        #[cfg(target_arch = "wasm32")]
        return false;
    }

    /// Ends the loader, and drops the batches ahead.
    fn close(&self) {
        // The lock is not held while values of the app are dropped.
        let ahead = self.queue.close();
        drop(ahead);
        self.worker.close();
    }
}

/// Runs `work`. Returns the time that it took, or 0 where there is no clock.
fn timed(work: impl FnOnce()) -> Duration {
    #[cfg(not(target_arch = "wasm32"))]
    {
        let start = std::time::Instant::now();
        work();
        start.elapsed()
    }
    #[cfg(target_arch = "wasm32")]
    {
        work();
        Duration::ZERO
    }
}

impl<B> Iterator for Loader<B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Result<B>> {
        if self.queue.is_closed() {
            return None;
        }
        match self.advance() {
            Ok(batch) => batch,
            Err(error) => {
                if let Error::DeviceLost { .. } = error {
                    self.close();
                }
                Some(Err(error))
            }
        }
    }
}

impl<B> FusedIterator for Loader<B> {}

impl<B> Drop for Loader<B> {
    fn drop(&mut self) {
        self.close();
        #[cfg(not(target_arch = "wasm32"))]
        {
            let in_source = self.queue.thread_in_source();
            // A thread may wait for the end of this callback, or be this one.
            let is_inside = self.gpu.engine().here().is_inside();
            for thread in self.threads.drain(..) {
                let id = thread.thread().id();
                if !is_inside && Some(id) != in_source && id != thread::current().id() {
                    // Panics of the app's values concern no caller here.
                    let _ = thread.join();
                }
            }
        }
    }
}

impl<B> fmt::Debug for Loader<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Loader");
        f.field("stats", &self.stats()).finish_non_exhaustive()
    }
}
