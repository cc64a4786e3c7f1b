//! What an engine with shares does, and others do not contain.

use std::sync::Arc;

use super::lending;
use super::limits;
use crate::driver::BoxFuture;
use crate::engine::handle::Engine;
use crate::engine::pass::Pass;
use crate::engine::queue::cmd::Cmd;
use crate::engine::reclaim;
use crate::engine::reclaim::victims;
use crate::engine::shares;
use crate::engine::sharing::Sharing;
use crate::engine::state::State;
use crate::engine::state::linked::{Choose, ShareHooks};
use crate::error::{Error, Result};
use crate::memory::{Candidate, Storage, Whom};

#[derive(Debug)]
pub(in crate::engine) struct OfShares;

impl Sharing for OfShares {
    fn note_lending(&self, engine: &Engine) {
        lending::note_lending_of_shares(engine);
    }

    fn check_promises(&self, engine: &Engine, limit_bytes: u64) -> Result<()> {
        shares::check_promises(engine, limit_bytes)
    }

    fn follow_limits(&self, engine: &Engine) {
        lending::follow_limits(engine);
    }

    fn drain_to_ceilings<'a>(&self, pass: &'a Pass) -> BoxFuture<'a, Result<()>> {
        Box::pin(limits::drain_to_ceilings(pass))
    }

    fn lower_share<'a>(
        &self,
        pass: &'a Pass,
        storage: &'a Arc<Storage>,
    ) -> BoxFuture<'a, Result<Option<Error>>> {
        Box::pin(reclaim::lower_share(pass, storage))
    }
}

impl ShareHooks for OfShares {
    fn note_promises(&self, state: &mut State) {
        lending::note_promises(state);
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
