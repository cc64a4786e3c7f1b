//! Where requests wait, and where the worker takes them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use embed::Tokens;
use tokio::sync::oneshot;

use crate::answer::{Answer, Answered};
use crate::error::Refusal;
use crate::fair::{FairQueue, Full, Taken, Waiting};
use crate::numbers;
use crate::tenants::Tenants;

/// Clients are asked to come back after this long at most.
const MOST_RETRY_S: u64 = 30;

/// A text on its way to a vector.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) tokens: Tokens,
    pub(crate) answer: Arc<Answer>,
    /// Its number in the request.
    pub(crate) index: usize,
    /// Devices that were lost while it was computed.
    pub(crate) losses: u32,
    /// How often there was no room for it alone.
    pub(crate) shortages: u32,
}

/// The place between the connections and the worker.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) tenants: Tenants,
    state: Mutex<State>,
    /// Something was added, or the desk closed.
    news: Condvar,
    /// No device: nothing is accepted.
    is_down: AtomicBool,
    /// The worker has panicked: nothing is accepted any more.
    has_failed: AtomicBool,
    /// Texts a second of the last batches, times 1000.
    rate: AtomicU64,
    most_waiting: usize,
    width: usize,
}

#[derive(Debug)]
struct State {
    queue: FairQueue<Text>,
    next_request: u64,
    is_closed: bool,
}

impl Desk {
    pub(crate) fn new(tenants: Tenants, most_waiting: usize, width: usize) -> Desk {
        let queue = FairQueue::new(&tenants.weights(), most_waiting);
        Desk {
            tenants,
            state: Mutex::new(State {
                queue,
                next_request: 0,
                is_closed: false,
            }),
            news: Condvar::new(),
            is_down: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            rate: AtomicU64::new(0),
            most_waiting,
            width,
        }
    }

    /// Refuses early what [`reserve`](Self::reserve) would refuse, before a body is read.
    pub(crate) fn look(&self, tenant: usize) -> Result<(), Refusal> {
        let state = self.lock();
        self.check(&state)?;
        let looked = state.queue.check_places(tenant, 1);
        looked.map_err(|Full { waiting }| self.full(waiting))
    }

