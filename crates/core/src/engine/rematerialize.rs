//! Tensors that are cheaper to compute again than to keep: activation checkpointing, without
//! automatic differentiation.
//!
//! A rematerializer counts as one more copy of a storage: to evict it costs nothing. When somebody
//! uses the storage, the rematerializer is asked for commands; they go in front of the one that
//! waits, and after them one that lets the storage take over what they made.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use rustc_hash::FxHashMap;

use super::Engine;
use super::cmd::Cmd;
use super::state::{State, address};
use crate::error::{Error, Result};
use crate::memory::{Candidate, Memory, RematerializerToken, Storage};
use crate::shortage::ReclaimCounts;

/// Records the commands that make a storage anew, and names what they make.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) type Rematerializer = Arc<dyn Fn(&Arc<Engine>) -> Result<Arc<Storage>> + Send + Sync>;
/// Records the commands that make a storage anew, and names what they make.
#[cfg(target_arch = "wasm32")]
pub(crate) type Rematerializer = Arc<dyn Fn(&Arc<Engine>) -> Result<Arc<Storage>>>;

/// A storage is made anew so many times for one command of the app's at most.
const MOST_TIMES: u32 = 16;

/// What rematerializers make anew for the command that the execution pass has come to, and for
/// those that make it.
#[derive(Debug, Default)]
pub(super) struct Rematerializations {
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

impl Rematerializations {
    fn of(&mut self, storage: &Arc<Storage>) -> &mut Rematerialization {
        let rematerialization = self.of.entry(address(storage)).or_default();
        rematerialization.storage = Arc::downgrade(storage);
        rematerialization
    }

    fn begun(&mut self, storage: &Arc<Storage>) {
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
            let rematerialization = self.of.get(&address(&candidate.storage));
            if rematerialization.is_some_and(|rematerialization| rematerialization.times > 1) {
                candidate.is_clean = memory.has_bytes_elsewhere(&candidate.storage);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.of.clear();
        self.under_way = 0;
    }

    /// Why a storage could not be made, if nobody has been told.
    pub(super) fn failure(&self, storage: &Arc<Storage>) -> Option<Arc<Error>> {
        let rematerialization = self.of.get(&address(storage))?;
        rematerialization.failure.clone()
    }
}

thread_local! {
    /// The engine for which this thread runs a rematerializer, by address; 0 for none.
    static RECORDING: Cell<usize> = const { Cell::new(0) };
}

/// While it lives, what this thread appends is a rematerializer's.
struct Recording(usize);

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDING.set(self.0);
    }
}

impl Engine {
    /// Does this thread run a rematerializer of this engine?
    pub(super) fn is_recording(&self) -> bool {
        RECORDING.get() == std::ptr::from_ref(self) as usize
    }

    /// Lets a rematerializer stand in for the bytes that a storage has now, for as long as its
    /// inputs stay what they are.
    pub async fn recompute_with(
        self: &Arc<Self>,
        storage: &Arc<Storage>,
        inputs: Vec<Arc<Storage>>,
        rematerializer: Rematerializer,
    ) -> Result<()> {
        self.check_lost()?;
        let execution_lock = self.lock_execution().await?;
        let storage = storage.clone();
        let work = move |engine: Arc<Self>| async move {
            engine.execute().await?;
            engine.register_rematerializer(&storage, inputs, rematerializer)
        };
        self.with_execution_lock(execution_lock, work).await
    }

    /// The same, once what was queued has run.
    fn register_rematerializer(
        &self,
        storage: &Arc<Storage>,
        inputs: Vec<Arc<Storage>>,
        rematerializer: Rematerializer,
    ) -> Result<()> {
        self.error_of(storage)?;
        for input in &inputs {
            self.error_of(input)?;
        }
        let mut state = self.lock();
        if state.memory.comes_from(&inputs, storage) {
            return Err(Error::Recompute {
                made_at: storage.tag().to_string(),
                reason: "it is among what its inputs are computed from".into(),
            });
        }
        let id = state.next_rematerializer;
        state.next_rematerializer += 1;
        state.rematerializers.insert(id, rematerializer);
        let token = state.memory.rematerializer_token(id, inputs);
        state.memory.copied(storage, |copies| {
            copies.rematerializer = Some(Arc::new(token))
        });
        Ok(())
    }

