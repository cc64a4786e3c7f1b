//! The list of a share's jobs: gives them shares, as `plan` decides, and wakes those that wait.

use std::sync::Arc;
#[cfg(not(target_arch = "wasm32"))]
use std::task::Wake;
use std::task::{Poll, Waker};
use std::time::Duration;
#[cfg(not(target_arch = "wasm32"))]
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;

#[cfg(not(target_arch = "wasm32"))]
use crate::engine::block_on;
#[cfg(not(target_arch = "wasm32"))]
use crate::engine::shares::WayMaker;
use crate::engine::shares::{End, MadeBy, Promised, Unmet};
use crate::engine::{Engine, Handle, shares};
use crate::error::{Error, Result};
use crate::gpu::Gpu;

use super::job::{Job, JobUse};
use super::plan::{Begun, Plan, Wish};

/// A thread that waits looks this often whether the memory of all jobs has changed. If several
/// wait, it is enough that one of them looks.
#[cfg(not(target_arch = "wasm32"))]
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The jobs of a share, by a handle of it.
#[derive(Clone, Debug)]
pub(crate) struct JobList {
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

/// The jobs by their numbers.
type Entries = FxHashMap<u64, Entry>;

#[derive(Debug, Default)]
struct State {
    plan: Plan,
    jobs: Entries,
    /// When a thread that waits looked last.
    #[cfg(not(target_arch = "wasm32"))]
    looked_at: Duration,
}

#[derive(Debug)]
struct Entry {
    job: Job,
    /// The handle of its share, while it runs.
    gpu: Option<Gpu>,
    /// Why it will not run, or not go on.
    failure: Option<Error>,
    /// What was in its way, though it fits beside the other jobs.
    unmet: Option<Unmet>,
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

/// A job that waits or runs. It leaves the list when this is dropped.
#[derive(Debug)]
pub(super) struct Entered {
    jobs: JobList,
    id: u64,
}

impl Entered {
    pub(super) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.jobs.leave(self.id);
    }
}

impl JobList {
    pub(crate) fn over(gpu: Gpu, board: Arc<Board>) -> JobList {
        JobList { gpu, board }
    }

    /// The engine of the share around. A dry run leaves jobs of the device where they are.
    fn engine(&self) -> &Arc<Engine> {
        self.gpu.engine().own()
    }

    /// Waits until a job may run: [`Jobs::admit`](super::Jobs::admit).
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn admit(&self, job: Job) -> Result<(Entered, Gpu)> {
        if self.engine().is_inside() {
            return Err(Error::Reentered);
        }
        let now = self.board.now();
        let deadline = job.deadline.map(|deadline| now.saturating_add(deadline));
        let entered = self.enter(job)?;
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        // The first look is at once.
        let (mut way_maker, mut has_more) = (WayMaker::default(), true);
        loop {
            if let Poll::Ready(admitted) = self.poll(entered.id, &waker) {
                return Ok((entered, admitted?));
            }
            if !has_more {
                let left = deadline.map(|deadline| deadline.saturating_sub(self.board.now()));
                std::thread::park_timeout(left.map_or(LOOK_AGAIN, |left| left.min(LOOK_AGAIN)));
            }
            let is_late = deadline.is_some_and(|deadline| deadline <= self.board.now());
            if is_late || has_more || self.may_look() {
                // Between two parts a deadline or a cancellation is noticed.
                has_more = match self.unmet_of_any(entered.id).filter(|_| !is_late) {
                    Some(unmet) => block_on("Jobs::admit", way_maker.part(self.engine(), unmet))?,
                    None => false,
                };
                self.look_again();
            }
        }
    }

    /// Whether this thread is the one that looks now, of all that wait.
    #[cfg(not(target_arch = "wasm32"))]
    fn may_look(&self) -> bool {
        let now = self.board.now();
        let looked_at = &mut self.board.state.lock().looked_at;
        let is_due = now.saturating_sub(*looked_at) >= LOOK_AGAIN / 2;
        if is_due {
            *looked_at = now;
        }
        is_due
    }

    /// What is in the way of a job, though it fits beside the other jobs.
    fn unmet(&self, id: u64) -> Option<Unmet> {
        self.board.state.lock().jobs.get(&id)?.unmet
    }

    /// What is in the way of this job, or else of another one: only one of those that wait looks.
    #[cfg(not(target_arch = "wasm32"))]
    fn unmet_of_any(&self, id: u64) -> Option<Unmet> {
        let state = self.board.state.lock();
        let own = state.jobs.get(&id).and_then(|entry| entry.unmet);
        let hindered = || {
            let all = state.jobs.iter();
            all.filter_map(|(id, entry)| Some((*id, entry.unmet?)))
        };
        own.or_else(|| hindered().min_by_key(|(id, _)| *id).map(|(_, unmet)| unmet))
    }

