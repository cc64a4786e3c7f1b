//! What the execution pass needs and cannot do under its lock: slabs, pipelines, submissions,
//! mappings.
//!
//! Everything here is called by whoever has the execution lock, with the engine's lock released. A
//! command whose need cannot be met is at the head of the queue: it is left behind (no room now),
//! or what it writes is poisoned (never).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::caches::PipelineKey;
use super::cmd::Cmd;
use super::execute::{FIRST_BATCH_OPS, MAX_BATCH_OPS, Need};
use super::kernel::Program;
use super::state::{Batch, Counters, State};
use super::wgsl::{self, Target};
use super::{EARLY_COMMANDS, Engine};
use crate::alloc::{AllocError, SlabId};
use crate::driver::{BindGroupId, BufferId, Caps, DriverError, PipelineDesc};
use crate::error::{Error, Result};
use crate::memory::{Memory, Storage};
use crate::transfer::refusal;

/// So many submissions are refused while one command is at the head of the queue, and it is given
/// up: what it needs is undone each time.
const MOST_REFUSALS: u64 = 8;

impl Engine {
    /// Takes the queue to its end and submits what came of it. The caller has the execution lock.
    pub(super) async fn execute(&self) -> Result<()> {
        self.lock().may_wait = false;
        in_span!("execution_pass", {}, self.execute_queue()).await
    }

    /// As [`execute`](Self::execute), before anybody wants a result: what later commands may become
    /// one with is left at the end of the queue, unless room is short.
    pub(super) async fn execute_early(&self) -> Result<()> {
        self.lock().may_wait = true;
        in_span!("execution_pass", { early = true }, self.execute_queue()).await
    }

    async fn execute_queue(&self) -> Result<()> {
        self.outside.may_ask_anew();
        if self.wanted.is_some() {
            self.prepare_diagnose().await?;
        }
        if self.outside.must_shrink.load(Ordering::Acquire) {
            self.shrink().await?;
        }
        let mut left_before = usize::MAX;
        loop {
            let (begun, freed) = {
                let state = self.lock();
                (state.counters.commands_of_app, state.memory.freed())
            };
            self.execute_once().await?;
            // Room may have come free behind a command that found none.
            let state = self.lock();
            let has_run = state.counters.commands_of_app > begun;
            let has_freed = state.memory.freed() > freed;
            // What is left time and again, though some of it is done anew each time, waits for the
            // next execution pass.
            let left = state.left.cmds.len();
            if left == 0 || left >= left_before || !(has_run && has_freed) {
                break;
            }
            left_before = left;
        }
        loop {
            self.free_all_dead();
            // What rematerializers held that are gone by now may have been all that wanted what was
            // left behind.
            if !self.lock().drop_unwanted() {
                break;
            }
        }
        self.submit()?;
        if self.wanted.is_some() && !self.lock().may_wait {
            self.look_over().await?;
        }
        Ok(())
    }

    async fn execute_once(&self) -> Result<()> {
        let (mut commands, mut refusals) = {
            let mut state = self.lock();
            state.tell_time();
            if state.driver.caps().begins_early() && state.is_device_idle() {
                state.next_batch_ops = FIRST_BATCH_OPS;
            }
            state.early_commands = EARLY_COMMANDS;
            state.try_again();
            state.progress()
        };
        loop {
            let need = {
                let mut state = self.lock();
                let need = state.step();
                let (commands_now, refusals_now) = state.progress();
                if commands_now != commands {
                    (commands, refusals) = (commands_now, refusals_now);
                } else if refusals_now - refusals > MOST_REFUSALS {
                    refusals = refusals_now;
                    state.head_failed(Error::Driver {
                        what: "a submission",
                        message: "again and again, while room was made for a command".into(),
                    });
                    continue;
                }
                need
            };
            self.check_lost()?;
            let Some(need) = need else { return Ok(()) };
            match need {
                Need::Submit => {
                    self.submit()?;
                    if self.lock().most_batch_ops == 1 {
                        self.compact_pass(u64::MAX).await?;
                    }
                }
                Need::Room { storage } => {
                    let made = self.make_room(&storage).await?;
                    self.or_leave(made).await?;
                }
                Need::Restore { storage } => {
                    let brought = self.restore(&storage).await?;
                    self.or_leave(brought).await?;
                }
                Need::ReadEvicted {
                    storage,
                    reading,
                    piece,
                } => self.read_evicted(&storage, &reading, piece).await?,
                Need::Words(words) => self.lock().read_words(words),
                Need::Rows(wanted) => {
                    let picked = self.pick_rows(&wanted).await?;
                    self.or_leave(picked).await?;
                }
                Need::Pipeline {
                    program,
                    key,
                    params_bytes,
                } => {
                    self.provide_pipeline(&program, key, params_bytes).await?;
                }
                Need::Readback {
                    storage,
                    size_bytes,
                } => {
                    let provided = self.provide_readback(&storage, size_bytes).await?;
                    self.or_leave(provided).await?;
                }
                Need::Answers => self.collect().await?,
                Need::Direct {
                    reading,
                    piece,
                    place,
                } => {
                    self.read_in_place(&reading, piece, place).await?;
                }
            }
        }
    }

