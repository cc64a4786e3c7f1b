//! Jobs: work that is admitted when the memory that it needs is free.
//!
//! A job says its peak. It runs in a share of its own, with the peak as its guarantee and its
//! ceiling. `plan` decides in numbers which jobs run; this module gives them shares and wakes those
//! that wait.

mod plan;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
#[cfg(not(target_arch = "wasm32"))]
use std::task::Wake;
use std::task::{Poll, Waker};
use std::time::Duration;
#[cfg(not(target_arch = "wasm32"))]
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;

use crate::engine::shares::End;
use crate::engine::{Engine, shares};
use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::memory::Share;
use crate::printable::printable;
use crate::units::Bytes;
use plan::{Plan, Reason, Wish};

/// A thread that waits looks this often whether the memory of all jobs has changed.
#[cfg(not(target_arch = "wasm32"))]
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a job needs: see [`Jobs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    name: String,
    peak_bytes: u64,
    priority: i8,
    deadline: Option<Duration>,
}

impl Job {
    /// A job that holds at most `peak_bytes` on the device at once. A dry run finds that number:
    /// [`DryRun::peak_added_bytes`](crate::stats::DryRun::peak_added_bytes).
    ///
    /// The job is held to it: it evicts its own buffers to stay below, and an operation that needs
    /// more is an error. Other jobs notice nothing.
    pub fn new(name: &str, peak_bytes: u64) -> Job {
        Job {
            name: name.to_owned(),
            peak_bytes,
            priority: 0,
            deadline: None,
        }
    }

    /// The same with this priority. A job with a higher one is admitted before, and its commands
    /// run first. It takes memory from running jobs with a lower one, whose buffers are evicted.
    pub fn with_priority(self, priority: i8) -> Job {
        Job { priority, ..self }
    }

    /// The same with a deadline, from the call that asks for admission on. Among jobs of one
    /// priority the earlier deadline goes first. A job that still waits then is an error.
    pub fn with_deadline(self, deadline: Duration) -> Job {
        Job {
            deadline: Some(deadline),
            ..self
        }
    }
}

/// Errors and lists show only the beginning of a longer name.
const NAME_COLUMNS: usize = 60;

/// What a job does: one row of [`Jobs::list`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobUse {
    /// The number of the job, for [`Jobs::cancel`].
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its peak, in bytes.
    pub peak_bytes: u64,
    /// Its priority.
    pub priority: i8,
    /// What it is guaranteed now: its peak or, below jobs of a higher priority, what these leave.
    /// `None` while it waits.
    pub guaranteed_bytes: Option<u64>,
    /// Why it waits, with the numbers. `None` while it runs.
    pub waits_because: Option<String>,
}

/// Admits jobs to the memory of a handle: of a device, or of a share of it. From
/// [`Gpu::jobs`](crate::Gpu::jobs); all clones and all handles of the same share have one list.
///
/// - Jobs whose peaks fit together run together. The order is that of priority, then deadline, then
///   arrival. A job may pass an earlier one that does not fit yet, or has no deadline. But a job
///   that was passed 32 times lets none of its priority or a lower one pass.
/// - Work of a higher priority goes first, always: under a steady stream of it, jobs of lower
///   priorities wait. A job does not wait for running ones of a lower priority. They go on, and
///   their buffers are evicted for it.
/// - The memory of all jobs is what the device's budget leaves beside the guarantees of other
///   shares. On the handle of a share, it is that share's guarantee.
///
/// ```
/// use lapidary_core::jobs::Job;
/// # fn demo(gpu: &lapidary_core::Gpu) -> lapidary_core::Result<()> {
///
/// let running = gpu.jobs().admit(Job::new("thumbnails", 64 << 20).with_priority(-1))?;
/// let pixels = running.buffer_zeroed(16 << 20)?; // a `Running` is a handle
/// drop(running); // the next job may begin
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Jobs {
    gpu: Gpu,
    board: Arc<Board>,
}

/// The jobs of one share.
#[derive(Debug)]
pub(crate) struct Board {
    #[cfg(not(target_arch = "wasm32"))]
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    plan: Plan,
    jobs: FxHashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    job: Job,
    /// The handle of its share, while it runs.
    gpu: Option<Gpu>,
    /// Why it will not run.
    failure: Option<Error>,
    waker: Option<Waker>,
    /// Something happened that who waits must know.
    is_news: bool,
}

impl Board {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Board {
            #[cfg(not(target_arch = "wasm32"))]
            began: Instant::now(),
            state: Mutex::default(),
        })
    }

    /// The time since the beginning. A browser has no clock, and so no job is late there.
    fn now(&self) -> Duration {
        #[cfg(not(target_arch = "wasm32"))]
        return self.began.elapsed();
        #[cfg(target_arch = "wasm32")]
        return Duration::ZERO;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// An admitted job: a [`Gpu`] of the job's share. The job ends when this is dropped. Buffers that
/// live on then are guaranteed nothing.
#[derive(Debug)]
pub struct Running {
    id: u64,
    gpu: Gpu,
    jobs: Jobs,
}

impl Running {
    /// The number of the job, for [`Jobs::cancel`].
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl Deref for Running {
    type Target = Gpu;

    fn deref(&self) -> &Gpu {
        &self.gpu
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.jobs.leave(self.id);
    }
}

/// Wakes the thread that waits for a job.
#[cfg(not(target_arch = "wasm32"))]
struct Unpark(std::thread::Thread);

#[cfg(not(target_arch = "wasm32"))]
impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A job that waits. It leaves the list if its future is dropped.
struct Ticket<'a> {
    jobs: &'a Jobs,
    id: u64,
    is_over: bool,
}

impl Ticket<'_> {
    /// The job runs.
    fn admitted(mut self, gpu: Gpu) -> Running {
        self.is_over = true;
        Running {
            id: self.id,
            gpu,
            jobs: self.jobs.clone(),
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.jobs.leave(self.id);
        }
    }
}