    /// If memory that may be of no use is in the way of a job, frees it and looks again.
    async fn make_way(&self, id: u64) -> Result<()> {
        let unmet = self.unmet(id);
        if let Some(unmet) = unmet.filter(|_| !self.engine().is_inside()) {
            shares::make_way(self.engine(), unmet).await?;
            self.look_again();
        }
        Ok(())
    }

    /// Admits what fits now: the memory of all jobs may have changed.
    pub(crate) fn look_again(&self) {
        self.advance(self.board.state.lock());
    }

    /// As [`admit`](Self::admit), as a future.
    pub(super) async fn admit_async(&self, job: Job) -> Result<(Entered, Gpu)> {
        let entered = self.enter(job)?;
        self.make_way(entered.id).await?;
        let admitted = std::future::poll_fn(|context| self.poll(entered.id, context.waker()));
        let gpu = admitted.await?;
        Ok((entered, gpu))
    }

    /// The jobs that wait and those that run, in the order of their arrival.
    pub(super) fn list(&self) -> Vec<JobUse> {
        let state = self.board.state.lock();
        let engine = self.engine();
        let guaranteed_bytes =
            |gpu: &Gpu| shares::sums_of(engine, std::iter::once(gpu.engine().own())).0;
        let rows = state.jobs.iter();
        let rows = rows.filter(|(_, entry)| entry.failure.is_none());
        let rows = rows.map(|(&id, entry)| JobUse {
            id,
            name: entry.job.name.clone(),
            peak_bytes: entry.job.peak_bytes,
            priority: entry.job.priority,
            guaranteed_bytes: entry.gpu.as_ref().map(guaranteed_bytes),
            waits_because: (state.plan.reason(id))
                .map(|why| why.text(&entry.job, entry.unmet, &state.plan)),
        });
        let mut rows: Vec<JobUse> = rows.collect();
        rows.sort_by_key(|row| row.id);
        rows
    }

    /// Cancels a job: [`Jobs::cancel`](super::Jobs::cancel).
    pub(super) fn cancel(&self, id: u64) -> bool {
        let mut state = self.board.state.lock();
        let entry = state.jobs.get_mut(&id);
        let Some(entry) = entry.filter(|entry| entry.failure.is_none()) else {
            return false;
        };
        if let Some(gpu) = &entry.gpu {
            shares::end(gpu.engine().own(), End::Cancelled);
        }
        let when = match entry.gpu {
            Some(_) => "it was cancelled",
            None => "it was cancelled while it waited",
        };
        entry.fail(entry.job.error(when));
        self.advance(state);
        true
    }

    fn enter(&self, job: Job) -> Result<Entered> {
        shares::check_name(&job.name)?;
        if self.gpu.engine().is_faked() {
            let reason = "a dry run admits no jobs of the device: use the list of jobs of the dry \
                          run's handle";
            return Err(job.error(reason));
        }
        self.engine().check_open()?;
        let mut state = self.board.state.lock();
        let capacity_bytes = self.capacity_bytes(&state)?;
        state.plan.capacity_bytes = capacity_bytes;
        let most_bytes = self.most_bytes(capacity_bytes);
        if job.peak_bytes > most_bytes {
            return Err(job.never_fits(most_bytes));
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
            unmet: None,
            waker: None,
            is_news: false,
        };
        state.jobs.insert(id, entry);
        self.advance(state);
        let jobs = self.clone();
        Ok(Entered { jobs, id })
    }

    /// The bytes for all jobs together.
    fn capacity_bytes(&self, state: &State) -> Result<u64> {
        let engine = self.engine();
        // Not what the plan would guarantee now, but what the table of shares has.
        let (ours_bytes, _) = sums(&state.jobs, engine);
        match shares::unpromised_bytes(engine) {
            Some(bytes) => Ok(bytes + ours_bytes),
            None => {
                let reason = "jobs need one: without a budget, everything fits";
                Err(Error::option("budget", reason))
            }
        }
    }

    /// The most bytes that all jobs together may have later. Within a job, they get back what jobs
    /// of higher priorities have taken from it.
    fn most_bytes(&self, capacity_bytes: u64) -> u64 {
        capacity_bytes.saturating_add(shares::lowered_bytes(self.engine()))
    }

