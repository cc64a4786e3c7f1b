//! Submitting the batch, and releasing slabs that the batch does not name.

use std::sync::Arc;

use crate::alloc::SlabId;
use crate::driver::{BindGroupId, BufferId, DriverResult};
use crate::engine::diagnose;
use crate::engine::pass::Pass;
use crate::engine::state::State;
use crate::engine::state::batch::Batch;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::transfer::refusal;

impl Pass {
    /// Submits the batch. A refusal poisons the storages that the batch should have written.
    pub(crate) fn submit(&self) -> Result<()> {
        let (mut batch, has_refused_changes) = {
            let mut state = self.lock();
            state.handle_changes();
            let batch = std::mem::take(&mut state.batch);
            state.in_submission = (!batch.is_empty()).then(|| batch.highest_priority());
            (batch, state.refused_changes.are_left())
        };
        let result = match batch.is_empty() {
            true if has_refused_changes => self.submit_only_changes(),
            true => Ok(()),
            false => {
                within!("submission", { ops = batch.ops.len() as u64 }, {
                    self.submit_batch(&mut batch)
                })
            }
        };
        batch.clear();
        self.drop_stale_copies();
        let mut state = self.lock();
        state.batch = batch;
        state.in_submission = None;
        for buffer in state.memory.slots.take_forgotten_imports() {
            state.groups.forget_buffer(buffer);
            self.driver.destroy_buffer(buffer, 0);
        }
        state.groups.sweep();
        state.pipelines.sweep(&self.driver);
        let has_priorities = state.has_priorities;
        drop(state);
        if has_priorities {
            self.waiters.notify();
        }
        result
    }

    /// The pass has delivered bytes of a read without a submission. The thread that wants them may
    /// wait for the pass, which goes on with work of a lower priority.
    pub(crate) fn delivered(&self) {
        let has_priorities = self.lock().has_priorities;
        if has_priorities {
            self.waiters.notify();
        }
    }

    fn submit_batch(&self, batch: &mut Batch) -> Result<()> {
        self.uploads.seal(&batch.regions);
        self.restore_staging.seal(&batch.regions);
        let submitted = self
            .submit_refused_changes()
            .and_then(|()| (self.driver).submit(&batch.ops, &batch.params, batch.predicted_ns));
        batch.regions.clear();
        let (mut failure, mut awaited) = (None, None);
        match submitted {
            Ok(submission) => {
                for (reading, piece, buffer) in batch.reads.drain(..) {
                    if let Err(error) = self.readbacks.submitted(&reading, piece, buffer) {
                        reading.fail(refusal("to map a read-back buffer", error));
                    }
                    if reading.is_awaited() {
                        awaited = Some(reading);
                    }
                }
                let mut state = self.lock();
                state.memory.batch_ended(Some(submission.serial));
                state.submitted(submission, &batch.timed);
                state.pace.grow();
                if let Some(diagnose) = &mut state.diagnose {
                    diagnose.submitted = diagnose.asked.len();
                }
            }
            Err(error) => failure = Some(refusal("a submission", error)),
        }
        if let Some(error) = failure {
            let cause = Arc::new(error);
            for (reading, _, buffer) in batch.reads.drain(..) {
                reading.fail(Error::clone(&cause));
                self.readbacks.give_back(buffer);
            }
            let mut state = self.lock();
            let written = state.memory.slots.written_in_batch();
            state.memory.batch_ended(None);
            state.counters.refused_submissions += 1;
            for storage in written {
                state.memory.slots.poison(&storage, &cause);
            }
            // The copies that should have restored these were refused too, so the storages stay
            // evicted.
            for storage in batch.restored() {
                state.memory.undo_restore(&storage, &cause);
            }
            let (state, changes) = (&mut *state, std::mem::take(&mut batch.changes));
            state.refused_changes.keep(changes, &mut state.memory);
            diagnose::not_answered(state);
        }
        // The next use of a chunk finds out if it could not be mapped again.
        let _ = self.uploads.sweep();
        let _ = self.restore_staging.sweep();
        self.driver.settle();
        if let Some(run) = self.driver.take_link_run() {
            (self.lock().costs).note_link(&run);
        }
        // Takes pieces in while the device copies this one. Some drivers accept a submission only
        // after they have finished the last. Then all pieces would arrive before the first is taken
        // in.
        if let Some(reading) = awaited {
            self.readbacks.take_in_arrived(&reading);
        }
        self.check_lost()
    }