impl Jobs {
    pub(crate) fn over(gpu: Gpu, board: Arc<Board>) -> Jobs {
        Jobs { gpu, board }
    }

    /// Waits until a job may run.
    ///
    /// # Errors
    /// [`Error::NeverFits`] for a peak beyond the memory of all jobs. [`Error::Share`] if its
    /// deadline passes or it is cancelled while it waits, and for its name as [`Gpu::share`]. The
    /// same in a [dry run](Gpu::dry_run), unless this list is that of its handle. [`Error::Option`]
    /// on a device without a budget.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn admit(&self, job: Job) -> Result<Running> {
        let deadline = job
            .deadline
            .map(|deadline| self.board.now().saturating_add(deadline));
        let ticket = self.enter(job)?;
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            if let Poll::Ready(admitted) = self.poll(ticket.id, &waker) {
                return Ok(ticket.admitted(admitted?));
            }
            let left = deadline.map(|deadline| deadline.saturating_sub(self.board.now()));
            std::thread::park_timeout(left.map_or(LOOK_AGAIN, |left| left.min(LOOK_AGAIN)));
            self.look_again();
        }
    }

    /// Admits what fits now: the memory of all jobs may have changed.
    pub(crate) fn look_again(&self) {
        let mut state = self.board.lock();
        let woken = self.advance(&mut state);
        drop(state);
        wake(woken);
    }

    /// As [`admit`](Self::admit), as a future: the only form in a browser. It does not block the
    /// thread that polls it. A deadline, or a budget that was raised, is noticed when another job
    /// begins to wait or ends, and by [`Gpu::poll`].
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub async fn admit_async(&self, job: Job) -> Result<Running> {
        let ticket = self.enter(job)?;
        let admitted = std::future::poll_fn(|context| self.poll(ticket.id, context.waker()));
        let gpu = admitted.await?;
        Ok(ticket.admitted(gpu))
    }

    /// The jobs that wait and those that run, in the order of their arrival.
    pub fn list(&self) -> Vec<JobUse> {
        let state = self.board.lock();
        let guarantees: FxHashMap<u64, u64> = state.plan.guarantees().into_iter().collect();
        let rows = state
            .jobs
            .iter()
            .filter(|(_, entry)| entry.failure.is_none());
        let rows = rows.map(|(&id, entry)| JobUse {
            id,
            name: entry.job.name.clone(),
            peak_bytes: entry.job.peak_bytes,
            priority: entry.job.priority,
            guaranteed_bytes: guarantees.get(&id).copied(),
            waits_because: state
                .plan
                .reason(id)
                .map(|why| why.text(&entry.job, &state.plan)),
        });
        let mut rows: Vec<JobUse> = rows.collect();
        rows.sort_by_key(|row| row.id);
        rows
    }

    /// Cancels a job. If it waits, it is not admitted. If it runs, none of its commands runs after
    /// this, and its calls are errors. `false` if there is no such job.
    pub fn cancel(&self, id: u64) -> bool {
        let mut state = self.board.lock();
        let entry = state.jobs.get_mut(&id);
        let Some(entry) = entry.filter(|entry| entry.failure.is_none()) else {
            return false;
        };
        match &entry.gpu {
            Some(gpu) => shares::end(gpu.engine(), End::Cancelled),
            None => entry.fail(entry.job.error("it was cancelled while it waited".into())),
        }
        let woken = self.advance(&mut state);
        drop(state);
        wake(woken);
        true
    }

    fn enter(&self, job: Job) -> Result<Ticket<'_>> {
        shares::check_name(&job.name)?;
        shares::check_same_run(self.gpu.engine()).map_err(|reason| job.error(reason.into()))?;
        let mut state = self.board.lock();
        let capacity_bytes = self.capacity_bytes(&state)?;
        state.plan.set_capacity(capacity_bytes);
        if job.peak_bytes > capacity_bytes {
            return Err(job.never_fits(capacity_bytes));
        }
        let now = self.board.now();
        let id = state.plan.enter(Wish {
            peak_bytes: job.peak_bytes,
            priority: job.priority,
            deadline: job.deadline.map(|deadline| now.saturating_add(deadline)),
        });
        let entry = Entry {
            job,
            gpu: None,
            failure: None,
            waker: None,
            is_news: false,
        };
        state.jobs.insert(id, entry);
        let woken = self.advance(&mut state);
        drop(state);
        wake(woken);
        let is_over = false;
        Ok(Ticket {
            jobs: self,
            id,
            is_over,
        })
    }

    /// The bytes for all jobs together.
    fn capacity_bytes(&self, state: &State) -> Result<u64> {
        let engine: &Arc<Engine> = self.gpu.engine();
        // Not what the plan would guarantee now, but what the table of shares has.
        let ours = state.jobs.values().filter_map(|entry| entry.gpu.as_ref());
        let ours = ours.filter_map(|gpu| shares::guaranteed_bytes(gpu.engine()));
        let ours_bytes: u64 = ours.sum();
        let unpromised_bytes = shares::unpromised_bytes(engine);
        unpromised_bytes
            .map(|bytes| bytes + ours_bytes)
            .ok_or_else(|| Error::Option {
                option: "budget",
                reason: "jobs need one: without a budget, everything fits".into(),
            })
    }

    fn poll(&self, id: u64, waker: &Waker) -> Poll<Result<Gpu>> {
        let mut state = self.board.lock();
        let Some(entry) = state.jobs.get_mut(&id) else {
            return Poll::Pending;
        };
        let before = entry.waker.take();
        if let Some(error) = entry.failure.take() {
            state.jobs.remove(&id);
            return Poll::Ready(Err(error));
        }
        if let Some(gpu) = &entry.gpu {
            return Poll::Ready(Ok(gpu.clone()));
        }
        entry.waker = Some(waker.clone());
        drop(state);
        // It may be the last holder of a task, whose end may come here again.
        drop(before);
        Poll::Pending
    }

    fn leave(&self, id: u64) {
        let mut state = self.board.lock();
        let gone = state.jobs.remove(&id);
        if let Some(gpu) = gone.as_ref().and_then(|entry| entry.gpu.as_ref()) {
            // The guarantee goes in the same moment as the job, so that the sum of both is right
            // for all.
            shares::end(gpu.engine(), End::Closed);
        }
        state.plan.leave(id);
        let woken = self.advance(&mut state);
        drop(state);
        wake(woken);
        // It may be the last handle of the share.
        drop(gone);
    }

    /// Admits what fits now, and gives the running jobs what they are guaranteed. Returns whom to
    /// wake, without the lock.
    fn advance(&self, state: &mut State) -> Vec<Waker> {
        if let Ok(capacity_bytes) = self.capacity_bytes(state) {
            state.plan.set_capacity(capacity_bytes);
            for id in state.plan.take_too_large() {
                if let Some(entry) = state.jobs.get_mut(&id) {
                    entry.fail(entry.job.never_fits(capacity_bytes));
                }
            }
        }
        for id in state.plan.take_late(self.board.now()) {
            if let Some(entry) = state.jobs.get_mut(&id) {
                entry.fail(
                    entry
                        .job
                        .error("its deadline passed while it waited".into()),
                );
            }
        }
        state.plan.admit();
        let guarantees = state.plan.guarantees();
        // First those that run, all at once, so that there is room for those that begin.
        let running = guarantees.iter().filter_map(|(id, bytes)| {
            let gpu = state.jobs.get(id)?.gpu.as_ref()?;
            Some((gpu.engine(), *bytes))
        });
        shares::set_guarantees(self.gpu.engine(), running);
        for (id, bytes) in guarantees {
            let entry = state.jobs.get_mut(&id);
            let Some(entry) = entry.filter(|entry| entry.gpu.is_none()) else {
                continue;
            };
            match self.gpu.own_share(&entry.job.name, entry.job.share(bytes)) {
                Ok(gpu) => entry.gpu = Some(gpu),
                Err(error) => entry.fail(error),
            }
            entry.is_news = true;
        }
        let news = state.jobs.values_mut();
        let news = news.filter_map(|entry| {
            let is_news = std::mem::take(&mut entry.is_news);
            entry.waker.take_if(|_| is_news)
        });
        let woken = news.collect();
        let failed = state
            .jobs
            .iter()
            .filter(|(_, entry)| entry.failure.is_some());
        let failed: Vec<u64> = failed.map(|(&id, _)| id).collect();
        failed.into_iter().for_each(|id| state.plan.leave(id));
        woken
    }
}