    /// Submits the batch. A refusal poisons what the batch should have written.
    pub(super) fn submit(&self) -> Result<()> {
        let mut batch = {
            let mut state = self.lock();
            if state.memory.has_changes() {
                state.attend();
            }
            std::mem::take(&mut state.batch)
        };
        let result = match batch.is_empty() {
            true => Ok(()),
            false => {
                within!("submission", { ops = batch.ops.len() as u64 }, {
                    self.submit_batch(&mut batch)
                })
            }
        };
        batch.clear();
        self.drop_gone();
        let mut state = self.lock();
        state.batch = batch;
        for buffer in state.memory.take_forgotten_imports() {
            state.groups.forget_buffer(buffer);
            self.driver.destroy_buffer(buffer, 0);
        }
        state.sweep();
        result
    }

    fn submit_batch(&self, batch: &mut Batch) -> Result<()> {
        self.uploads.seal(&batch.regions);
        self.restore_staging.seal(&batch.regions);
        let submitted = self.driver.submit(&batch.ops, &batch.params);
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
                state.submitted(submission.serial, &batch.timed);
                state.next_batch_ops = (2 * state.next_batch_ops).min(MAX_BATCH_OPS);
                state.memory.batch_ended(Some(submission.serial));
                if let Some(diagnose) = &mut state.diagnose {
                    diagnose.was_submitted();
                }
                state.last_submission = Some(submission);
            }
            Err(error) => failure = Some(refusal("a submission", error)),
        }
        if let Some(error) = failure {
            let cause = Arc::new(error);
            for (reading, _, buffer) in batch.reads.drain(..) {
                reading.fail((*cause).clone());
                self.readbacks.give_back(buffer);
            }
            let mut state = self.lock();
            let written = state.memory.written_in_batch();
            state.memory.batch_ended(None);
            state.counters.refused_submissions += 1;
            state.undo_moves(&mut batch.moved, &cause);
            for storage in written {
                state.memory.poison(&storage, &cause);
            }
            // What should have brought these back was refused too: they are where they were.
            for storage in batch.arrived.iter().filter_map(std::sync::Weak::upgrade) {
                state.memory.undo_restore(&storage, &cause);
            }
            state.not_answered();
        }
        // A chunk that cannot be mapped again is found broken at its next use.
        let _ = self.uploads.sweep();
        let _ = self.restore_staging.sweep();
        self.driver.settle();
        // While the device copies this piece: some drivers take a submission only when they are
        // through with the last, and the pieces would all have arrived before the first is looked
        // at.
        if let Some(reading) = awaited {
            self.readbacks.take_in_arrived(&reading);
        }
        self.check_lost()
    }

    /// Waits until everything submitted so far is done.
    pub(super) async fn wait_idle(&self) -> Result<()> {
        let last = self.lock().last_submission.clone();
        if let Some(submission) = last {
            let waited = self.driver.wait(&submission.done).await;
            self.check_lost()?;
            waited.map_err(|error| refusal("to wait for a submission", error))?;
        }
        self.driver.settle();
        Ok(())
    }

    /// Releases one slab, if it is empty.
    pub(super) fn release_one(&self, slab: SlabId) -> Result<u64> {
        self.release(|memory| memory.if_empty(slab))
    }

    /// Releases the empty slabs that `next` names, one after the other.
    pub(super) fn release(&self, next: impl Fn(&Memory) -> Option<(SlabId, bool)>) -> Result<u64> {
        let mut released = 0;
        loop {
            let mut buffers = Vec::new();
            let (is_over, groups) = {
                let mut state = self.lock();
                if state.memory.has_changes() {
                    // What lay in a slab that goes is looked at first.
                    state.attend();
                }
                let is_over = state.release_slabs(&next, &mut buffers);
                if !buffers.is_empty() && state.memory.reserved_bytes() == 0 {
                    self.readbacks.keep_none();
                }
                (is_over, state.forget_buffers(&buffers))
            };
            // That takes a while where there are many, and others may record meanwhile.
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
        }
    }

    /// Makes room for a piece among the read-back buffers. The inner error is the reading's.
    async fn provide_readback(
        &self,
        storage: &Arc<Storage>,
        size_bytes: u64,
    ) -> Result<Result<()>> {
        self.submit()?;
        let mut tries = 0;
        loop {
            let provided = self.readbacks.provide(size_bytes).await;
            self.check_lost()?;
            match provided {
                Ok(()) => return Ok(Ok(())),
                Err(DriverError::OutOfMemory | DriverError::OverBudget)
                    if self.make_way(size_bytes, tries).await? =>
                {
                    tries += 1;
                }
                Err(error) => return Ok(Err(self.refused("a read-back buffer", error, storage))),
            }
        }
    }

    async fn provide_pipeline(
        &self,
        program: &Program,
        key: PipelineKey,
        params_bytes: u32,
    ) -> Result<()> {
        let desc = describe(program, &key, params_bytes, self.driver.caps());
        let made = match self.driver.create_pipeline(desc).await {
            Ok(pipeline) => Ok(pipeline),
            // Only the kernel's own fault is remembered: it will be the same next time.
            Err(DriverError::Invalid(message)) => Err(Arc::new(Error::Driver {
                what: "a kernel",
                message: format!("{}: {message}", program.name()),
            })),
            Err(DriverError::Kernel(fault)) => Err(Arc::new(Error::Kernel(fault))),
            Err(error) => return self.or_give_up(Err(error), "a kernel"),
        };
        let mut state = self.lock();
        if let (Program::Fused(fused), Ok(_)) = (program, &made) {
            state.keep_in_mind(fused);
        }
        state.pipelines.insert(key, made);
        Ok(())
    }

    /// Leaves the command at the head of the queue behind if there was no room for it.
    async fn or_leave(&self, made: Result<()>) -> Result<()> {
        let Err(error) = made else { return Ok(()) };
        if !matches!(error, Error::OutOfMemory(_)) || !self.was_lowered().await? {
            self.lock().head_failed(error);
        }
        Ok(())
    }

    /// Poisons the command at the head of the queue if what it needs was refused.
    fn or_give_up(&self, result: Result<(), DriverError>, what: &'static str) -> Result<()> {
        self.check_lost()?;
        if let Err(error) = result {
            self.lock().head_failed(refusal(what, error));
        }
        Ok(())
    }
}

