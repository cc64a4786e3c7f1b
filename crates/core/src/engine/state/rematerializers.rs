//! The rematerializers, and the rematerializations in progress.

use std::sync::{Arc, Weak};

use super::lineage::Made;
use crate::error::{Error, Result};
use crate::memory::{Candidate, Memory, Storage};
use crate::number_map::NumberMap;

/// Records the commands that compute a storage again, and returns the storage of their result.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) type Rematerializer = Arc<dyn Fn() -> Result<Arc<Storage>> + Send + Sync>;
/// Records the commands that compute a storage again, and returns the storage of their result.
#[cfg(target_arch = "wasm32")]
pub(crate) type Rematerializer = Arc<dyn Fn() -> Result<Arc<Storage>>>;

/// A way to compute a storage again.
#[derive(Clone)]
pub(in crate::engine) enum Way {
    /// A function of the app.
    Function(Rematerializer),
    /// The launches that made it.
    Lineage(Made),
}

/// The rematerializers, and the rematerializations for the command at the head of the queue or for
/// the commands that rematerialize its operands.
#[derive(Default)]
pub(in crate::engine) struct Rematerializers {
    by_id: NumberMap<Way>,
    next_id: u64,
    /// How many of them are lineages.
    lineages: usize,
    /// Rematerializers whose storages are gone. They hold values of the app, so they must be
    /// dropped outside the lock.
    dropped: Vec<Rematerializer>,
    /// Keyed by the address of the storage. The weak reference keeps the address from being reused.
    of: NumberMap<Rematerialization>,
    under_way: usize,
}

#[derive(Debug, Default)]
struct Rematerialization {
    storage: Weak<Storage>,
    times: u32,
    is_under_way: bool,
    /// The error of the rematerialization, for the next command that needs the storage.
    failure: Option<Arc<Error>>,
}

/// The progress of a rematerialization.
#[derive(Debug)]
pub(in crate::engine) struct Progress {
    /// Whether the commands are in the queue.
    pub(in crate::engine) is_under_way: bool,
    /// The number of rematerializations for the current command.
    pub(in crate::engine) times: u32,
    /// The error, if no command has got it yet.
    pub(in crate::engine) failure: Option<Arc<Error>>,
}

impl Rematerializers {
    /// Adds a function of the app and returns its id.
    pub(in crate::engine) fn enter_function(&mut self, rematerializer: Rematerializer) -> u64 {
        self.enter(Way::Function(rematerializer))
    }

    /// Adds the lineage of a storage that is about to be dropped. Returns its id.
    pub(in crate::engine) fn enter_lineage(&mut self, made: Made) -> u64 {
        self.lineages += 1;
        self.enter(Way::Lineage(made))
    }

    fn enter(&mut self, way: Way) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.by_id.insert(id, way);
        id
    }

    pub(in crate::engine) fn get(&self, id: u64) -> Option<Way> {
        self.by_id.get(id).cloned()
    }

    /// Removes a rematerializer whose storage is gone.
    pub(in crate::engine) fn forget(&mut self, id: u64) {
        match self.by_id.remove(id) {
            Some(Way::Function(function)) => self.dropped.push(function),
            Some(Way::Lineage(_)) => self.lineages -= 1,
            None => {}
        }
    }

    /// Was a storage dropped whose lineage gives its bytes again?
    #[inline]
    pub(in crate::engine) fn has_lineages(&self) -> bool {
        self.lineages > 0
    }

    /// Did the app register functions?
    pub(in crate::engine) fn has_functions(&self) -> bool {
        self.by_id.len() > self.lineages
    }

    /// Takes the removed rematerializers.
    pub(in crate::engine) fn take_dropped(&mut self) -> Vec<Rematerializer> {
        std::mem::take(&mut self.dropped)
    }

    /// The progress of a storage's rematerialization. The error is returned once.
    pub(in crate::engine) fn progress(&mut self, storage: &Arc<Storage>) -> Progress {
        let rematerialization = self.of(storage);
        Progress {
            is_under_way: rematerialization.is_under_way,
            times: rematerialization.times,
            failure: rematerialization.failure.take(),
        }
    }

    fn of(&mut self, storage: &Arc<Storage>) -> &mut Rematerialization {
        let rematerialization = self
            .of
            .get_or_insert_with(storage.address() as u64, Rematerialization::default);
        rematerialization.storage = Arc::downgrade(storage);
        rematerialization
    }

    /// Whether the commands of a rematerialization run now.
    pub(in crate::engine) fn is_any_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// Notes that the commands of a rematerialization are at the head of the queue.
    pub(in crate::engine) fn start(&mut self, storage: &Arc<Storage>) {
        let rematerialization = self.of(storage);
        rematerialization.is_under_way = true;
        rematerialization.times += 1;
        self.under_way += 1;
    }

    /// Notes that a rematerialization succeeded, failed or was put off.
    pub(in crate::engine) fn finish(
        &mut self,
        storage: &Arc<Storage>,
        failure: Option<Arc<Error>>,
    ) {
        if self.of.is_empty() && failure.is_none() {
            return;
        }
        let rematerialization = self.of(storage);
        let was_under_way = std::mem::replace(&mut rematerialization.is_under_way, false);
        rematerialization.failure = failure;
        self.under_way -= usize::from(was_under_way);
    }

    /// Notes the end of a command. Returns whether it is a command of the app, and not of a
    /// rematerializer. The progress for commands of lower priorities stays, because this one only
    /// went before them.
    #[inline]
    pub(in crate::engine) fn end_command(&mut self, priority: impl FnOnce() -> Option<i8>) -> bool {
        if self.under_way > 0 {
            return false;
        }
        if !self.of.is_empty() {
            match priority() {
                None => self.of.clear(),
                Some(priority) => self.of.retain(|_, one| {
                    let storage = one.storage.upgrade();
                    storage.is_some_and(|storage| storage.priority() < priority)
                }),
            }
        }
        true
    }

    /// Requires a real copy of storages that were rematerialized twice for one command: they are
    /// evicted and not dropped. Otherwise two storages that need each other's memory would be
    /// rematerialized in turn for ever.
    pub(in crate::engine) fn require_copies_of_repeated(
        &self,
        candidates: &mut [Candidate],
        memory: &Memory,
    ) {
        if self.of.is_empty() {
            return;
        }
        for candidate in candidates {
            if self.is_repeated(&candidate.storage) {
                candidate.is_clean = memory.slots.has_bytes_elsewhere(&candidate.storage);
            }
        }
    }

    /// Was the storage rematerialized twice for the current command?
    pub(in crate::engine) fn is_repeated(&self, storage: &Arc<Storage>) -> bool {
        let rematerialization = self.of.get(storage.address() as u64);
        rematerialization.is_some_and(|rematerialization| rematerialization.times > 1)
    }

    /// Forgets all progress at the start of an execution pass.
    pub(in crate::engine) fn begin_pass(&mut self) {
        self.of.clear();
        self.under_way = 0;
    }

    /// The error of a rematerialization, if no command has got it yet.
    pub(in crate::engine) fn failure(&self, storage: &Arc<Storage>) -> Option<Arc<Error>> {
        let rematerialization = self.of.get(storage.address() as u64)?;
        rematerialization.failure.clone()
    }
}