/// Wakes those who wait. The caller has no lock: a waker may run code of the app.
fn wake(woken: Vec<Waker>) {
    woken.into_iter().for_each(Waker::wake);
}

impl Job {
    fn never_fits(&self, capacity_bytes: u64) -> Error {
        Error::NeverFits {
            what: "a job",
            requested_bytes: self.peak_bytes,
            limit_bytes: capacity_bytes,
            hint: "All jobs together have that much memory. Raise the budget or the guarantee, or \
                   split the job",
        }
    }

    fn error(&self, reason: String) -> Error {
        Error::Share {
            share: printable(&self.name, NAME_COLUMNS),
            reason,
        }
    }

    fn share(&self, guaranteed_bytes: u64) -> Share {
        Share::guaranteed(guaranteed_bytes)
            .with_ceiling(self.peak_bytes.max(1))
            .with_priority(self.priority)
    }
}

impl Entry {
    fn fail(&mut self, error: Error) {
        (self.failure, self.is_news) = (Some(error), true);
    }
}

impl Reason {
    fn text(&self, job: &Job, plan: &Plan) -> String {
        let (peak, free) = (Bytes(job.peak_bytes), Bytes(self.free_bytes));
        let all = Bytes(plan.capacity_bytes());
        let before = match self.before {
            0 => String::new(),
            1 => "; 1 job is before it".into(),
            count => format!("; {count} jobs are before it"),
        };
        match job.peak_bytes <= self.free_bytes && self.is_held_back {
            true => format!(
                "it would fit, but a job before it was passed too often and comes first{before}"
            ),
            false => format!(
                "it needs {peak}, and jobs of its priority and higher ones leave {free} of \
                 {all}{before}"
            ),
        }
    }
}

impl fmt::Display for JobUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = printable(&self.name, NAME_COLUMNS);
        write!(f, "{} {name}: {}", self.id, Bytes(self.peak_bytes))?;
        match (&self.waits_because, self.guaranteed_bytes) {
            (Some(why), _) => write!(f, ", waits: {why}"),
            (None, Some(bytes)) => write!(f, ", runs with {}", Bytes(bytes)),
            (None, None) => Ok(()),
        }
    }
}
