//! Whose turn it is: a pass that works for a lower priority lets work of a higher one go first.
//!
//! The pass looks for such work at each step, between submissions, and between the rounds of a
//! reclaim. Between two looks, the others wait. The engine reports the longest such hold.

use crate::engine::pass::Pass;
use crate::engine::state::State;
use crate::error::Result;

/// Between two looks a pass moves at most about this many bytes for a lower priority. Their way
/// over PCIe takes about as long as the submissions of lower work.
const MOST_ROUND_BYTES: u64 = 8 << 20;

/// But at most 1/16 of the limit, because the bytes of a small device take longer.
const MOST_ROUND_PART: u64 = 16;

/// The smallest round. Rounds are powers of two, so the parts of a move begin at whole words.
const LEAST_ROUND_BYTES: u64 = 64 << 10;

/// The part of a move that is not cut.
pub(in crate::engine) const WHOLE: u64 = u64::MAX;

/// The pass meets a need of a command, and looks for work of a higher priority only where it asks
/// [`must_yield`](Pass::must_yield).
pub(in crate::engine) struct HoldGuard<'a>(Option<&'a Pass>);

impl Drop for HoldGuard<'_> {
    fn drop(&mut self) {
        if let Some(pass) = self.0 {
            let mut state = pass.lock();
            let now_ns = now_ns(pass, &state);
            state.holds.end(now_ns);
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
        if !self.works_for_lower() {
            return HoldGuard(None);
        }
        let mut state = self.lock();
        let now_ns = now_ns(self, &state);
        state.holds.begin(now_ns);
        HoldGuard(Some(self))
    }

    /// Whether commands of a higher priority have come that may go before the command whose need
    /// the pass meets. Then the pass should leave the need, which the command has again later.
    pub(in crate::engine) fn must_yield(&self) -> bool {
        let state = &mut *self.lock();
        if !state.holds.is_held() {
            return false;
        }
        let now_ns = now_ns(self, state);
        state.holds.look(now_ns);
        if (state.priorities).is_some_and(|priorities| priorities.is_outranked(state)) {
            state.holds.yields();
        }
        state.holds.must_yield()
    }

    /// What a round of a reclaim frees at most, of these bytes, before the next look. It is also
    /// the largest part of a move.
    pub(in crate::engine) fn round_bytes(&self, wanted_bytes: u64) -> u64 {
        if !self.lock().holds.is_held() {
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

    /// Whether the command at the head of the queue has a lower priority than some share.
    fn works_for_lower(&self) -> bool {
        let state = self.lock();
        (state.priorities).is_some_and(|priorities| priorities.lets_others_go_first(&state))
    }
}

/// Nanoseconds since the device was opened. `None` where times are not measured.
fn now_ns(pass: &Pass, state: &State) -> Option<u64> {
    pass.has_clock().then(|| state.timing.now_ns())
}
