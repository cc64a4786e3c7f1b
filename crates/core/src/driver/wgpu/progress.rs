//! Submissions in progress and done, and the loss of the device. It calls no wgpu function, so a
//! callback of wgpu may call it, whatever locks wgpu holds.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::super::{Signal, Submission};

/// The state that the driver shares with callbacks, which outlive the driver.
#[derive(Default)]
pub(super) struct QueueProgress {
    lost: OnceLock<String>,
    /// Whether this device was lost, or one before it. All of them share the flag.
    pub(super) was_lost: Arc<AtomicBool>,
    completed: AtomicU64,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    submitted: u64,
    /// By serial, the oldest first.
    in_flight: VecDeque<Flight>,
    mappings: Vec<Signal>,
}

struct Flight {
    serial: u64,
    #[cfg_attr(
        target_arch = "wasm32",
        allow(dead_code, reason = "a browser cannot block")
    )]
    index: wgpu::SubmissionIndex,
    done: Signal,
}

impl Pending {
    /// The place of a submission among those in flight.
    fn place_of(&self, serial: u64) -> Option<usize> {
        let found = (self.in_flight).binary_search_by_key(&serial, |flight| flight.serial);
        found.ok()
    }
}

/// Marks a submission as done when it is dropped. wgpu calls the callback or, at worst, drops it;
/// both happen only after the device has finished.
pub(super) struct DoneNotice {
    progress: Arc<QueueProgress>,
    serial: u64,
}

impl Drop for DoneNotice {
    fn drop(&mut self) {
        self.progress.finish(self.serial);
    }
}

/// Sets the signal of a mapping. A callback that is dropped without a call sets it as failed.
pub(super) struct MapNotice(Signal);

impl MapNotice {
    pub(super) fn tell(&self, happened: bool) {
        self.0.set(happened);
    }
}

impl Drop for MapNotice {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl QueueProgress {
    /// The progress of a device that replaces a lost one, which gives no further serials.
    pub(super) fn after(old: &QueueProgress) -> Self {
        let last = old.pending.lock().submitted;
        let progress = QueueProgress {
            was_lost: Arc::clone(&old.was_lost),
            completed: AtomicU64::new(last),
            ..QueueProgress::default()
        };
        progress.pending.lock().submitted = last;
        progress
    }

    /// The reason why the device is lost, once it is.
    pub(super) fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// Records the loss of the device, and ends all waits. The first reason stays.
    pub(super) fn lose(&self, reason: &str) {
        let _ = self.lost.set(reason.to_owned());
        self.was_lost.store(true, Ordering::Release);
        self.end_all();
    }

    /// The highest serial that is done. All serials up to it are done.
    pub(super) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Gives the next serial to a submission that the queue has taken. `None` on a lost device,
    /// whose serials may have passed to a new one.
    pub(super) fn record(
        self: &Arc<Self>,
        index: wgpu::SubmissionIndex,
    ) -> Option<(Submission, DoneNotice)> {
        let mut pending = self.pending.lock();
        if self.lost.get().is_some() {
            return None;
        }
        pending.submitted += 1;
        let serial = pending.submitted;
        let done = Signal::after(serial);
        let flight = Flight {
            serial,
            index,
            done: done.clone(),
        };
        pending.in_flight.push_back(flight);
        drop(pending);
        self.end_all_if_lost();
        let progress = Arc::clone(self);
        Some((Submission { serial, done }, DoneNotice { progress, serial }))
    }

    /// A signal for a mapping that takes place after all submissions so far.
    pub(super) fn mapping(&self) -> (Signal, MapNotice) {
        let mut pending = self.pending.lock();
        let signal = Signal::after(pending.submitted);
        pending.mappings.retain(|other| other.outcome().is_none());
        pending.mappings.push(signal.clone());
        drop(pending);
        self.end_all_if_lost();
        let notice = MapNotice(signal.clone());
        (signal, notice)
    }

    /// wgpu's index of a submission that is still in progress.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn index_of(&self, serial: u64) -> Option<wgpu::SubmissionIndex> {
        let pending = self.pending.lock();
        let place = pending.place_of(serial)?;
        Some(pending.in_flight[place].index.clone())
    }

    fn finish(&self, serial: u64) {
        let mut pending = self.pending.lock();
        let place = pending.place_of(serial);
        let flight = place.and_then(|place| pending.in_flight.remove(place));
        let completed = match pending.in_flight.front() {
            Some(oldest) => oldest.serial - 1,
            None => pending.submitted,
        };
        // The lock is still held, so that the number never decreases.
        if self.lost.get().is_none() {
            self.completed.store(completed, Ordering::Release);
        }
        drop(pending);
        if let Some(flight) = flight {
            flight.done.set(true);
        }
    }

    fn end_all_if_lost(&self) {
        if self.lost.get().is_some() {
            self.end_all();
        }
    }

    fn end_all(&self) {
        let mut pending = self.pending.lock();
        let flights = std::mem::take(&mut pending.in_flight);
        let mappings = std::mem::take(&mut pending.mappings);
        drop(pending);
        flights.iter().for_each(|flight| flight.done.lose());
        mappings.iter().for_each(|signal| signal.lose());
    }
}
