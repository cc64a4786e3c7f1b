//! Encoded commands on their way to one submission.

use std::sync::{Arc, Weak};

use super::changes::BlockOp;
use super::times::Entry;
use crate::driver::{At, BindGroupId, BufferId, Op, PipelineId};
use crate::engine::kernel::Custom;
use crate::memory::Storage;
use crate::transfer::{Piece, Reading, Region};

/// The ops of one submission, and the data needed after the driver accepts or refuses it.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) ops: Vec<Op>,
    pub(crate) params: Vec<u8>,
    /// The staged bytes that the ops copy from.
    pub(crate) regions: Vec<Region>,
    /// The reads whose copies are among the ops, with the read-back buffer and its size in bytes.
    pub(crate) reads: Vec<(Arc<Reading>, Piece, (BufferId, u64))>,
    /// For each dispatch among the ops, the entry that counts its time. Empty if timing is off.
    pub(crate) timed: Vec<Entry>,
    /// The storages that the ops restore.
    restored: Vec<Weak<Storage>>,
    /// The blocks that the ops move, and those that they clear because another share had them.
    pub(crate) changes: Vec<BlockOp>,
    /// No other command may join. An app's kernel or buffer is in the batch, and the driver may
    /// refuse it.
    pub(crate) is_closed: bool,
    /// The approximate work of the dispatches, in the unit of
    /// [`Caps::most_work`](crate::driver::Caps).
    pub(crate) work: u64,
    /// The predicted time of the dispatches, which the driver's meter scales.
    pub(crate) predicted_ns: f64,
    /// The highest priority of its commands, if shares have priorities.
    pub(crate) highest_priority: Option<i8>,
    /// The custom kernel in the batch. Its pipeline stays until the submission.
    pub(crate) custom: Option<Arc<Custom>>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Whether the batch must be submitted before any other op joins.
    pub(crate) fn is_full(&self, most_ops: usize) -> bool {
        self.ops.len() >= most_ops || self.is_closed
    }

    /// The work of the batch after a dispatch of `amount` joins. `None` if one submission may not
    /// have that much.
    pub(crate) fn work_with(&self, amount: u64, most_work: u64) -> Option<u64> {
        let work = self.work.saturating_add(amount);
        (work <= most_work || self.is_empty()).then_some(work)
    }

    pub(crate) fn dispatches(&self) -> impl Iterator<Item = &Op> {
        let is_dispatch = |op: &&Op| matches!(op, Op::Dispatch { .. });
        self.ops.iter().filter(is_dispatch)
    }

    pub(crate) fn dispatch(
        &mut self,
        pipeline: PipelineId,
        bind_group: BindGroupId,
        params: &[u8],
        groups: [u32; 3],
    ) {
        let start = self.params.len() as u32;
        self.params.extend_from_slice(params);
        self.ops.push(Op::Dispatch {
            pipeline,
            bind_group,
            params: (start, params.len() as u32),
            groups,
        });
    }

    /// Adds an op that writes these bytes.
    pub(crate) fn write(&mut self, at: At, bytes: &[u8]) {
        let start = self.params.len() as u32;
        self.params.extend_from_slice(bytes);
        self.ops.push(Op::Write(at, (start, bytes.len() as u32)));
    }

    /// Times the dispatches that follow, or stops timing. Those in the batch already count as
    /// `others`.
    pub(super) fn time(&mut self, others: Option<Entry>) {
        self.timed.clear();
        if let Some(others) = others {
            self.timed.resize(self.dispatches().count(), others);
        }
    }

    /// Adds a storage that the ops restore.
    pub(crate) fn add_restored(&mut self, storage: &Arc<Storage>) {
        self.restored.push(Arc::downgrade(storage));
    }

    /// The storages that the ops restore, if they still have holders.
    pub(crate) fn restored(&self) -> impl Iterator<Item = Arc<Storage>> {
        self.restored.iter().filter_map(Weak::upgrade)
    }

    /// Whether the ops restore the storage.
    pub(crate) fn restores(&self, storage: &Arc<Storage>) -> bool {
        let address = Arc::as_ptr(storage);
        self.restored.iter().any(|one| one.as_ptr() == address)
    }

    /// Whether it must be submitted before a command of this priority, because its commands come
    /// first.
    pub(crate) fn is_above(&self, priority: Option<i8>) -> bool {
        priority.is_some() && self.highest_priority > priority
    }

    /// The highest priority of its commands; the lowest of all, if none is known.
    pub(crate) fn highest_priority(&self) -> i8 {
        self.highest_priority.unwrap_or(i8::MIN)
    }

    /// Empties the batch and keeps its allocations.
    pub(crate) fn clear(&mut self) {
        self.ops.clear();
        self.params.clear();
        self.regions.clear();
        self.reads.clear();
        self.timed.clear();
        self.restored.clear();
        self.changes.clear();
        self.is_closed = false;
        self.work = 0;
        self.predicted_ns = 0.0;
        self.highest_priority = None;
        self.custom = None;
    }
}
