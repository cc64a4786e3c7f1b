//! What the command at the head of the queue was given so far, while it still needs more.

use std::sync::{Arc, Weak};

use super::picking::Picking;
use crate::memory::{Fit, Storage};

/// The state of the command at the head of the queue.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// What was given a place for it.
    placed: Vec<Weak<Storage>>,
    /// The rows that it picks of a table that is not on the device.
    picking: Option<Picking>,
    /// Where its operands may lie.
    fit: Fit,
    /// Slabs get down to a lowered limit: what it needs is spared no more than anything else.
    is_fair_game: bool,
}

impl Head {
    /// It has run, or is somewhere else now.
    #[inline]
    pub(super) fn has_run(&mut self) {
        self.fit = Fit::Best;
        if !self.placed.is_empty() {
            self.placed.clear();
        }
    }

    /// Where its operands may lie.
    #[inline]
    pub(super) fn fit(&self) -> Fit {
        self.fit
    }

    /// Its operands may lie there, until it has run or found no room.
    pub(super) fn may_lie(&mut self, fit: Fit) {
        self.fit = fit;
    }

    /// This was given a place for it.
    pub(super) fn placed(&mut self, storage: &Arc<Storage>) {
        self.placed.push(Arc::downgrade(storage));
    }

    /// Takes out what was given a place for it and is still held.
    pub(super) fn take_placed(&mut self) -> impl Iterator<Item = Arc<Storage>> {
        let placed = std::mem::take(&mut self.placed);
        placed.into_iter().filter_map(|one| one.upgrade())
    }

    pub(super) fn picking(&self) -> Option<&Picking> {
        self.picking.as_ref()
    }

    pub(super) fn picking_mut(&mut self) -> Option<&mut Picking> {
        self.picking.as_mut()
    }

    pub(super) fn set_picking(&mut self, picking: Option<Picking>) {
        self.picking = picking;
    }

    /// Whether what it needs may be evicted like anything else.
    pub(super) fn is_fair_game(&self) -> bool {
        self.is_fair_game
    }

    pub(super) fn set_fair_game(&mut self, is_fair_game: bool) {
        self.is_fair_game = is_fair_game;
    }
}
