//! What an engine does for shares, from its first share on.

use std::sync::Arc;

use super::cmd::Cmd;
use super::handle::Engine;
use super::pass::Pass;
use super::state::State;
use super::{lending, reclaim, share_limits, shares, victims};
use crate::driver::BoxFuture;
use crate::error::{Error, Result};
use crate::memory::{Candidate, Storage, Whom};

/// Chooses the best of some candidates.
pub(super) type Choose<'a> = dyn Fn(Vec<Candidate>) -> Vec<Candidate> + 'a;

/// What an engine does for shares. One type does it; through the trait only a program that makes
/// shares contains the code.
pub(super) trait Sharing: Sync {
    /// Notes what may be lent now. Lets amounts follow the operating system's limit.
    fn note_lending(&self, engine: &Engine);

    /// Lets staging leave what is guaranteed to shares, and the queue follow their priorities.
    fn note_promises(&self, state: &mut State);

    /// Refuses a budget that does not leave what is guaranteed.
    fn check_promises(&self, engine: &Engine, limit_bytes: u64) -> Result<()>;

    /// Computes the amounts of shares again, after the limits changed.
    fn follow_limits(&self, engine: &Engine);

    /// Evicts what is above lowered ceilings, as far as possible.
    fn drain_to_ceilings<'a>(&self, pass: &'a Pass) -> BoxFuture<'a, Result<()>>;

    /// Makes the storage's share hold less, if its limits, and not the device's, leave no room for
    /// the storage. Returns the error of the storage if that fails.
    fn lower_share<'a>(
        &self,
        pass: &'a Pass,
        storage: &'a Arc<Storage>,
    ) -> BoxFuture<'a, Result<Option<Error>>>;

    /// The shares of a command compete for memory from now on. Returns whether the command was
    /// dropped, because the share whose value it makes, or that reads, was cancelled.
    fn note_share(&self, state: &mut State, cmd: &Cmd) -> bool;

    /// The best of the candidates that have to give memory.
    fn choose(
        &self,
        state: &State,
        candidates: Vec<Candidate>,
        whom: Whom,
        choose: &Choose<'_>,
    ) -> Vec<Candidate>;

    /// Keeps the candidates that have to give memory.
    fn retain_owed(&self, state: &State, candidates: &mut Vec<Candidate>, whom: Whom);
}

/// For an engine with shares.
pub(super) static SHARING: &dyn Sharing = &OfShares;

struct OfShares;

impl Sharing for OfShares {
    fn note_lending(&self, engine: &Engine) {
        lending::note_lending_of_shares(engine);
    }

    fn note_promises(&self, state: &mut State) {
        lending::note_promises(state);
    }

    fn check_promises(&self, engine: &Engine, limit_bytes: u64) -> Result<()> {
        shares::check_promises(engine, limit_bytes)
    }

    fn follow_limits(&self, engine: &Engine) {
        lending::follow_limits(engine);
    }

    fn drain_to_ceilings<'a>(&self, pass: &'a Pass) -> BoxFuture<'a, Result<()>> {
        Box::pin(share_limits::drain_to_ceilings(pass))
    }

    fn lower_share<'a>(
        &self,
        pass: &'a Pass,
        storage: &'a Arc<Storage>,
    ) -> BoxFuture<'a, Result<Option<Error>>> {
        Box::pin(reclaim::lower_share(pass, storage))
    }

    fn note_share(&self, state: &mut State, cmd: &Cmd) -> bool {
        state.note_share(cmd)
    }

    fn choose(
        &self,
        state: &State,
        candidates: Vec<Candidate>,
        whom: Whom,
        choose: &Choose<'_>,
    ) -> Vec<Candidate> {
        victims::choose_owed(state, candidates, whom, choose)
    }

    fn retain_owed(&self, state: &State, candidates: &mut Vec<Candidate>, whom: Whom) {
        if let Some(claim) = state.memory.claim(whom) {
            candidates.retain(|candidate| claim.may_take(candidate.storage.share()));
        }
    }
}
