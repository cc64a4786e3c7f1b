//! Whose turn it is: a pass that works for a lower priority lets work of a higher one go first.
//!
//! The pass looks for such work at each step, between submissions, and between the parts of a
//! reclaim: rounds of evictions, and moves of a compaction. Between two looks, the others wait. The
//! engine reports the longest such hold.
//!
//! A drain to a lowered limit is work of the share that is drained. The pass that drains
//! looks, too, and runs what it finds (`engine::shares::limits`).

use crate::engine::pass::Pass;
use crate::engine::state::State;
use crate::engine::state::holds::HeldFor;
use crate::error::Result;

/// Between two looks a pass frees or moves at most about this many bytes for a lower priority.
/// Their way over PCIe takes about as long as the submissions of lower work.
const MOST_ROUND_BYTES: u64 = 8 << 20;

/// But at most 1/16 of the limit, because the bytes of a small device take longer.
const MOST_ROUND_PART: u64 = 16;

/// The smallest round. Rounds are powers of two, so the parts of a move begin at whole words.
const LEAST_ROUND_BYTES: u64 = 64 << 10;

/// The part of a move that is not cut.
pub(in crate::engine) const WHOLE: u64 = u64::MAX;

/// The pass does something for which others may wait, and looks for work of a higher priority only
/// where it asks [`must_yield`](Pass::must_yield). After that it does what it did before.
pub(in crate::engine) struct HoldGuard<'a>(Option<(&'a Pass, Option<HeldFor>)>);

impl Drop for HoldGuard<'_> {
    fn drop(&mut self) {
        if let Some((pass, before)) = self.0 {
            pass.swap_hold(before);
        }
    }
}

impl Pass {
    /// Work of a lower priority waits for the submission before, so that work of a higher one
    /// waits for one submission at most. The wait is before the next commands are encoded, not
    /// before they are submitted: what comes meanwhile goes first.
    pub(in crate::engine) async fn wait_for_turn(&self) -> Result<()> {
        if self.works_for_lower() {
            self.wait_idle().await?;
        }
        Ok(())
    }

    /// From now on the pass meets a need of the command at the head of the queue.
    pub(in crate::engine) fn hold(&self) -> HoldGuard<'_> {
        match self.works_for_lower() {
            true => self.hold_for(HeldFor::Command),
            false => HoldGuard(None),
        }
    }

    /// From now on the pass does something whole, if others may wait for what it does.
    pub(in crate::engine) fn hold_whole(&self) -> HoldGuard<'_> {
        let is_held = self.lock().holds.held().is_some();
        match is_held {
            true => self.hold_for(HeldFor::Whole),
            false => HoldGuard(None),
        }
    }

    /// From now on the pass does this, and others may wait for it. What the pass does whole stays
    /// whole.
    pub(in crate::engine) fn hold_for(&self, held: HeldFor) -> HoldGuard<'_> {
        let before = self.lock().holds.held();
        if before != Some(HeldFor::Whole) {
            self.swap_hold(Some(held));
        }
        HoldGuard(Some((self, before)))
    }

    /// Begins, changes or ends what others may wait for. Returns what it was.
    pub(in crate::engine) fn swap_hold(&self, held: Option<HeldFor>) -> Option<HeldFor> {
        let mut state = self.lock();
        let now_ns = now_ns(self, &state);
        state.holds.swap(held, now_ns)
    }

    /// Whether commands of a higher priority have come that may go first. Then the pass should
    /// leave the need that it meets, which the command has again later. A drain runs them.
    pub(in crate::engine) fn must_yield(&self) -> bool {
        let state = &mut *self.lock();
        let Some(held) = state.holds.held().filter(|_| state.holds.looks()) else {
            return false;
        };
        let now_ns = now_ns(self, state);
        state.holds.look(now_ns);
        let has_come = match held {
            HeldFor::Drain { above } => state.has_above(above),
            _ => state.is_outranked(),
        };
        state.holds.note_found(has_come)
    }

    /// What a round of a reclaim frees at most, of these bytes, before the next look. It is also
    /// the largest part of a move.
    pub(in crate::engine) fn round_bytes(&self, wanted_bytes: u64) -> u64 {
        if !self.lock().holds.looks() {
            return wanted_bytes;
        }
        let limit_bytes = self.driver.ledger().slab_limit_now_bytes();
        let most_bytes = (limit_bytes / MOST_ROUND_PART).clamp(LEAST_ROUND_BYTES, MOST_ROUND_BYTES);
        wanted_bytes.min(1 << most_bytes.ilog2())
    }

    /// Whether to leave a move between two of its parts. A part of `WHOLE` is never left.
    pub(in crate::engine) fn leaves_move(&self, part_bytes: u64) -> bool {
        part_bytes != WHOLE && self.must_yield()
    }

    /// What a compaction moves at most before the next look; `WHOLE` if it does not look.
    ///
    /// A compaction that is cut makes progress: what it has moved stays there, and the next plan
    /// starts from that. But another plan may choose other slabs to empty, above all when the
    /// commands between have taken its holes. So once compactions that were cut have moved all that
    /// is live, the next one is carried out to its end.
    pub(in crate::engine) fn moved_bytes_between_looks(&self) -> u64 {
        let gets_on = {
            let state = self.lock();
            state.holds.cut_bytes() <= state.memory.slabs.live_bytes()
        };
        match gets_on {
            true => self.round_bytes(WHOLE),
            false => WHOLE,
        }
    }

    /// Whether the command at the head of the queue has a lower priority than some share.
    fn works_for_lower(&self) -> bool {
        self.lock().lets_others_go_first()
    }
}

/// Nanoseconds since the device was opened. `None` where times are not measured.
fn now_ns(pass: &Pass, state: &State) -> Option<u64> {
    pass.has_clock().then(|| state.timing.now_ns())
}
