//! Moving blocks: a plan of the pools carried out by recorded copies.
//!
//! The queue runs in order, so a range is free for the next command as soon as the copy that
//! empties it is recorded. Moves travel in submissions of their own: if one is refused, whoever
//! submits it puts every block of it back to where its bytes still are.

use std::sync::Arc;

use super::Engine;
use crate::alloc::{BlockId, Growth, Spot, Step};
use crate::driver::{Account, DriverError, Op};
use crate::error::{Error, Result};
use crate::memory::{Moved, Place};
use crate::transfer::refusal;

/// What became of a plan.
#[derive(Debug)]
pub(super) enum Outcome {
    /// All of it was carried out.
    Done,
    /// A slab of the plan could not be had: there is no memory for it.
    NoSlab,
    /// Something had changed since it was made, or a submission was refused.
    Void,
    /// The driver refused for another reason.
    Refused(Error),
}

impl Engine {
    /// Carries out the steps of a plan, as far as that goes. Whatever the outcome, every storage
    /// is where the tables say. The caller has the execution lock.
    pub(super) async fn carry_out(&self, steps: &[Step]) -> Result<Outcome> {
        let has_moves = steps
            .iter()
            .any(|step| matches!(step, Step::Move { .. } | Step::MoveToNew { .. }));
        if has_moves {
            // What was recorded before must not fall with the moves.
            self.submit()?;
            self.lock().counters.compactions += 1;
        }
        let refused_before = self.lock().counters.refused_submissions;
        let mut created = None;
        let are_moves =
            |one: &Step, next: &Step| matches!((one, next), (Step::Move { .. }, Step::Move { .. }));
        for steps in steps.chunk_by(are_moves) {
            match &steps[0] {
                Step::Move { .. } => self.lock().record_moves(steps),
                Step::Release(slab) => {
                    if !self.submit_moves(refused_before)? {
                        return Ok(Outcome::Void);
                    }
                    self.release_one(*slab)?;
                }
                Step::Assign { slab, class } => self.lock().memory.assign(*slab, *class),
                Step::Create(growth) => match self.create_planned(growth).await {
                    Ok(slab) => created = Some(slab),
                    Err(error) => return self.no_slab(error),
                },
                Step::MoveToNew {
                    block,
                    offset_bytes,
                } => {
                    let slab = created.expect("a plan creates a slab before it moves blocks there");
                    self.lock()
                        .record_move(*block, &Spot::new(slab, *offset_bytes));
                }
            }
        }
        Ok(match self.submit_moves(refused_before)? {
            true => Outcome::Done,
            false => Outcome::Void,
        })
    }

    fn no_slab(&self, error: DriverError) -> Result<Outcome> {
        self.check_lost()?;
        self.submit()?;
        Ok(match error {
            DriverError::OutOfMemory | DriverError::OverBudget => Outcome::NoSlab,
            error => Outcome::Refused(refusal("a slab", error)),
        })
    }

    /// Submits the moves recorded so far. `false` if a submission was refused since there were so
    /// many refused ones: then its moves are undone.
    fn submit_moves(&self, refused_before: u64) -> Result<bool> {
        if !self.lock().batch.moved.is_empty() {
            self.submit()?;
        }
        Ok(self.lock().counters.refused_submissions == refused_before)
    }

    /// Creates a slab. Where slabs given back are still in use, and with them the device's bytes
    /// would pass the high-water mark or the budget, those are waited for first.
    pub(super) async fn create_planned(
        &self,
        growth: &Growth,
    ) -> Result<crate::alloc::SlabId, DriverError> {
        let retiring_bytes = self.driver.ledger().levels().retiring_bytes.now;
        if self
            .lock()
            .memory
            .passes_mark(growth.slab_bytes.saturating_add(retiring_bytes))
        {
            self.wait_to_create().await?;
        }
        let created = self.create_slab(growth).await;
        if !matches!(
            created,
            Err(DriverError::OverBudget | DriverError::OutOfMemory)
        ) {
            return created;
        }
        self.wait_to_create().await?;
        self.create_slab(growth).await
    }

    async fn wait_to_create(&self) -> Result<(), DriverError> {
        let waited = self.wait_for_retiring().await;
        waited
            .map(|_| ())
            .map_err(|error| DriverError::Lost(error.to_string()))
    }

