//! A driver without a device: it counts buffers and submissions, and computes nothing. The engine
//! of a dry run works on it, so its queue, its pools and its budget are the real ones.
//!
//! ```text
//!   submit ──► [17] [18] ──► done when two later submissions came, at a poll, or at a wait
//! ```
//!
//! Buffers have a size only, also those of a heap in the host's memory. Writes are ignored, and
//! reads give zeros.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::table::Table;
use super::{
    At, BindGroupId, Binding, BoxFuture, BufferId, BufferKind, Caps, Driver, DriverResult, MapMode,
    Op, OsBudget, PipelineDesc, PipelineId, Signal, Submission,
};

/// The submissions that a device has in progress while the host records. Memory that they use is
/// released when they are done.
const IN_PROGRESS: u64 = 2;

/// The driver of a dry run.
#[derive(Debug)]
pub(crate) struct DryDriver {
    caps: Caps,
    lost: OnceLock<String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// For each buffer, the last submission that copies to or from it; 0 for none.
    buffers: Table<u64>,
    pipelines: Table<()>,
    groups: Table<()>,
    buffers_created: u64,
    submitted: u64,
    completed: u64,
    /// The signals of events in progress, in the order of their serials.
    pending: VecDeque<Signal>,
    /// The contents of all buffers.
    zeros: Arc<Vec<u8>>,
}

impl DryDriver {
    /// A device with these abilities, and memory without end, also for a heap in the host's memory.
    pub(crate) fn new(caps: Caps) -> Self {
        DryDriver {
            caps,
            lost: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// A buffer of the app, which no budget counts.
    pub(crate) fn foreign_buffer(&self) -> BufferId {
        BufferId(self.state.lock().buffers.insert(0))
    }
}

impl State {
    /// All submissions up to this one are done.
    fn complete(&mut self, serial: u64) {
        self.completed = self.completed.max(serial.min(self.submitted));
        while let Some(signal) = self.pending.front() {
            if signal.serial() > self.completed {
                break;
            }
            signal.set(true);
            self.pending.pop_front();
        }
    }

    fn used_by(&mut self, buffer: BufferId, serial: u64) {
        if let Some(last_use) = self.buffers.get_mut(buffer.0) {
            *last_use = serial;
        }
    }
}

impl Driver for DryDriver {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn create_buffer(
        &self,
        _: BufferKind,
        _: u64,
        _: &str,
    ) -> BoxFuture<'_, DriverResult<BufferId>> {
        let mut state = self.state.lock();
        state.buffers_created += 1;
        let buffer = BufferId(state.buffers.insert(0));
        Box::pin(std::future::ready(Ok(buffer)))
    }

    fn destroy_buffer(&self, buffer: BufferId) {
        self.state.lock().buffers.remove(buffer.0);
    }

    fn create_pipeline(&self, _: PipelineDesc) -> BoxFuture<'_, DriverResult<PipelineId>> {
        let pipeline = PipelineId(self.state.lock().pipelines.insert(()));
        Box::pin(std::future::ready(Ok(pipeline)))
    }

    fn destroy_pipeline(&self, pipeline: PipelineId) {
        self.state.lock().pipelines.remove(pipeline.0);
    }

    fn create_bind_group(&self, _: PipelineId, _: &[Binding]) -> DriverResult<BindGroupId> {
        Ok(BindGroupId(self.state.lock().groups.insert(())))
    }

    fn destroy_bind_group(&self, group: BindGroupId) {
        self.state.lock().groups.remove(group.0);
    }

    fn submit(&self, ops: &[Op], _: &[u8]) -> DriverResult<Submission> {
        let mut state = self.state.lock();
        state.submitted += 1;
        let serial = state.submitted;
        for op in ops {
            match op {
                Op::Copy(At(src, _), At(dst, _), _) => {
                    state.used_by(*src, serial);
                    state.used_by(*dst, serial);
                }
                Op::Write(At(dst, _), _) => state.used_by(*dst, serial),
                Op::Clear(..) | Op::Dispatch { .. } => {}
            }
        }
        let done = Signal::after(serial);
        state.pending.push_back(done.clone());
        state.complete(serial.saturating_sub(IN_PROGRESS));
        Ok(Submission { serial, done })
    }

    fn completed(&self) -> u64 {
        self.state.lock().completed
    }

    fn buffers_created(&self) -> u64 {
        self.state.lock().buffers_created
    }

    fn poll(&self) -> DriverResult<()> {
        let mut state = self.state.lock();
        let next = state.completed + 1;
        state.complete(next);
        Ok(())
    }

    fn wait<'a>(&'a self, signal: &'a Signal) -> BoxFuture<'a, DriverResult<()>> {
        self.state.lock().complete(signal.serial());
        Box::pin(std::future::ready(Ok(())))
    }

    fn map(&self, at: At, _: MapMode, _: u64) -> DriverResult<Signal> {
        let mut state = self.state.lock();
        let last_use = state.buffers.get(at.0.0).copied().unwrap_or(0);
        let signal = Signal::after(last_use);
        if last_use <= state.completed {
            signal.set(true);
        } else {
            let after = (state.pending).partition_point(|one| one.serial() <= last_use);
            state.pending.insert(after, signal.clone());
        }
        Ok(signal)
    }

    fn write_mapped(&self, _: At, _: &[u8]) -> DriverResult<()> {
        Ok(())
    }

    fn read_mapped(&self, _: At, size_bytes: u64, look: &mut dyn FnMut(&[u8])) -> DriverResult<()> {
        let size = size_bytes as usize;
        let zeros = {
            let mut state = self.state.lock();
            if state.zeros.len() < size {
                // Fresh pages of the system are zeros, and take no memory until they are written.
                state.zeros = Arc::new(vec![0; size]);
            }
            state.zeros.clone()
        };
        look(&zeros[..size]);
        Ok(())
    }

    fn write_now(&self, _: At, _: &[u8]) -> Option<DriverResult<()>> {
        Some(Ok(()))
    }

    fn unmap(&self, _: BufferId) {}

    fn may_be_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    fn lost(&self) -> Option<String> {
        self.lost.get().cloned()
    }

    fn declare_lost(&self, reason: &str) {
        let _ = self.lost.set(reason.to_owned());
    }

    fn os_budget(&self) -> Option<OsBudget> {
        None
    }

    fn has_contents(&self) -> bool {
        false
    }

    fn has_clock(&self) -> bool {
        false
    }

    fn returns_early(&self) -> bool {
        false
    }
}
