//! The steps that run before a command for its sake: its operands are computed again, or the words
//! that name its rows are read.
//!
//! Commands of a higher priority may come between two steps. They have steps of their own, so one
//! that needs an operand of the other computes it, too.

use std::sync::{Arc, Weak};

use super::picking::Picking;
use crate::error::Error;
use crate::memory::{Candidate, Memory, Storage};
use crate::number_map::NumberMap;

/// The steps for the command at the head of the queue, and for those that it passed.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    now: StepsOfOne,
    /// The last one is the first to go on.
    passed: Vec<StepsOfOne>,
}

/// The steps for one command.
#[derive(Debug, Default)]
struct StepsOfOne {
    /// Keyed by the address of the storage.
    rematerializations: NumberMap<Rematerialization>,
    under_way: usize,
    /// The highest priority of the commands for which they are under way, and of the steps.
    priority: Option<i8>,
    /// The rows that the command picks from a table that is not on the device.
    picking: Option<Picking>,
}

/// The progress of a rematerialization.
#[derive(Debug, Default)]
pub(crate) struct Rematerialization {
    /// Keeps the address from being reused.
    _storage: Weak<Storage>,
    /// The number of rematerializations for the current command.
    pub(crate) times: u32,
    /// Whether the commands are in the queue.
    pub(crate) is_under_way: bool,
    /// The error of the rematerialization, for the next command that needs the storage.
    pub(crate) failure: Option<Arc<Error>>,
}

impl StepsOfOne {
    fn is_repeated(&self, storage: &Arc<Storage>) -> bool {
        let rematerialization = self.rematerializations.get(&(storage.address() as u64));
        rematerialization.is_some_and(|rematerialization| rematerialization.times > 1)
    }
}

impl Steps {
    /// Other commands go before the one at the head of the queue, between its steps.
    pub(crate) fn put_off(&mut self) {
        self.passed.push(std::mem::take(&mut self.now));
    }

    /// The commands that went before have ended.
    pub(crate) fn go_on(&mut self) {
        if let Some(passed) = self.passed.pop() {
            self.now = passed;
        }
    }

    /// The progress of a storage's rematerialization.
    pub(crate) fn entry(&mut self, storage: &Arc<Storage>) -> &mut Rematerialization {
        let new = || Rematerialization {
            _storage: Arc::downgrade(storage),
            ..Rematerialization::default()
        };
        let entry = (self.now.rematerializations).entry(storage.address() as u64);
        entry.or_insert_with(new)
    }

    /// Whether the commands of a rematerialization run now.
    pub(crate) fn is_any_under_way(&self) -> bool {
        self.now.under_way > 0
    }

    /// Notes that the commands of a rematerialization are at the head of the queue.
    pub(crate) fn start(&mut self, storage: &Arc<Storage>) {
        let rematerialization = self.entry(storage);
        rematerialization.is_under_way = true;
        rematerialization.times += 1;
        self.now.under_way += 1;
    }

    /// Notes that a rematerialization succeeded, failed or was put off.
    pub(crate) fn finish(&mut self, storage: &Arc<Storage>, failure: Option<Arc<Error>>) {
        if self.now.rematerializations.is_empty() && failure.is_none() {
            return;
        }
        let rematerialization = self.entry(storage);
        let was_under_way = std::mem::replace(&mut rematerialization.is_under_way, false);
        rematerialization.failure = failure;
        self.now.under_way -= usize::from(was_under_way);
        if !self.is_any_under_way() {
            self.now.priority = None;
        }
    }

    /// Steps of this priority were put in front of the command, or it has this one itself.
    pub(crate) fn raise_priority(&mut self, priority: i8) {
        self.now.priority = self.now.priority.max(Some(priority));
    }

    /// Steps count as what they are for: at least this priority. `None` while no rematerialization
    /// is under way.
    pub(crate) fn priority(&self) -> Option<i8> {
        self.now.priority
    }

    /// Notes the end of a command. Returns whether it is a command of the app, and not of a
    /// rematerializer.
    #[inline]
    pub(crate) fn end_command(&mut self) -> bool {
        if self.is_any_under_way() {
            return false;
        }
        if !self.now.rematerializations.is_empty() {
            self.now.rematerializations.clear();
        }
        true
    }

    /// Requires a real copy of storages that were rematerialized twice for one command: they are
    /// evicted and not dropped. Otherwise two storages that need each other's memory would be
    /// rematerialized in turn for ever. So would one whose memory higher priorities take, again and
    /// again, before the command has run.
    pub(crate) fn require_copies_of_repeated(&self, candidates: &mut [Candidate], memory: &Memory) {
        if self.now.rematerializations.is_empty() && self.passed.is_empty() {
            return;
        }
        for candidate in candidates {
            if self.is_repeated(&candidate.storage) {
                candidate.is_clean = memory.slots.has_bytes_elsewhere(&candidate.storage);
            }
        }
    }

    /// Was the storage rematerialized twice for one command?
    pub(crate) fn is_repeated(&self, storage: &Arc<Storage>) -> bool {
        self.now.is_repeated(storage) || self.passed.iter().any(|one| one.is_repeated(storage))
    }

    /// Forgets all progress at the start of an execution pass, but for the words that were read.
    pub(crate) fn begin_pass(&mut self) {
        self.passed.clear();
        self.now.rematerializations.clear();
        (self.now.under_way, self.now.priority) = (0, None);
    }

    /// The error of a rematerialization, if no command has got it yet.
    pub(crate) fn failure(&self, storage: &Arc<Storage>) -> Option<Arc<Error>> {
        let address = storage.address() as u64;
        self.now.rematerializations.get(&address)?.failure.clone()
    }

    /// The rows that the command at the head picks from a table that is not on the device.
    pub(crate) fn picking(&mut self) -> &mut Option<Picking> {
        &mut self.now.picking
    }
}