    fn poll(&self, id: u64, waker: &Waker) -> Poll<Result<Gpu>> {
        let mut state = self.board.state.lock();
        let Some(entry) = state.jobs.get_mut(&id) else {
            return Poll::Pending;
        };
        let before = entry.waker.take();
        if let Some(error) = entry.failure.take() {
            let gone = state.jobs.remove(&id);
            drop(state);
            // It may be the last handle of the share.
            drop(gone);
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
        let mut state = self.board.state.lock();
        let gone = state.jobs.remove(&id);
        if let Some(gpu) = gone.as_ref().and_then(|entry| entry.gpu.as_ref()) {
            // The guarantee goes in the same moment as the job, so that the sum of both is right
            // for all.
            shares::end(gpu.engine().own(), End::Closed);
        }
        state.plan.leave(id);
        self.advance(state);
        // It may be the last handle of the share.
        drop(gone);
    }

    /// Admits what fits now, and gives the running jobs what they are guaranteed. Unlocks, and
    /// wakes those for whom there is news: a waker may run code of the app.
    fn advance(&self, mut state: MutexGuard<'_, State>) {
        if let Ok(capacity_bytes) = self.capacity_bytes(&state) {
            let most_bytes = self.most_bytes(capacity_bytes);
            state.plan.capacity_bytes = capacity_bytes;
            for id in state.plan.take_larger(most_bytes) {
                if let Some(entry) = state.jobs.get_mut(&id) {
                    let closed = self.engine().check_open().err();
                    entry.fail(closed.unwrap_or_else(|| entry.job.never_fits(most_bytes)));
                }
            }
        }
        if let Err(lost) = self.engine().check_lost() {
            for id in state.plan.take_all() {
                if let Some(entry) = state.jobs.get_mut(&id) {
                    entry.fail(lost.clone());
                }
            }
        }
        for id in state.plan.take_late(self.board.now()) {
            if let Some(entry) = state.jobs.get_mut(&id) {
                entry.fail(entry.job.error("its deadline passed while it waited"));
            }
        }
        let State { plan, jobs, .. } = &mut *state;
        plan.admit(|id, guarantees| self.begin(jobs, id, guarantees));
        let changes = changes(jobs, &plan.guarantees());
        // A lost device is an error of whatever runs or begins next.
        let _ = shares::set_guarantees(self.engine(), &changes);
        let news = state.jobs.values_mut();
        let news = news.filter_map(|entry| {
            let is_news = std::mem::take(&mut entry.is_news);
            entry.waker.take_if(|_| is_news)
        });
        let woken: Vec<Waker> = news.collect();
        let failed = state.jobs.iter();
        let failed = failed.filter(|(_, entry)| entry.failure.is_some());
        let failed: Vec<u64> = failed.map(|(&id, _)| id).collect();
        failed.into_iter().for_each(|id| state.plan.leave(id));
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Gives a job its share, if its guarantee can be kept.
    fn begin(&self, jobs: &mut Entries, id: u64, guarantees: &[(u64, u64)]) -> Begun {
        let (changes, engine) = (changes(jobs, guarantees), self.engine());
        let guaranteed = guarantees.iter().find(|(of, _)| *of == id);
        let (Some(entry), Some(&(_, bytes))) = (jobs.get_mut(&id), guaranteed) else {
            return Begun::Fails;
        };
        let (name, share) = (&entry.job.name, entry.job.share(bytes));
        let added: Result<Promised<_>> =
            shares::add_beside(engine, name, share, MadeBy::Jobs, &changes);
        let unmet = match added {
            Ok(Ok(engine)) => {
                entry.gpu = Some(self.gpu.of_share(Handle::new(engine)));
                (entry.unmet, entry.is_news) = (None, true);
                return Begun::Runs;
            }
            Ok(Err(unmet)) => unmet,
            Err(error) => {
                entry.fail(error);
                return Begun::Fails;
            }
        };
        entry.unmet = Some(unmet);
        let (_, held_bytes) = sums(jobs, engine);
        let in_the_way_bytes = unmet.stuck_bytes.max(unmet.pinned_bytes);
        match unmet.missing_bytes == 0 && in_the_way_bytes <= held_bytes {
            true => Begun::WaitsForJobs,
            false => Begun::WaitsForOthers,
        }
    }
}

/// The engines of the running jobs, and what these are guaranteed.
fn changes(jobs: &Entries, guarantees: &[(u64, u64)]) -> Vec<(Arc<Engine>, u64)> {
    let running = guarantees.iter().filter_map(|(id, bytes)| {
        let gpu = jobs.get(id)?.gpu.as_ref()?;
        Some((gpu.engine().own().clone(), *bytes))
    });
    running.collect()
}

/// What the jobs are guaranteed, and what they hold.
fn sums(jobs: &Entries, engine: &Engine) -> (u64, u64) {
    let gpus = jobs.values().filter_map(|entry| entry.gpu.as_ref());
    shares::sums_of(engine, gpus.map(|gpu| gpu.engine().own()))
}

impl Entry {
    fn fail(&mut self, error: Error) {
        (self.failure, self.is_news) = (Some(error), true);
    }
}