impl State {
    /// Destroys what the batch might have named; there must be none.
    fn sweep(&mut self) {
        self.groups.sweep();
        for pipeline in self.pipelines.discarded.drain(..) {
            self.driver.destroy_pipeline(pipeline);
        }
    }

    /// Gives up the empty slabs that `next` names. Returns whether that was all: if not, the batch
    /// names the next one, and must be submitted first.
    fn release_slabs(
        &mut self,
        next: impl Fn(&Memory) -> Option<(SlabId, bool)>,
        buffers: &mut Vec<(BufferId, u64)>,
    ) -> bool {
        while let Some((slab, in_batch)) = next(&self.memory) {
            if in_batch {
                return false;
            }
            match self.memory.release(slab) {
                Some(buffer) => buffers.push(buffer),
                None => break,
            }
        }
        true
    }

    /// Forgets the bind groups that name buffers which are about to be destroyed. Returns what is
    /// to be destroyed now; with a batch on its way that waits for the batch.
    fn forget_buffers(&mut self, buffers: &[(BufferId, u64)]) -> Vec<BindGroupId> {
        match buffers {
            [] => return Vec::new(),
            [(buffer, _)] => self.groups.forget_buffer(*buffer),
            _ => {
                let gone = buffers.iter().map(|(buffer, _)| *buffer).collect();
                self.groups.forget_buffers(&gone);
            }
        }
        match self.batch.is_empty() {
            true => std::mem::take(&mut self.groups.discarded),
            false => Vec::new(),
        }
    }

    /// Puts what was left behind by the last execution pass back in front of the queue, but for
    /// what nobody has a use for any more.
    pub(super) fn try_again(&mut self) {
        self.unplace_head();
        self.rematerializations.clear();
        let mut wanted = VecDeque::new();
        self.left.take_wanted(|cmd, _| wanted.push_front(cmd));
        for cmd in wanted.into_iter().rev() {
            self.push_head(cmd);
        }
    }

    /// Drops what was left behind and nobody has a use for any more. Returns whether there was
    /// anything.
    fn drop_unwanted(&mut self) -> bool {
        let left_before = self.left.cmds.len();
        let mut wanted = VecDeque::new();
        self.left
            .take_wanted(|cmd, error| wanted.push_front((cmd, error)));
        for (cmd, error) in wanted {
            self.left.push(cmd, error, &self.memory);
        }
        self.left.cmds.len() < left_before
    }

