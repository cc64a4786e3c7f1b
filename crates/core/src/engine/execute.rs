//! The execution pass: runs the whole queue and meets the needs of its steps.
//!
//! If the pass cannot meet a need, the command at the head of the queue fails. It is left behind if
//! there is no room now. If it can never run, its results are poisoned.

pub(super) mod answers;
mod bind;
mod describe;
mod encode;
mod encode_pages;
mod make_gear;
mod pick;
mod pick_rows;
mod step;
mod windows;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::kernel::Program;
use super::pass::Pass;
use super::queue::{Amid, Runs};
use super::reclaim::{self, StagingTries, callbacks, compact, refuse, shrink};
use super::shares::lending;
use super::shares::limits::drain_to_ceilings;
use super::state::caches::PipelineKey;
use super::{direct, restore};
use crate::driver::{BoxFuture, DriverError};
use crate::error::{Error, Result};
use crate::finally::Finally;
use crate::memory::{Heap, Storage};
use crate::transfer::refusal;
use step::Need;

/// The command at the head of the queue fails after this many refused submissions. Each refusal
/// undoes the preparation of the command.
const MOST_REFUSALS: u64 = 8;

impl Pass {
    /// Runs the whole queue and submits the rest of the batch. The caller has the execution lock.
    pub(super) fn execute(&self) -> BoxFuture<'_, Result<()>> {
        self.execute_from(self.least_priority(), false)
    }

    /// As [`execute`](Self::execute), also commands of lower priorities than the caller's.
    pub(super) fn execute_all(&self) -> BoxFuture<'_, Result<()>> {
        self.execute_from(i8::MIN, false)
    }

    /// Runs the commands above this priority that wait for no lower ones, and submits them. What
    /// was left behind before stays so.
    pub(super) async fn execute_above(&self, above: i8, amid: Amid) -> Result<()> {
        if self.diagnostics().is_some() {
            Box::pin(make_gear::prepare_diagnose(self)).await?;
        }
        let before = self.lock().queue.swap_runs(Runs {
            least_priority: above.saturating_add(1),
            amid: Some(amid),
            ..Runs::all()
        });
        // What the pass found that must wait is no news, so this is no swap.
        let _runs_as_before = Finally(|| self.lock().queue.runs = before);
        self.run_steps().await?;
        self.submit()
    }

    /// Runs commands of the queue up to a submission of some milliseconds, so that the caller may
    /// do something else between. Returns whether there are more.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) async fn execute_to_submission(&self) -> Result<bool> {
        {
            let queue = &mut self.lock().queue;
            queue.begin_pass(false, i8::MIN);
            queue.runs.ends_at_submission = true;
        }
        Box::pin(self.execute_queue()).await?;
        Ok(!self.lock().queue.is_empty())
    }

    /// As [`execute`](Self::execute), for a caller that will read some storages, and write others.
    /// Commands of lower priorities run too, if that depends on them: other shares may have lent
    /// the storages, or borrow them.
    pub(super) fn execute_for<'a>(
        &'a self,
        read: &'a [Arc<Storage>],
        written: &'a [Arc<Storage>],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            self.execute().await?;
            let leaves = self.lock().leaves(read, written);
            match leaves {
                true => self.execute_all().await,
                false => Ok(()),
            }
        })
    }

    /// As [`execute`](Self::execute), when no caller waits for a result. Leaves commands at the end
    /// of the queue for fusion with later ones, unless memory is short.
    pub(super) fn execute_early(&self) -> BoxFuture<'_, Result<()>> {
        self.execute_from(self.least_priority(), true)
    }

    /// Runs commands of this priority and higher ones. If it is `early`, some may wait for fusion.
    fn execute_from(&self, least_priority: i8, early: bool) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.lock().queue.begin_pass(early, least_priority);
            in_span!("execution_pass", { early = early }, self.execute_queue()).await
        })
    }

    async fn execute_queue(&self) -> Result<()> {
        self.outside.allow_asking();
        let has_shares = lending::note_lending(self);
        if self.diagnostics().is_some() {
            Box::pin(make_gear::prepare_diagnose(self)).await?;
        }
        if self.outside.must_shrink.load(Ordering::Acquire) {
            self.for_memory(None, shrink::shrink(self)).await?;
        }
        if has_shares {
            let least = self.lock().queue.runs.least_priority;
            drain_to_ceilings(self, least).await?;
            self.wait_if_lower().await?;
        }
        let mut left_before = usize::MAX;
        loop {
            let (begun, freed) = {
                let state = self.lock();
                (state.counters.commands_of_app, state.memory.slabs.freed)
            };
            if self.execute_once().await? {
                break;
            }
            // Commands behind one that found no room may have freed memory.
            let state = self.lock();
            let has_run = state.counters.commands_of_app > begun;
            let has_freed = state.memory.slabs.freed > freed;
            // If no fewer commands are left behind than before, they wait for the next pass.
            // Rematerialized commands run again each time and are no progress.
            let left = state.left_behind.len();
            if left == 0 || left >= left_before || !(has_run && has_freed) {
                break;
            }
            left_before = left;
        }
        loop {
            self.free_all_dead();
            // Dropped rematerializers may have been the last holders of results that commands left
            // behind would write.
            let state = &mut *self.lock();
            if !state.left_behind.drop_unwanted(&state.memory) {
                break;
            }
        }
        let is_empty = {
            let state = &mut *self.lock();
            let is_empty = state.queue.is_empty();
            if is_empty {
                state.memory.dead_list.forget_saved();
                if !state.memory.dead_list.has_saved() && !state.rematerializers.has_lineages() {
                    state.lineages.clear();
                }
            }
            is_empty
        };
        if is_empty {
            // What was read for commands that failed.
            self.give_up_all_reads();
        }
        self.submit()?;
        if self.diagnostics().is_some() && !self.lock().queue.runs.may_defer {
            answers::look_over(self).await?;
        }
        Ok(())
    }

    /// Runs the queue once. Returns whether it stopped after a submission.
    async fn execute_once(&self) -> Result<bool> {
        {
            let mut state = self.lock();
            state.update_time();
            if state.driver.caps().begins_early() && state.is_device_idle() {
                state.pace.begin_early();
            }
            state.take_up_left_behind();
        }
        self.run_steps().await
    }

    /// Runs the queue from where it is. Returns as [`execute_once`](Self::execute_once) does.
    async fn run_steps(&self) -> Result<bool> {
        let (mut commands, mut refusals) = self.lock().counters.progress();
        loop {
            let (need, has_reached) = {
                let mut state = self.lock();
                let need = state.step();
                let (commands_now, refusals_now) = state.counters.progress();
                if commands_now != commands {
                    (commands, refusals) = (commands_now, refusals_now);
                } else if need.is_some() && refusals_now - refusals > MOST_REFUSALS {
                    refusals = refusals_now;
                    state.head_failed(Error::driver(
                        "a submission",
                        "again and again, while the engine freed memory",
                    ));
                    continue;
                }
                (need, state.memory.watermarks.has_reached())
            };
            self.check_lost()?;
            if has_reached {
                callbacks::tell_watermarks(self);
            }
            let Some(need) = need else { return Ok(false) };
            let is_submission = matches!(need, Need::Submit);
            let hold = (!is_submission).then(|| self.hold());
            self.meet(need).await?;
            drop(hold);
            if is_submission && self.lock().queue.runs.ends_at_submission {
                return Ok(true);
            }
        }
    }

    /// Meets the need of the command at the head of the queue, or fails it.
    async fn meet(&self, need: Need) -> Result<()> {
        let met = match need {
            Need::Submit => {
                self.submit()?;
                self.wait_if_lower().await?;
                if self.lock().pace.submits_each() {
                    let _hold = self.hold();
                    compact::compact_pass(self, Heap::Device, u64::MAX).await?;
                    if self.caps().host_heap {
                        compact::compact_pass(self, Heap::Host, u64::MAX).await?;
                    }
                }
                Ok(())
            }
            Need::Room(storage) => {
                let before = self.lock().refused_again(&storage);
                match before {
                    Some(error) => Err(error),
                    None => {
                        let made = reclaim::make_room(self, &storage).await?;
                        made.inspect_err(|error| self.lock().note_refused(&storage, error))
                    }
                }
            }
            Need::Restore(storage) => {
                let brought = restore::restore(self, &storage);
                self.for_return(&storage, brought).await?
            }
            Need::ReadEvicted(storage, reading, piece) => {
                restore::read_evicted(self, &storage, &reading, piece).await?;
                self.delivered();
                Ok(())
            }
            Need::Words(words) => {
                pick::read_words(&mut self.lock(), words);
                Ok(())
            }
            Need::Rows(wanted) => Box::pin(pick_rows::pick_rows(self, &wanted)).await?,
            Need::Pipeline {
                program,
                key,
                params_bytes,
            } => {
                provide_pipeline(self, &program, key, params_bytes).await?;
                Ok(())
            }
            Need::Readback(storage, size_bytes) => {
                provide_readback(self, &storage, size_bytes).await?
            }
            Need::Answers => {
                answers::collect(self).await?;
                Ok(())
            }
            Need::Direct(reading, piece, place) => {
                direct::read_in_place(self, &reading, piece, place).await?;
                self.delivered();
                Ok(())
            }
        };
        match met {
            Ok(()) => Ok(()),
            Err(error) => Box::pin(leave_behind(self, error)).await,
        }
    }
}

