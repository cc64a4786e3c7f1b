//! Who makes storages anew, and what is being made at this moment.

use std::sync::{Arc, Weak};

use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::memory::{Candidate, Memory, Storage};

/// Records the commands that make a storage anew, and names what they make.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) type Rematerializer = Arc<dyn Fn() -> Result<Arc<Storage>> + Send + Sync>;
/// Records the commands that make a storage anew, and names what they make.
#[cfg(target_arch = "wasm32")]
pub(crate) type Rematerializer = Arc<dyn Fn() -> Result<Arc<Storage>>>;

/// The rematerializers, and what they make anew for the command that the execution pass has come
/// to, and for those that make it.
#[derive(Default)]
pub(super) struct Rematerializers {
    by_id: FxHashMap<u64, Rematerializer>,
    next_id: u64,
    /// Those that nobody needs any more. They hold what is the app's: to be dropped without the
    /// lock.
    dropped: Vec<Rematerializer>,
    /// By address of the storage; that it is known here keeps the address from being another's.
    of: FxHashMap<usize, Rematerialization>,
    under_way: usize,
}

#[derive(Debug, Default)]
struct Rematerialization {
    storage: Weak<Storage>,
    times: u32,
    is_under_way: bool,
    /// Why it could not be made, for whoever wants it.
    failure: Option<Arc<Error>>,
}

/// How far the making of a storage has come.
#[derive(Debug)]
pub(super) struct Progress {
    /// It is being made.
    pub(super) is_under_way: bool,
    /// How often it was made for the command.
    pub(super) times: u32,
    /// Why it could not be made, of which nobody has been told.
    pub(super) failure: Option<Arc<Error>>,
}

impl Rematerializers {
    /// Enters a rematerializer; returns its number.
    pub(super) fn enter(&mut self, rematerializer: Rematerializer) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.by_id.insert(id, rematerializer);
        id
    }

    pub(super) fn get(&self, id: u64) -> Option<Rematerializer> {
        self.by_id.get(&id).cloned()
    }

    /// Nobody needs this one any more.
    pub(super) fn forget(&mut self, id: u64) {
        self.dropped.extend(self.by_id.remove(&id));
    }

    /// Takes out those that nobody needs any more.
    pub(super) fn take_dropped(&mut self) -> Vec<Rematerializer> {
        std::mem::take(&mut self.dropped)
    }

    /// How far the making of a storage has come. The failure is told once.
    pub(super) fn progress(&mut self, storage: &Arc<Storage>) -> Progress {
        let rematerialization = self.of(storage);
        Progress {
            is_under_way: rematerialization.is_under_way,
            times: rematerialization.times,
            failure: rematerialization.failure.take(),
        }
    }

    fn of(&mut self, storage: &Arc<Storage>) -> &mut Rematerialization {
        let rematerialization = self.of.entry(storage.address()).or_default();
        rematerialization.storage = Arc::downgrade(storage);
        rematerialization
    }

    /// The commands that make it are next.
    pub(super) fn begun(&mut self, storage: &Arc<Storage>) {
        let rematerialization = self.of(storage);
        rematerialization.is_under_way = true;
        rematerialization.times += 1;
        self.under_way += 1;
    }

    /// What should have been made is made, has failed, or is put off.
    pub(super) fn ended(&mut self, storage: &Arc<Storage>, failure: Option<Arc<Error>>) {
        if self.of.is_empty() && failure.is_none() {
            return;
        }
        let rematerialization = self.of(storage);
        let was_under_way = std::mem::replace(&mut rematerialization.is_under_way, false);
        rematerialization.failure = failure;
        self.under_way -= usize::from(was_under_way);
    }

    /// A command has come to its end. Was it one of the app's, and not of a rematerializer's?
    #[inline]
    pub(super) fn is_the_apps(&mut self) -> bool {
        if self.under_way > 0 {
            return false;
        }
        if !self.of.is_empty() {
            self.of.clear();
        }
        true
    }

    /// What was made twice for one command is not given up for a third time, but evicted: two that
    /// need each other's room would never end.
    pub(super) fn keep_what_was_made_twice(&self, candidates: &mut [Candidate], memory: &Memory) {
        if self.of.is_empty() {
            return;
        }
        for candidate in candidates {
            let rematerialization = self.of.get(&candidate.storage.address());
            if rematerialization.is_some_and(|rematerialization| rematerialization.times > 1) {
                candidate.is_clean = memory.has_bytes_elsewhere(&candidate.storage);
            }
        }
    }

    /// An execution pass begins: what was under way is asked for again.
    pub(super) fn begin_pass(&mut self) {
        self.of.clear();
        self.under_way = 0;
    }

    /// Why a storage could not be made, if nobody has been told.
    pub(super) fn failure(&self, storage: &Arc<Storage>) -> Option<Arc<Error>> {
        let rematerialization = self.of.get(&storage.address())?;
        rematerialization.failure.clone()
    }
}
