//! Tensors that are cheaper to compute again than to keep: activation checkpointing, without
//! automatic differentiation.
//!
//! A recipe counts as one more copy of a storage: to put it out costs nothing. When somebody uses the
//! storage, the recipe is asked for commands; they go in front of the one that waits, and after
//! them one that lets the storage take over what they made.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::Engine;
use super::cmd::Cmd;
use super::state::State;
use crate::error::{Error, Result};
use crate::memory::{RecipeToken, Storage};

/// Records the commands that make a storage anew, and names what they make.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) type Recipe = Arc<dyn Fn(&Arc<Engine>) -> Result<Arc<Storage>> + Send + Sync>;
/// Records the commands that make a storage anew, and names what they make.
#[cfg(target_arch = "wasm32")]
pub(crate) type Recipe = Arc<dyn Fn(&Arc<Engine>) -> Result<Arc<Storage>>>;

thread_local! {
    /// The engine for which this thread runs a recipe, by address; 0 for none.
    static RECORDING: Cell<usize> = const { Cell::new(0) };
}

/// While it lives, what this thread appends is a recipe's.
struct Recording(usize);

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDING.set(self.0);
    }
}

impl Engine {
    /// Does this thread run a recipe of this engine?
    pub(super) fn is_recording(&self) -> bool {
        RECORDING.get() == std::ptr::from_ref(self) as usize
    }

    /// Lets a recipe stand in for the bytes that a storage has now, for as long as its inputs stay
    /// what they are.
    pub(crate) async fn recompute_with(
        &self,
        storage: &Arc<Storage>,
        inputs: Vec<Arc<Storage>>,
        recipe: Recipe,
    ) -> Result<()> {
        self.check_lost()?;
        let _turn = self.take_turn().await?;
        self.walk().await?;
        self.error_of(storage)?;
        for input in &inputs {
            self.error_of(input)?;
        }
        let mut state = self.lock();
        let id = state.next_recipe;
        state.next_recipe += 1;
        state.recipes.insert(id, recipe);
        let token = state.memory.recipe_token(id, inputs);
        state
            .memory
            .copied(storage, |copies| copies.recipe = Some(Arc::new(token)));
        Ok(())
    }

    /// Frees what nobody holds any more, also what was held by recipes that nobody needs.
    pub(super) fn bury_all(&self) {
        loop {
            let (recipes, copies, _cleanings) = {
                let mut state = self.lock();
                state.bury();
                let recipes = std::mem::take(&mut state.dropped_recipes);
                (recipes, state.memory.take_gone(), state.dead_cleanings())
            };
            if recipes.is_empty() && copies.is_empty() {
                break;
            }
        }
    }

    /// Puts the commands that make a storage anew in front of the queue. The inner error is the
    /// command's that wants it.
    pub(super) fn recompute(
        &self,
        storage: &Arc<Storage>,
        token: &RecipeToken,
    ) -> Result<Result<()>> {
        let refused = |reason: String| Error::Recompute {
            made_at: storage.tag().to_string(),
            reason,
        };
        let (recipe, is_current) = {
            let state = self.lock();
            let recipe = state.recipes.get(&token.id()).cloned();
            (recipe, state.memory.is_current(token))
        };
        let (Some(recipe), Some(engine)) = (recipe, self.me.upgrade()) else {
            return Ok(Ok(()));
        };
        if !is_current {
            let changed = "one of its inputs has been written to since".to_string();
            self.lock()
                .memory
                .poison(storage, &Arc::new(refused(changed)));
            return Ok(Ok(()));
        }
        let made = {
            let _inside = self.inside();
            let _recording = Recording(RECORDING.replace(std::ptr::from_ref(self) as usize));
            catch_unwind(AssertUnwindSafe(|| recipe(&engine)))
        };
        let made = made.unwrap_or_else(|_| Err(refused("the recipe panicked".into())));
        let mut state = self.lock();
        let recorded = std::mem::take(&mut state.recorded);
        match made {
            Ok(from) if from.size_bytes() == storage.size_bytes() => {
                let to = storage.clone();
                state.queue.push_front(Cmd::TakeOver { from, to });
                state.put_in_front(recorded);
                Ok(Ok(()))
            }
            Ok(_) => Ok(Err(refused("it made a tensor of another size".into()))),
            Err(error) => Ok(Err(error)),
        }
    }
}

impl State {
    fn put_in_front(&mut self, recorded: VecDeque<Cmd>) {
        for cmd in recorded.into_iter().rev() {
            self.queue.push_front(cmd);
        }
    }

    /// A recipe's result becomes the bytes of the storage that it was made for.
    pub(super) fn take_over_made(&mut self, from: &Arc<Storage>, to: &Arc<Storage>) {
        if let Some(cause) = self.memory.poison_of(from) {
            self.memory.poison(to, &cause);
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