    /// Reserves places for the texts of a request, before they are divided into tokens. So a flood
    /// keeps no more cores busy with that than its queue has places.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        tenant: usize,
        texts: usize,
    ) -> Result<Places, Refusal> {
        let mut state = self.lock();
        self.check(&state)?;
        let reserved = state.queue.reserve(tenant, texts);
        reserved.map_err(|Full { waiting }| self.full(waiting))?;
        drop(state);
        let desk = self.clone();
        Ok(Places {
            desk,
            tenant,
            texts,
        })
    }

    /// Queues the texts of a request.
    pub(crate) fn submit(
        self: &Arc<Self>,
        mut places: Places,
        texts: Vec<Tokens>,
    ) -> Result<Ticket, Refusal> {
        debug_assert!(texts.len() <= places.texts, "each text has a place");
        let tenant = places.tenant;
        let (answer, receiver) = Answer::new(texts.len(), self.width);
        let answer = Arc::new(answer);
        let mut state = self.lock();
        self.check(&state)?;
        let request = state.next_request;
        state.next_request += 1;
        let waiting = texts
            .into_iter()
            .enumerate()
            .map(|(index, tokens)| Waiting {
                request,
                tokens: tokens.ids.len(),
                item: Text {
                    tokens,
                    answer: answer.clone(),
                    index,
                    losses: 0,
                    shortages: 0,
                },
            });
        state.queue.push(tenant, waiting.collect());
        state
            .queue
            .release(tenant, std::mem::take(&mut places.texts));
        drop(state);
        self.news.notify_one();
        Ok(Ticket {
            receiver,
            desk: self.clone(),
            tenant,
            request,
        })
    }

    /// The next batch; waits for one, or until then. Otherwise it waits until the desk is closed.
    pub(crate) fn next(
        &self,
        until: Option<Instant>,
        most: impl Fn(usize) -> usize,
    ) -> Option<Taken<Text>> {
        let mut state = self.lock();
        loop {
            if let Some(taken) = state.queue.take(&most) {
                return Some(taken);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => return None,
                Some(left) => {
                    let waited = self.news.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None if state.is_closed => return None,
                None => {
                    let waited = self.news.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// A batch for which `running` should pause.
    pub(crate) fn next_urgent(
        &self,
        running: &Taken<Text>,
        most: impl Fn(usize) -> usize,
    ) -> Option<Taken<Text>> {
        self.lock().queue.take_urgent(running, most)
    }

    /// Accepts nothing from now on. What waits is still computed.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.news.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// The worker is gone, so nothing is accepted, and what waits is refused. `has_failed` if that
    /// was no proper end.
    pub(crate) fn end(&self, has_failed: bool) {
        self.has_failed.store(has_failed, Ordering::Relaxed);
        self.close();
        self.refuse_all(&Refusal::Failed);
    }

    /// Whether the process can still answer, now or later.
    pub(crate) fn is_alive(&self) -> bool {
        !self.has_failed.load(Ordering::Relaxed)
    }

    /// Whether requests are accepted.
    pub(crate) fn is_ready(&self) -> bool {
        self.check(&self.lock()).is_ok()
    }

    /// There is no device, or there is one again. What waits without a device is refused.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
        if is_down {
            self.refuse_all(&NO_DEVICE);
        }
    }

    pub(crate) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    /// Refuses what waits.
    pub(crate) fn refuse_all(&self, refusal: &Refusal) {
        let waiting = self.lock().queue.drain();
        for text in waiting {
            text.answer.refuse(refusal);
        }
    }

    /// A batch of `texts` texts took `time`.
    pub(crate) fn note(&self, texts: usize, time: Duration) {
        let now = texts as f64 * 1000.0 / time.as_secs_f64().max(1e-6);
        let rate = self.rate.load(Ordering::Relaxed) as f64;
        let rate = if rate > 0.0 {
            0.9 * rate + 0.1 * now
        } else {
            now
        };
        self.rate.store(rate as u64, Ordering::Relaxed);
    }

    /// Sets the gauges of waiting texts.
    pub(crate) fn record(&self) {
        let state = self.lock();
        let tenants = 0..self.tenants.len();
        let waiting: Vec<_> = tenants.map(|tenant| state.queue.waiting(tenant)).collect();
        drop(state);
        for (tenant, waiting) in waiting.into_iter().enumerate() {
            numbers::waiting(self.tenants.name(tenant), waiting);
        }
    }

    fn check(&self, state: &State) -> Result<(), Refusal> {
        if state.is_closed {
            return Err(Refusal::Unavailable {
                why: "the server stops",
                retry_after_s: 5,
            });
        }
        match self.is_down() {
            true => Err(NO_DEVICE),
            false => Ok(()),
        }
    }

    /// The refusal of a tenant that has `waiting` texts waiting.
    fn full(&self, waiting: usize) -> Refusal {
        let rate = self.rate.load(Ordering::Relaxed).max(1000);
        Refusal::Full {
            waiting,
            most: self.most_waiting,
            retry_after_s: (waiting as u64 * 1000)
                .div_ceil(rate)
                .clamp(1, MOST_RETRY_S),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The refusal while there is no device.
pub(crate) const NO_DEVICE: Refusal = Refusal::Unavailable {
    why: "the device was lost and is not back yet",
    retry_after_s: 5,
};

/// Places in the queue of a tenant, until this is dropped.
#[derive(Debug)]
pub(crate) struct Places {
    desk: Arc<Desk>,
    tenant: usize,
    texts: usize,
}

impl Drop for Places {
    fn drop(&mut self) {
        self.desk.lock().queue.release(self.tenant, self.texts);
    }
}

/// A request that waits. Its texts leave the queue if it is dropped, as it is when the client goes.
#[derive(Debug)]
pub(crate) struct Ticket {
    receiver: oneshot::Receiver<Answered>,
    desk: Arc<Desk>,
    tenant: usize,
    request: u64,
}

impl Ticket {
    pub(crate) async fn answered(mut self) -> Answered {
        match (&mut self.receiver).await {
            Ok(answered) => answered,
            // The worker is gone.
            Err(_) => Err(Refusal::Failed),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.desk.lock().queue.cancel(self.tenant, self.request);
    }
}