    async fn create_slab(&self, growth: &Growth) -> Result<crate::alloc::SlabId, DriverError> {
        let label = "lapidary slab";
        let buffer = self
            .driver
            .create_buffer(Account::Slabs, growth.slab_bytes, label);
        let buffer = match buffer.await {
            Ok(buffer) => buffer,
            Err(error) => {
                self.keep_readback().await;
                return Err(error);
            }
        };
        let added = {
            let mut state = self.lock();
            state.counters.slabs_created += 1;
            state.memory.add_slab(growth, buffer)
        };
        self.keep_readback().await;
        added.map_err(|error| {
            self.driver.destroy_buffer(buffer, 0);
            DriverError::Invalid(error.to_string())
        })
    }

    /// A limit that was said keeps room for staging. Without one, and where the driver has less
    /// than that, slabs may take all there is: so a little is set aside for evicting them.
    async fn keep_readback(&self) {
        let levels = self.driver.ledger().levels();
        let is_said = levels.said_bytes < u64::MAX && levels.limit_bytes == levels.said_bytes;
        let has_slabs = self.lock().memory.reserved_bytes() > 0;
        if has_slabs && !is_said && !self.caps().maps_slabs {
            self.readbacks.keep_one().await;
        }
    }

    /// Moves blocks together, at most so many bytes of them, and gives back the slabs that this
    /// empties. Returns the bytes moved and those given back.
    pub(super) async fn compact_pass(&self, limit_bytes: u64) -> Result<(u64, u64)> {
        let (steps, moved_before, undone_before) = {
            let mut state = self.lock();
            state.free_dead();
            (
                state.memory.plan_pass(limit_bytes),
                state.memory.moved_bytes(),
                state.counters.undone_bytes,
            )
        };
        if steps.is_empty() {
            return Ok((0, 0));
        }
        let carried_out = self.carry_out(&steps);
        in_span!("compaction", { steps = steps.len() as u64 }, carried_out).await?;
        let freed_bytes = self.trim_slabs()?;
        let state = self.lock();
        let moved_bytes = state.memory.moved_bytes() - moved_before;
        let undone_bytes = state.counters.undone_bytes - undone_before;
        Ok((moved_bytes.saturating_sub(undone_bytes), freed_bytes))
    }
}

impl super::state::State {
    fn record_moves(&mut self, steps: &[Step]) {
        for step in steps {
            if let Step::Move { block, to } = step {
                self.record_move(*block, to);
            }
        }
    }

    /// Moves a block and records the copy. One that died meanwhile need not move.
    fn record_move(&mut self, block: BlockId, to: &Spot) {
        let Some(one) = self.memory.relocate(block, to) else {
            return;
        };
        self.memory.touch(one.from);
        self.memory.touch(one.to);
        // What happened to blocks before comes before the copy.
        if self.memory.has_changes() || !self.extend_copy(&one) {
            self.push_op(Op::Copy {
                src: one.from.buffer,
                src_offset_bytes: one.from.offset_bytes,
                dst: one.to.buffer,
                dst_offset_bytes: one.to.offset_bytes,
                size_bytes: one.size_bytes,
            });
        }
        self.memory.moved_away(&one);
        self.batch.moved.push(one);
    }

    /// Lets the last copy do this one too, if it moves the block before this to the place before
    /// this one's. What lies between the two is the first block's own.
    fn extend_copy(&mut self, one: &Moved) -> bool {
        let Some(last) = self.batch.moved.last() else {
            return false;
        };
        let step_bytes = self.memory.granted_bytes(last.size_bytes);
        let follows = |last: Place, one: Place| {
            last.buffer == one.buffer && last.offset_bytes + step_bytes == one.offset_bytes
        };
        if !follows(last.from, one.from) || !follows(last.to, one.to) {
            return false;
        }
        match self.batch.ops.last_mut() {
            Some(Op::Copy {
                src_offset_bytes,
                dst,
                dst_offset_bytes,
                size_bytes,
                ..
            }) if *dst == one.to.buffer
                && *dst_offset_bytes + *size_bytes == last.to.offset_bytes + last.size_bytes =>
            {
                *size_bytes = one.from.offset_bytes + one.size_bytes - *src_offset_bytes;
                true
            }
            _ => false,
        }
    }

    /// The batch was refused: what it should have moved is where it was. A block whose old range
    /// was taken since has lost its bytes.
    pub(super) fn undo_moves(&mut self, moved: &mut Vec<Moved>, cause: &Arc<Error>) {
        for one in moved.drain(..).rev() {
            let before_bytes = self.memory.moved_bytes();
            if !self.memory.move_back(&one) {
                self.memory.poison_block(one.block, cause);
            }
            // There and back; or only there, of one that has died or lost its bytes.
            self.counters.undone_bytes += match self.memory.moved_bytes() - before_bytes {
                0 => one.size_bytes,
                back_bytes => 2 * back_bytes,
            };
        }
    }
}
