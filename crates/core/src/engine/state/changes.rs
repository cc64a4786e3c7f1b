//! Changes of blocks in the batch: moves within a heap, or from that of the device to that in the
//! host's memory, and clears of what another share left.
//!
//! A change takes effect when it is encoded, and later commands rely on it. If the driver refuses
//! the batch, nothing of it has run: what moves is still where it was. So the same ops go before
//! all later work, alone and in their order. Until the driver takes them it gets nothing else.
//!
//! All of them are repeated, whatever has become of the storages: commands of the next batch may be
//! encoded already. No repeated op does harm. Its target held nothing when it was encoded that an
//! earlier change had not taken out, and whatever is newer runs after it.

use crate::driver::{At, Op};
use crate::engine::state::State;
use crate::memory::{Memory, Place, Slabs};

/// An op that moves or clears a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockOp {
    /// Where the bytes are; `None` for a clear.
    from: Option<Place>,
    to: Place,
    size_bytes: u64,
}

impl BlockOp {
    pub(crate) fn moved(from: Place, to: Place, size_bytes: u64) -> Self {
        let from = Some(from);
        BlockOp {
            from,
            to,
            size_bytes,
        }
    }

    pub(crate) fn cleared(place: Place, size_bytes: u64) -> Self {
        BlockOp {
            from: None,
            to: place,
            size_bytes,
        }
    }

    fn op(&self) -> Op {
        match self.from {
            Some(from) => Op::Copy(from.at(0), self.to.at(0), self.size_bytes),
            None => Op::Clear(self.to.at(0), self.size_bytes),
        }
    }

    /// Calls `visit` for each place, with the slabs in which it lies.
    fn each_place(&self, memory: &mut Memory, visit: impl Fn(&mut Slabs, Place)) {
        for place in self.from.into_iter().chain([self.to]) {
            visit(memory.slabs_around(place), place);
        }
    }
}

/// The changes of refused batches, in order.
#[derive(Debug, Default)]
pub(crate) struct RefusedChanges(Vec<BlockOp>);

impl RefusedChanges {
    /// Whether ops must go before all other work.
    pub(crate) fn are_left(&self) -> bool {
        !self.0.is_empty()
    }

    /// Keeps the changes of a refused batch.
    pub(crate) fn keep(&mut self, changes: Vec<BlockOp>, memory: &mut Memory) {
        self.0.extend(changes);
        self.touch(memory);
    }

    /// The ops to submit before anything else.
    pub(crate) fn ops(&self) -> Vec<Op> {
        self.0.iter().map(BlockOp::op).collect()
    }

    /// The driver has taken the ops, with this submission.
    pub(crate) fn submitted(&mut self, memory: &mut Memory, serial: u64) {
        for one in self.0.drain(..) {
            one.each_place(memory, |slabs, place| slabs.used_by(place, serial));
        }
    }

    /// The device is lost, and all blocks with it.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }

    /// The slabs that they name must not be released. The next batch counts as their user.
    pub(crate) fn touch(&self, memory: &mut Memory) {
        for one in &self.0 {
            one.each_place(memory, Slabs::touch);
        }
    }
}

impl State {
    /// Records the move of a whole block.
    pub(crate) fn push_move(&mut self, from: Place, to: Place, bytes: u64) {
        // Other clears may wait, so that neighbours move by one copy. The diagnostics handle all
        // earlier changes of blocks before the copy.
        let previous = &self.memory.previous;
        if self.memory.canaries.has_changes() || previous.is_any_unclean([from, to], bytes) {
            self.handle_changes();
        }
        let change = BlockOp::moved(from, to, bytes);
        if !self.extend_move(from, to, bytes) {
            self.batch.ops.push(change.op());
        }
        self.batch.changes.push(change);
    }

    /// Extends the last copy by a move, if that copy is a move and both blocks are neighbours
    /// before and after it. The bytes between the two belong to the first block.
    fn extend_move(&mut self, from: Place, to: Place, size_bytes: u64) -> bool {
        let Some(last) = self.batch.changes.last().copied() else {
            return false;
        };
        let Some(last_from) = last.from else {
            return false;
        };
        // Only blocks of the device have canaries. Those are no neighbours here.
        let step_bytes = self.memory.slabs.whole_granules(last.size_bytes);
        let follows = |last: Place, one: Place| {
            last.buffer == one.buffer && last.offset_bytes + step_bytes == one.offset_bytes
        };
        if !follows(last_from, from) || !follows(last.to, to) {
            return false;
        }
        let last_ends = [last_from, last.to].map(|place| place.at(last.size_bytes));
        match self.batch.ops.last_mut() {
            Some(Op::Copy(src, dst, copied_bytes))
                if [*src, *dst].map(|At(buffer, at)| At(buffer, at + *copied_bytes))
                    == last_ends =>
            {
                *copied_bytes = from.offset_bytes + size_bytes - src.1;
                true
            }
            _ => false,
        }
    }
}
