//! The account of a store, and its health: the bytes in use, and whether it is left alone now.
//!
//! Bytes count as used from the moment at which room is reserved for a tensor, until the store has
//! removed them. So a store never holds more than its limit.

use std::time::{Duration, Instant};

use crate::error::StoreFailure;
use crate::printable::printable;
use crate::units::{Bytes, Level};

/// Reports show this much of a name.
pub(super) const NAME_COLUMNS: usize = 24;

/// Failures in a row after which a store rests.
const MOST_FAILURES: u32 = 3;

/// A store rests for this many times its time-out.
const REST_TIMEOUTS: u32 = 5;

/// What a store did so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
#[non_exhaustive]
pub struct StoreUse {
    /// The name that the app gave to the store.
    pub name: String,
    /// Bytes of evicted tensors in the store, with those that are being written or removed.
    pub bytes: Level,
    /// Most bytes that the app allows there.
    pub most_bytes: u64,
    /// Total bytes of values that the store took.
    pub written_bytes: u64,
    /// Total bytes of values that the store gave back.
    pub read_bytes: u64,
    /// Calls that failed: time-outs, a store that is full or cannot be reached, and the like.
    pub failures: u64,
    /// Values that the store had no more, or had changed.
    pub lost: u64,
    /// Whether the store is left alone now, because it failed.
    pub rests: bool,
}

impl StoreUse {
    /// The rest of its row in a report.
    pub(crate) fn remark(&self) -> String {
        let (peak, most) = (Bytes(self.bytes.peak), Bytes(self.most_bytes));
        // A snapshot may come from a stranger.
        let name = printable(&self.name, NAME_COLUMNS);
        let mut text = format!("of {most} in `{name}`, peak {peak}");
        if self.failures > 0 {
            text += &format!(", {} failures", self.failures);
        }
        if self.lost > 0 {
            text += &format!(", {} lost", self.lost);
        }
        if self.rests {
            text += ", rests";
        }
        text
    }
}

/// What the engine knows of a store.
#[derive(Debug)]
pub(super) struct StoreLedger {
    /// What the store did so far. Whether it rests is known when somebody asks.
    pub(super) done: StoreUse,
    /// The part of the used bytes that is to be removed.
    pub(super) leaving_bytes: u64,
    /// The time of a rest.
    pub(super) rest: Duration,
    failures_in_a_row: u32,
    rests_until: Option<Instant>,
    full_until: Option<Instant>,
    /// The store was full at the last write.
    was_full: bool,
    /// Why it took nothing then.
    why_full: StoreFailure,
    last: StoreFailure,
}

impl StoreLedger {
    pub(super) fn new(name: &str, most_bytes: u64, timeout: Duration) -> StoreLedger {
        StoreLedger {
            done: StoreUse {
                name: name.into(),
                most_bytes,
                ..StoreUse::default()
            },
            leaving_bytes: 0,
            rest: timeout.saturating_mul(REST_TIMEOUTS),
            failures_in_a_row: 0,
            rests_until: None,
            full_until: None,
            was_full: false,
            why_full: StoreFailure::Full,
            last: StoreFailure::TimedOut,
        }
    }

    /// The bytes that are not in use.
    pub(super) fn left_bytes(&self) -> u64 {
        self.done.most_bytes.saturating_sub(self.done.bytes.now)
    }

    /// The bytes that the store would take now, as far as it has said.
    pub(super) fn room_bytes(&mut self) -> u64 {
        match self.was_full || self.refusal().is_some() {
            true => 0,
            false => self.left_bytes(),
        }
    }

    /// Reserves room. `false` if there is none.
    pub(super) fn reserve(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.left_bytes();
        if fits {
            self.done.bytes.raise(bytes);
        }
        fits
    }

    /// The last failure, while the store is left alone for it.
    pub(super) fn resting(&mut self) -> Option<StoreFailure> {
        let rests = self.rests_until.is_some_and(|until| Instant::now() < until);
        rests.then(|| self.last.clone())
    }

    /// The reason why nothing should be written now.
    pub(super) fn refusal(&mut self) -> Option<StoreFailure> {
        let is_full = self.full_until.is_some_and(|until| Instant::now() < until);
        match is_full {
            true => Some(self.why_full.clone()),
            false => self.resting(),
        }
    }

    pub(super) fn wrote(&mut self, bytes: u64) {
        self.done.written_bytes += bytes;
        self.was_full = false;
        self.answered();
    }

    pub(super) fn read(&mut self, bytes: u64) {
        self.done.read_bytes += bytes;
        self.answered();
    }

    /// A call did as it was asked.
    pub(super) fn answered(&mut self) {
        self.failures_in_a_row = 0;
        self.rests_until = None;
    }

    /// A call failed.
    pub(super) fn failed(&mut self, failure: &StoreFailure) {
        if failure.is_loss() {
            // The store answers; it is not to be spared for what it lost.
            self.done.lost += 1;
            return self.answered();
        }
        self.done.failures += 1;
        let until = Instant::now().checked_add(self.rest);
        if matches!(failure, StoreFailure::Full | StoreFailure::Later(_)) {
            (self.full_until, self.was_full) = (until, true);
            self.why_full = failure.clone();
            return self.answered();
        }
        self.failures_in_a_row += 1;
        let is_slow = *failure == StoreFailure::TimedOut;
        if is_slow || self.failures_in_a_row >= MOST_FAILURES {
            self.failures_in_a_row = MOST_FAILURES;
            self.rests_until = until;
        }
        self.last = failure.clone();
    }

    pub(super) fn usage(&mut self) -> StoreUse {
        StoreUse {
            rests: self.refusal().is_some(),
            ..self.done.clone()
        }
    }
}