    /// Submits the changes of refused batches. The next submission tries again what is refused.
    fn submit_only_changes(&self) -> Result<()> {
        let changed = self.submit_refused_changes();
        {
            let state = &mut *self.lock();
            state.memory.batch_ended(None);
            state.refused_changes.touch(&mut state.memory);
            state.counters.refused_submissions += u64::from(changed.is_err());
        }
        self.check_lost()
    }

    /// Submits the changes of refused batches, which go before all other work.
    fn submit_refused_changes(&self) -> DriverResult<()> {
        let ops = self.lock().refused_changes.ops();
        if ops.is_empty() {
            return Ok(());
        }
        let submission = self.driver.submit(&ops, &[], 0.0)?;
        let state = &mut *self.lock();
        (state.refused_changes).submitted(&mut state.memory, submission.serial);
        state.submitted(submission, &[]);
        Ok(())
    }

    /// Releases, one by one, the empty slabs that `next` names.
    pub(crate) fn release(&self, next: impl Fn(&Memory) -> Option<(SlabId, bool)>) -> Result<u64> {
        let mut released = 0;
        loop {
            let mut buffers = Vec::new();
            let (is_over, groups) = {
                let mut state = self.lock();
                // The diagnostics first check the freed blocks of a slab that goes.
                state.handle_changes();
                let is_over = release_slabs(&mut state, &next, &mut buffers);
                if !buffers.is_empty() && state.memory.slabs.reserved_bytes() == 0 {
                    self.readbacks.keep_none();
                }
                (is_over, forget_buffers(&mut state, &buffers))
            };
            // Destroying many groups takes a while, so other threads may record meanwhile.
            for group in groups {
                self.driver.destroy_bind_group(group);
            }
            for &(buffer, last_serial) in &buffers {
                self.driver.destroy_buffer(buffer, last_serial);
            }
            released += buffers.len() as u64;
            if is_over {
                return Ok(released);
            }
            self.submit()?;
            if self.lock().refused_changes.are_left() {
                // They name slabs until the driver takes them.
                return Ok(released);
            }
        }
    }
}

/// Releases the empty slabs that `next` names. Returns whether it released all. If not, the batch
/// names the next slab and must be submitted first.
fn release_slabs(
    state: &mut State,
    next: impl Fn(&Memory) -> Option<(SlabId, bool)>,
    buffers: &mut Vec<(BufferId, u64)>,
) -> bool {
    while let Some((slab, in_batch)) = next(&state.memory) {
        if in_batch {
            return false;
        }
        match state.memory.release(slab) {
            Some(buffer) => buffers.push(buffer),
            None => break,
        }
    }
    true
}

/// Forgets the bind groups that name buffers about to be destroyed. Returns the groups to destroy
/// now. If the batch has ops, its submission destroys them.
fn forget_buffers(state: &mut State, buffers: &[(BufferId, u64)]) -> Vec<BindGroupId> {
    match buffers {
        [] => return Vec::new(),
        [(buffer, _)] => state.groups.forget_buffer(*buffer),
        _ => {
            let gone = buffers
                .iter()
                .map(|(buffer, _)| buffer.0.number())
                .collect();
            state.groups.forget_buffers(&gone);
        }
    }
    match state.batch.is_empty() {
        true => std::mem::take(&mut state.groups.discarded),
        false => Vec::new(),
    }
}
