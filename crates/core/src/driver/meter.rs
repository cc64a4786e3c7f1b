//! Measures how long the device needs for predicted work.
//!
//! A submission carries a prediction of its time. If a caller waits for the submission, the end of
//! the wait is the end of the work. The ratio of both scales later predictions.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::Mutex;

/// A shorter time says more about the submission than about its work.
const LEAST_NS: f64 = 200_000.0;

/// The part of a new ratio in the mean.
const NEWS_PART: f64 = 0.125;

/// The bounds of the scale. A ratio beyond them measures something else than the work.
const BOUNDS: (f64, f64) = (1.0 / 256.0, 256.0);

/// The submissions whose end nobody has seen, and the scale.
#[derive(Debug, Default)]
pub(super) struct Meter(Mutex<Readings>);

#[derive(Debug, Default)]
struct Readings {
    /// The measured time ÷ the predicted time. `None` before the first measurement.
    scale: Option<f64>,
    /// The work under way, the oldest first.
    under_way: VecDeque<MeteredWork>,
    /// When older work was last seen to be done.
    done_at: Option<Instant>,
    /// The longest time of a submission.
    longest_ns: u64,
}

#[derive(Debug)]
struct MeteredWork {
    serial: u64,
    submitted_at: Instant,
    predicted_ns: f64,
}

impl Meter {
    /// The measured time ÷ the predicted time; 1 before the first measurement.
    pub(super) fn scale(&self) -> f64 {
        self.0.lock().scale.unwrap_or(1.0)
    }

    /// Takes over the scale of another device.
    pub(super) fn scale_as(&self, other: &Meter) {
        let scale = other.0.lock().scale;
        self.0.lock().scale = scale;
    }

    /// The longest time of a submission that somebody waited for, in nanoseconds.
    pub(super) fn longest_ns(&self) -> u64 {
        self.0.lock().longest_ns
    }

    /// Notes a submission. `completed` is the last one that was done before it.
    pub(super) fn submitted(&self, serial: u64, predicted_ns: f64, completed: u64) {
        let now = Instant::now();
        let mut readings = self.0.lock();
        readings.take_done(completed, now);
        readings.under_way.push_back(MeteredWork {
            serial,
            submitted_at: now,
            predicted_ns,
        });
    }

    /// A caller begins to wait. What is done already ended some time before.
    pub(super) fn begins_wait(&self, completed: u64) {
        self.0.lock().take_done(completed, Instant::now());
    }

    /// The wait has ended, because the device has done all submissions up to this one.
    pub(super) fn ended_wait(&self, completed: u64) {
        let now = Instant::now();
        let mut readings = self.0.lock();
        let began = readings.under_way.front().map(|work| work.submitted_at);
        let began = began.max(readings.done_at);
        let done = readings.under_way.iter();
        let done = done.filter(|work| work.serial <= completed).count();
        let predicted_ns = readings.take_done(completed, now);
        let Some(began) = began else { return };
        let measured_ns = now.duration_since(began).as_nanos();
        if done == 1 {
            let measured_ns = u64::try_from(measured_ns).unwrap_or(u64::MAX);
            readings.longest_ns = readings.longest_ns.max(measured_ns);
        }
        let measured_ns = measured_ns as f64;
        if predicted_ns > 0.0 && measured_ns >= LEAST_NS {
            readings.note(measured_ns / predicted_ns);
        }
    }
}

impl Readings {
    /// Forgets the work that is done. Returns its predicted time.
    fn take_done(&mut self, completed: u64, now: Instant) -> f64 {
        let mut predicted_ns = 0.0;
        let is_done = |work: &&MeteredWork| work.serial <= completed;
        while let Some(work) = self.under_way.front().filter(is_done) {
            predicted_ns += work.predicted_ns;
            self.done_at = Some(now);
            self.under_way.pop_front();
        }
        predicted_ns
    }

    fn note(&mut self, ratio: f64) {
        let ratio = ratio.clamp(BOUNDS.0, BOUNDS.1);
        let scale = match self.scale {
            Some(scale) => scale + (ratio - scale) * NEWS_PART,
            None => ratio,
        };
        self.scale = Some(scale);
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_work_that_somebody_waited_for_counts() {
        let meter = Meter::default();
        meter.submitted(1, 1e3, 0);
        sleep(Duration::from_millis(1));
        // Done when the next one is submitted, nobody knows since when.
        meter.submitted(2, 1e6, 1);
        assert_eq!(meter.scale(), 1.0);
        meter.begins_wait(1);
        sleep(Duration::from_millis(1));
        meter.ended_wait(2);
        // At least a millisecond for a predicted one: the end of the first is not its beginning.
        assert!(meter.scale() >= 1.0);
        let before = meter.scale();
        meter.ended_wait(2);
        assert_eq!(meter.scale(), before);
    }

    #[test]
    fn a_wait_that_measures_nothing_changes_nothing() {
        let meter = Meter::default();
        meter.begins_wait(0);
        meter.ended_wait(0);
        meter.submitted(1, 0.0, 0);
        meter.begins_wait(0);
        sleep(Duration::from_millis(1));
        meter.ended_wait(1);
        assert_eq!(meter.scale(), 1.0);
    }
}