/// Provides a read-back buffer for a piece. The inner error concerns the reading only.
async fn provide_readback(
    pass: &Pass,
    storage: &Arc<Storage>,
    size_bytes: u64,
) -> Result<Result<()>> {
    pass.submit()?;
    let mut tries = StagingTries::default();
    loop {
        let Err(error) = pass.unless_lost(pass.readbacks.provide(size_bytes).await)? else {
            return Ok(Ok(()));
        };
        if matches!(error, DriverError::OutOfMemory | DriverError::OverBudget) {
            let way = reclaim::make_way_for_staging(pass, size_bytes, &mut tries);
            if pass.for_memory(Some(storage), way).await? {
                continue;
            }
        }
        let what = "a read-back buffer";
        return Ok(Err(refuse::refused(pass, what, error, storage)));
    }
}

async fn provide_pipeline(
    pass: &Pass,
    program: &Program,
    key: PipelineKey,
    params_bytes: u32,
) -> Result<()> {
    let desc = describe::describe(program, &key, params_bytes, pass.driver.caps());
    let made = match pass.unless_lost(pass.driver.create_pipeline(desc).await)? {
        Ok(pipeline) => Ok(pipeline),
        // Only errors of the kernel itself are cached, because they would occur again.
        Err(DriverError::Invalid(message)) => Err(Arc::new(Error::driver(
            "a kernel",
            format!("{}: {message}", program.name()),
        ))),
        #[cfg(any(test, feature = "sim"))]
        Err(DriverError::Kernel(fault)) => Err(Arc::new(Error::Kernel(fault))),
        Err(error) => {
            pass.lock().head_failed(refusal("a kernel", error));
            return Ok(());
        }
    };
    let mut state = pass.lock();
    if let (Program::Fused(fused), Ok(_)) = (program, &made) {
        state.queue.compiled(fused);
    }
    state.pipelines.made.insert(key, made);
    Ok(())
}

/// Leaves the command at the head of the queue behind if there was no room for it.
async fn leave_behind(pass: &Pass, error: Error) -> Result<()> {
    if !matches!(error, Error::OutOfMemory(_)) || !shrink::was_lowered(pass).await? {
        pass.lock().head_failed(error);
    }
    Ok(())
}