    /// Frees what nobody holds any more, also what was held by rematerializers that nobody needs.
    pub(super) fn free_all_dead(&self) {
        loop {
            let (rematerializers, copies, _cleanings) = {
                let mut state = self.lock();
                state.free_dead();
                let rematerializers = std::mem::take(&mut state.dropped_rematerializers);
                (
                    rematerializers,
                    state.memory.take_gone(),
                    state.dead_cleanings(),
                )
            };
            if rematerializers.is_empty() && copies.is_empty() {
                break;
            }
            rematerializers
                .into_iter()
                .for_each(|rematerializer| self.drop_theirs(rematerializer));
            copies
                .into_iter()
                .for_each(|copies| self.drop_theirs(copies));
        }
    }

    /// Puts the commands that make a storage anew in front of the queue. The inner error is the
    /// command's that wants it.
    pub(super) fn rematerialize(
        &self,
        storage: &Arc<Storage>,
        token: &RematerializerToken,
    ) -> Result<Result<()>> {
        let refused = |reason: String| Error::Recompute {
            made_at: storage.tag().to_string(),
            reason,
        };
        let rematerializer = {
            let mut state = self.lock();
            let rematerialization = state.rematerializations.of(storage);
            if let Some(failure) = rematerialization.failure.take() {
                return Ok(Err((*failure).clone()));
            }
            let (is_under_way, times) = (rematerialization.is_under_way, rematerialization.times);
            let never = match (is_under_way, state.memory.is_current(token)) {
                (true, _) => "its rematerializer uses the tensor itself",
                (_, false) => "one of its inputs has been written to since",
                _ => "",
            };
            if !never.is_empty() {
                let cause = Arc::new(refused(never.into()));
                state.memory.poison(storage, &cause);
                return Ok(Ok(()));
            }
            if times >= MOST_TIMES {
                drop(state);
                return Ok(Err(self.out_of_memory(storage, ReclaimCounts::default())));
            }
            state.rematerializers.get(&token.id()).cloned()
        };
        let (Some(rematerializer), Some(engine)) = (rematerializer, self.me.upgrade()) else {
            return Ok(Ok(()));
        };
        let made = {
            let _inside = self.inside();
            let _recording = Recording(RECORDING.replace(std::ptr::from_ref(self) as usize));
            catch_unwind(AssertUnwindSafe(|| rematerializer(&engine)))
        };
        let made = made.unwrap_or_else(|_| Err(refused("the rematerializer panicked".into())));
        let mut state = self.lock();
        let recorded = std::mem::take(&mut state.recorded);
        match made {
            Ok(from) if from.size_bytes() == storage.size_bytes() => {
                let to = storage.clone();
                // It may have to give way to what comes first now.
                state.unplace_head();
                state.rematerializations.begun(storage);
                state.push_head(Cmd::TakeOver { from, to });
                state.put_in_front(recorded);
                Ok(Ok(()))
            }
            Ok(_) => Ok(Err(refused("it made a tensor of another size".into()))),
            Err(error) => Ok(Err(error)),
        }
    }
}

impl State {
    /// A rematerializer's result becomes the bytes of the storage that it was made for.
    pub(super) fn take_over_made(&mut self, from: &Arc<Storage>, to: &Arc<Storage>) {
        let failure = self.memory.poison_of(from);
        self.rematerializations.ended(to, failure.clone());
        if failure.is_some() || !self.memory.is_evicted(to) {
            // Another time it may go well. Or there is nothing to be taken over any more.
        } else if Arc::strong_count(from) != 1 || !self.memory.take_over_place(from, to) {
            let reason = "it kept what it made, or made nothing new".into();
            let made_at = to.tag().to_string();
            let cause = Error::Recompute { made_at, reason };
            self.memory.poison(to, &Arc::new(cause));
        } else {
            // The batch that made it may still be refused.
            self.batch.arrived.push(Arc::downgrade(to));
        }
    }
}