    /// Takes back the places that the command at the head of the queue was given so far, or took
    /// over.
    pub(super) fn unplace_head(&mut self) {
        if let Some(cmd) = self.queue.front() {
            take_back(cmd, &mut self.memory, &mut self.counters);
        }
        self.unplace();
    }

    /// As [`unplace_head`](Self::unplace_head), of a command that was at the head.
    pub(super) fn unplace_cmd(&mut self, cmd: &Cmd) {
        take_back(cmd, &mut self.memory, &mut self.counters);
        self.unplace();
    }

    fn unplace(&mut self) {
        for storage in std::mem::take(&mut self.placed) {
            if let Some(storage) = storage.upgrade() {
                self.memory.unplace(&storage);
            }
        }
    }

    /// How many commands of the app's have run, and how many submissions were refused.
    fn progress(&self) -> (u64, u64) {
        let counters = &self.counters;
        (counters.commands_of_app, counters.refused_submissions)
    }

    /// The command at the head of the queue cannot run: not now, or not at all.
    fn head_failed(&mut self, error: Error) {
        self.unplace_head();
        let head = self.pop_head();
        // What needs more room than its parts do gives way to them.
        if head.as_ref().is_some_and(|cmd| self.take_apart(cmd)) {
            return;
        }
        self.rematerializations.is_the_apps();
        match head {
            // It was only a hint, and must not hold anybody up.
            Some(Cmd::Prefetch(_)) | None => {}
            // The budget may be raised, and what the command was to change keeps its bytes.
            Some(cmd) if matches!(error, Error::NeverFits { .. }) => {
                self.left.push(cmd, error, &self.memory)
            }
            Some(cmd) if error.is_final() => self.poison(&cmd, &Arc::new(error)),
            Some(cmd) => self.left.push(cmd, error, &self.memory),
        }
    }
}

/// What a command took over that has not run. Only the last to hold a storage hands its place on,
/// so it was this command that did.
fn take_back(cmd: &Cmd, memory: &mut Memory, counters: &mut Counters) {
    cmd.each_operand(|storage, _| {
        if storage.is_donated() {
            memory.take_back(storage);
            counters.donated -= 1;
        }
    });
}

pub(super) fn never_fits(storage: &Storage, error: &AllocError) -> Error {
    match *error {
        AllocError::NeverFits { limit_bytes, .. } => Error::NeverFits {
            what: "a tensor",
            requested_bytes: storage.size_bytes(),
            limit_bytes,
            hint: "Split it",
        },
        ref other => Error::Driver {
            what: "a block",
            message: other.to_string(),
        },
    }
}

pub(super) fn describe(
    program: &Program,
    key: &PipelineKey,
    params_bytes: u32,
    caps: &Caps,
) -> PipelineDesc {
    let target = Target {
        window_bytes: caps.max_binding_bytes,
        immediates: params_bytes <= caps.max_immediate_bytes,
        enables: caps.backend == "webgpu",
        wide_words: caps.wide_words,
    };
    let bindings = key.layout.bindings(program.operands());
    match program {
        Program::Builtin(kernel) => {
            let text = (kernel.text)(&key.variant);
            PipelineDesc {
                label: kernel.name.to_string(),
                wgsl: wgsl::shader(&text, kernel.operands, &key.variant, &key.layout, &target),
                entry: "main".to_string(),
                bindings,
                params_bytes,
                zeroes_workgroup: false,
                written_whole: key.layout.written_whole(kernel.operands),
                reference: super::reference::builtin_reference(
                    kernel,
                    key.variant,
                    key.layout,
                    caps,
                ),
            }
        }
        Program::Fused(fused) => {
            let (operands, layout) = (&fused.operands, &key.layout);
            let wgsl = wgsl::shader(&fused.text, operands, &key.variant, layout, &target);
            fused.shader.get_or_init(|| wgsl.clone());
            PipelineDesc {
                label: fused.name.clone(),
                wgsl,
                entry: "main".to_string(),
                bindings,
                params_bytes,
                zeroes_workgroup: false,
                written_whole: key.layout.written_whole(&fused.operands),
                reference: super::reference::fused_reference(fused, key.variant, key.layout, caps),
            }
        }
        Program::Custom(custom) => PipelineDesc {
            label: custom.entry.clone(),
            wgsl: (custom.shader)(&key.layout, &target, key.variant.code),
            entry: custom.entry.clone(),
            bindings,
            params_bytes,
            zeroes_workgroup: true,
            written_whole: 0,
            reference: super::reference::custom_reference(custom, key.variant.code, caps),
        },
    }
}
