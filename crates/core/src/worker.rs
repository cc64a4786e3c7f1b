//! A thread that works beside execution passes: it does one task after the other.
//!
//! Whoever drops the handle of a task gives it up: it does not begin any more, or its result is
//! dropped.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use std::{fmt, thread};

use parking_lot::{Condvar, Mutex};

/// A thread, which starts at the first task and ends with this.
pub(crate) struct Worker {
    name: &'static str,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    queued: Condvar,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Arc<dyn Run>>,
    has_thread: bool,
    is_closed: bool,
}

/// A task, whatever its result is, for the thread that runs it.
pub(crate) trait Run: Send + Sync {
    fn run(&self);
}

/// How far a task has come.
enum Step<T> {
    Waiting(Box<dyn FnOnce() -> T + Send>),
    Running,
    Done(T),
    /// Nobody wants the result, or there is none: the task panicked.
    Over,
}

struct TaskState<T> {
    step: Mutex<Step<T>>,
    ended: Condvar,
}

impl<T: Send> Run for TaskState<T> {
    fn run(&self) {
        let begun = std::mem::replace(&mut *self.step.lock(), Step::Running);
        let done = match begun {
            Step::Waiting(work) => catch_unwind(AssertUnwindSafe(work)).ok(),
            _ => None,
        };
        let mut step = self.step.lock();
        let before = std::mem::replace(&mut *step, Step::Over);
        if let (Step::Running, Some(done)) = (before, done) {
            *step = Step::Done(done);
        }
        self.ended.notify_all();
    }
}

/// The handle of a task.
pub(crate) struct Task<T>(Arc<TaskState<T>>);

impl<T: Send + 'static> Task<T> {
    /// A task, and what a thread has to run for it.
    pub(crate) fn new(work: impl FnOnce() -> T + Send + 'static) -> (Self, Arc<dyn Run>) {
        let state = Arc::new(TaskState {
            step: Mutex::new(Step::Waiting(Box::new(work))),
            ended: Condvar::new(),
        });
        (Task(state.clone()), state)
    }
}

impl<T> Task<T> {
    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(*self.0.step.lock(), Step::Done(_) | Step::Over)
    }

    /// Waits for the result. `None` if the task panicked.
    pub(crate) fn wait(self) -> Option<T> {
        self.wait_until(None)
    }

    /// As [`wait`](Self::wait), but gives the task up at a time. Then there is no result, either.
    pub(crate) fn wait_until(self, until: Option<Instant>) -> Option<T> {
        let mut step = self.0.step.lock();
        while matches!(*step, Step::Waiting(_) | Step::Running) {
            match until {
                None => self.0.ended.wait(&mut step),
                Some(until) if self.0.ended.wait_until(&mut step, until).timed_out() => break,
                Some(_) => {}
            }
        }
        let last = std::mem::replace(&mut *step, Step::Over);
        // Work that did not begin is dropped without the lock.
        drop(step);
        match last {
            Step::Done(done) => Some(done),
            _ => None,
        }
    }

    /// Gives the task up. If it has begun, waits for its end.
    pub(crate) fn stop(self) {
        let mut step = self.0.step.lock();
        // The work is dropped after the lock. Until then the thread could begin it.
        let _work = match *step {
            Step::Waiting(_) => Some(std::mem::replace(&mut *step, Step::Over)),
            _ => None,
        };
        while matches!(*step, Step::Running) {
            self.0.ended.wait(&mut step);
        }
        drop(step);
    }

    /// Whether it has begun.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(*self.0.step.lock(), Step::Waiting(_))
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        // The work or the result is dropped without the lock.
        let _step = std::mem::replace(&mut *self.0.step.lock(), Step::Over);
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Task")
    }
}

debug_by_name!(Worker { name });

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
        self.shared.queued.notify_all();
    }
}

impl Worker {
    /// A worker whose thread has this name.
    pub(crate) fn new(name: &'static str) -> Worker {
        Worker {
            name,
            shared: Arc::default(),
        }
    }

    /// Begins a task. `None` if the system gives no thread.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<Task<T>> {
        let mut state = self.shared.state.lock();
        if !state.has_thread {
            let shared = self.shared.clone();
            let thread = thread::Builder::new().name(self.name.into());
            thread.spawn(move || shared.run()).ok()?;
            state.has_thread = true;
        }
        let (task, run) = Task::new(work);
        state.tasks.push_back(run);
        drop(state);
        self.shared.queued.notify_one();
        Some(task)
    }
}

impl Shared {
    fn run(&self) {
        while let Some(task) = self.next() {
            task.run();
        }
    }

    /// Waits for the next task. `None` if there will be no more.
    fn next(&self) -> Option<Arc<dyn Run>> {
        let mut state = self.state.lock();
        loop {
            match state.tasks.pop_front() {
                Some(task) => return Some(task),
                None if state.is_closed => return None,
                None => self.queued.wait(&mut state),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn tasks_are_done_in_order_beside_the_caller() {
        let worker = Worker::new("lapidary test");
        let order = Arc::new(Mutex::new(Vec::new()));
        let tasks = (0..10).map(|number| {
            let order = order.clone();
            let work = move || {
                order.lock().push(number);
                (2 * number, thread::current().id())
            };
            worker.begin(work).unwrap()
        });
        let tasks: Vec<_> = tasks.collect();
        for (number, task) in tasks.into_iter().enumerate() {
            let (result, id) = task.wait().unwrap();
            assert_eq!(result, 2 * number);
            assert_ne!(id, thread::current().id());
        }
        assert_eq!(*order.lock(), Vec::from_iter(0..10));
    }

    #[test]
    fn a_task_that_is_given_up_does_not_begin() {
        let worker = Worker::new("lapidary test");
        let (go_on, gate) = channel::<()>();
        let (begun, has_begun) = channel();
        let first = worker.begin(move || {
            let _ = begun.send(());
            gate.recv()
        });
        has_begun.recv().unwrap();
        let ran = Arc::new(Mutex::new(false));
        let runs = ran.clone();
        let second = worker.begin(move || *runs.lock() = true).unwrap();
        assert!(!second.has_begun() && !second.has_ended());
        drop(second);
        let third = worker.begin(|| ()).unwrap();
        drop(go_on);
        assert!(first.unwrap().wait().unwrap().is_err());
        third.wait().unwrap();
        assert!(!*ran.lock());
    }

    #[test]
    fn a_task_that_is_stopped_has_ended_or_never_begins() {
        let worker = Worker::new("lapidary test");
        let running = Arc::new(Mutex::new(0));
        for _ in 0..200 {
            let runs = running.clone();
            let task = worker.begin(move || {
                *runs.lock() += 1;
                thread::yield_now();
                *runs.lock() -= 1;
            });
            task.unwrap().stop();
            assert_eq!(*running.lock(), 0);
        }
    }

    #[test]
    fn a_task_that_panics_has_no_result_and_the_next_one_runs() {
        let worker = Worker::new("lapidary test");
        let panics = worker.begin(|| panic!("as the test wants")).unwrap();
        let next = worker.begin(|| 7).unwrap();
        assert!(panics.wait().is_none());
        assert_eq!(next.wait(), Some(7));
    }
}
