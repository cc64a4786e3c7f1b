//! What an engine with shares does, and others do not contain.

use std::sync::Arc;

use super::lending;
use super::limits;
use super::promises;
use crate::driver::BoxFuture;
use crate::engine::handle::Engine;
use crate::engine::kernel::Role;
use crate::engine::pass::Pass;
use crate::engine::pass::share_hooks::PassHooks;
use crate::engine::pass::turn::HoldGuard;
use crate::engine::queue::cmd::Cmd;
use crate::engine::reclaim;
use crate::engine::reclaim::victims;
use crate::engine::state::State;
use crate::engine::state::features::{Choose, StateHooks};
use crate::error::{Error, Result};
use crate::memory::{Budget, Candidate, Memory, ShareHandle, Storage, Whole, Whom};

#[derive(Debug)]
pub(super) struct OfShares;

impl PassHooks for OfShares {
    fn note_lending(&self, engine: &Engine) {
        lending::note_lending_of_shares(engine);
    }

    fn check_budget<'a>(
        &self,
        engine: &'a Arc<Engine>,
        budget: &'a Budget,
        whole: Whole,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(promises::check_budget(engine, budget, whole))
    }

    fn check_budget_now(
        &self,
        engine: &Engine,
        memory: &Memory,
        budget: &Budget,
        whole: Whole,
    ) -> Result<()> {
        promises::check_budget_now(engine, memory, budget, whole)?.map_err(promises::unkept_under)
    }

    fn check_pins(&self, engine: &Engine, pinned: &[Arc<Storage>]) -> Result<()> {
        promises::check_pins(engine, pinned)
    }

    fn follow_limits(&self, engine: &Engine, memory: &mut Memory, device_bytes: Option<u64>) {
        memory.shares.follow(lending::whole(engine, device_bytes));
    }

    fn drain_to_ceilings<'a>(&self, pass: &'a Pass, least: i8) -> BoxFuture<'a, Result<()>> {
        Box::pin(limits::drain_to_ceilings(pass, least))
    }

    fn hold_drain<'a>(&self, pass: &'a Pass) -> Option<HoldGuard<'a>> {
        limits::hold_drain(pass)
    }

    fn lower_share<'a>(
        &self,
        pass: &'a Pass,
        storage: &'a Arc<Storage>,
    ) -> BoxFuture<'a, Result<Option<Error>>> {
        Box::pin(reclaim::lower_share(pass, storage))
    }
}

impl StateHooks for OfShares {
    fn note_promises(&self, state: &mut State) {
        lending::note_promises(state);
    }

    fn note_share(&self, state: &mut State, cmd: &Cmd) -> bool {
        note_share(state, cmd)
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

/// The shares of a command compete for memory from now on. Returns whether the command was
/// dropped, because the share whose value it makes, or that reads, was cancelled.
fn note_share(state: &mut State, cmd: &Cmd) -> bool {
    let running = state.memory.shares.running();
    let mut is_usual = !matches!(cmd, Cmd::Read { .. });
    cmd.visit_operands(|storage, _| {
        is_usual &= storage.share() == running && !storage.may_be_cancelled();
    });
    // Nearly always the share that ran last goes on.
    !is_usual && note_another_share(state, cmd)
}

#[inline(never)]
fn note_another_share(state: &mut State, cmd: &Cmd) -> bool {
    let mut is_cancelled = false;
    let read_by = match cmd {
        Cmd::Read { by, .. } => by.as_deref().filter(|by| by.is_cancelled()),
        _ => None,
    };
    cmd.each_operand(&mut |storage, role| {
        state.memory.share_runs(storage.share());
        is_cancelled |= role != Role::Read && storage.is_cancelled();
    });
    if is_cancelled || read_by.is_some() {
        return drop_cancelled(state, cmd, read_by);
    }
    false
}

/// Drops a command of a cancelled share. Returns whether it was dropped.
#[cold]
fn drop_cancelled(state: &mut State, cmd: &Cmd, read_by: Option<&ShareHandle>) -> bool {
    let mut cause = read_by.map(ShareHandle::cancelled);
    cmd.each_operand(&mut |storage, role| {
        if role != Role::Read {
            cause = cause.take().or_else(|| storage.cancelled());
        }
    });
    if let Some(cause) = cause {
        state.unplace_cmd(cmd);
        state.left(cmd);
        state.poison(cmd, &Arc::new(cause));
        return true;
    }
    false
}
