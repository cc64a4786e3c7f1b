//! Encoded commands on their way to one submission.

use std::sync::{Arc, Weak};

use super::kernel::Custom;
use super::times::Entry;
use crate::driver::{BindGroupId, BufferId, Op, PipelineId};
use crate::memory::{Moved, Storage};
use crate::transfer::{Piece, Reading, Region};

/// A read-back buffer: its id, and its size in bytes.
type ReadbackBuffer = (BufferId, u64);

/// The ops of one submission, and what is to be done once it was accepted or refused.
#[derive(Debug, Default)]
pub(super) struct Batch {
    ops: Vec<Op>,
    params: Vec<u8>,
    /// Staged bytes that the ops copy from.
    regions: Vec<Region>,
    /// Reads whose copies are among the ops, with their buffers.
    reads: Vec<(Arc<Reading>, Piece, ReadbackBuffer)>,
    /// Of each dispatch among the ops, where its time counts; empty where nobody wants to know.
    timed: Vec<Entry>,
    /// Storages that the ops bring back.
    arrived: Vec<Weak<Storage>>,
    /// Blocks that the ops move.
    moved: Vec<Moved>,
    /// Nothing else may join: what it does is not ours to vouch for.
    is_closed: bool,
    /// About how much the dispatches are to do, as [`Caps::most_work`](crate::driver::Caps) counts
    /// it.
    work: u64,
    /// The custom kernel in it, whose pipeline stays until it is submitted.
    custom: Option<Arc<Custom>>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub(super) fn ops(&self) -> &[Op] {
        &self.ops
    }

    pub(super) fn params(&self) -> &[u8] {
        &self.params
    }

    /// Is it to be submitted before anything else joins it?
    pub(super) fn is_full(&self, most_ops: usize) -> bool {
        self.ops.len() >= most_ops || self.is_closed
    }

    /// Lets nothing else join, or everything again.
    pub(super) fn close(&mut self, is_closed: bool) {
        self.is_closed = is_closed;
    }

    /// What the dispatches amount to if one of this amount joins; `None` if that is more than one
    /// submission should have.
    pub(super) fn work_with(&self, amount: u64, most_work: u64) -> Option<u64> {
        let work = self.work.saturating_add(amount);
        (work <= most_work || self.is_empty()).then_some(work)
    }

    pub(super) fn set_work(&mut self, work: u64) {
        self.work = work;
    }

    /// Does it keep the device busy with more than copies?
    pub(super) fn computes(&self) -> bool {
        self.dispatches() > 0
    }

    fn dispatches(&self) -> usize {
        let is_dispatch = |op: &&Op| matches!(op, Op::Dispatch { .. });
        self.ops.iter().filter(is_dispatch).count()
    }

    pub(super) fn push(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// The op that was pushed last.
    pub(super) fn last_mut(&mut self) -> Option<&mut Op> {
        self.ops.last_mut()
    }

    pub(super) fn dispatch(
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

    /// The time of the last dispatch counts there.
    pub(super) fn count_time(&mut self, entry: Entry) {
        self.timed.push(entry);
    }

    pub(super) fn timed(&self) -> &[Entry] {
        &self.timed
    }

    /// Times the dispatches from now on, or no longer; those it has already count as `others`.
    pub(super) fn time(&mut self, others: Option<Entry>) {
        self.timed.clear();
        if let Some(others) = others {
            self.timed.resize(self.dispatches(), others);
        }
    }

    /// The ops copy from these staged bytes.
    pub(super) fn copies_from(&mut self, region: Region) {
        self.regions.push(region);
    }

    pub(super) fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The chunks of the staged bytes are sealed.
    pub(super) fn forget_regions(&mut self) {
        self.regions.clear();
    }

    /// The ops copy a piece of a reading to this buffer.
    pub(super) fn reads(&mut self, reading: Arc<Reading>, piece: Piece, buffer: ReadbackBuffer) {
        self.reads.push((reading, piece, buffer));
    }

    pub(super) fn take_reads(
        &mut self,
    ) -> impl Iterator<Item = (Arc<Reading>, Piece, ReadbackBuffer)> {
        self.reads.drain(..)
    }

    /// The ops bring a storage back.
    pub(super) fn brings(&mut self, storage: &Arc<Storage>) {
        self.arrived.push(Arc::downgrade(storage));
    }

    /// The storages that the ops bring back, and that are still held.
    pub(super) fn arrived(&self) -> impl Iterator<Item = Arc<Storage>> {
        self.arrived.iter().filter_map(Weak::upgrade)
    }

    /// The ops move a block.
    pub(super) fn moves(&mut self, one: Moved) {
        self.moved.push(one);
    }

    pub(super) fn last_moved(&self) -> Option<&Moved> {
        self.moved.last()
    }

    /// Does it move blocks?
    pub(super) fn has_moves(&self) -> bool {
        !self.moved.is_empty()
    }

    /// Takes out the moves, the last first.
    pub(super) fn take_moves(&mut self) -> impl Iterator<Item = Moved> {
        self.moved.drain(..).rev()
    }

    /// A kernel of the app's is in it.
    pub(super) fn holds(&mut self, custom: Arc<Custom>) {
        self.custom = Some(custom);
    }

    /// Empties it, keeping its allocations.
    pub(super) fn clear(&mut self) {
        self.ops.clear();
        self.params.clear();
        self.regions.clear();
        self.reads.clear();
        self.timed.clear();
        self.arrived.clear();
        self.moved.clear();
        self.is_closed = false;
        self.work = 0;
        self.custom = None;
    }
}
