//! Urgent commands: a pass that works for a lower priority runs those of a higher one in between.
//!
//! The pass looks for such work at each step, between submissions, and between the parts of a
//! reclaim: evictions, and moves of a compaction. What it finds runs in the middle of
//! what the pass does, which goes on after that. Between two looks, the others wait. The engine
//! reports the longest such hold.
//!
//! Whoever lets others run must look at the state again: they may have taken the memory that was
//! just freed, and moved, evicted or written what the caller moves.

use crate::driver::BoxFuture;
use crate::engine::pass::Pass;
use crate::engine::queue::Amid;
use crate::engine::state::State;
use crate::engine::state::holds::HeldFor;
use crate::error::Result;
use crate::waits::Paused;

/// Between two looks a pass frees or moves at most about this many bytes for a lower priority.
/// Their way over PCIe takes about as long as the submissions of lower work.
const MOST_PART_BYTES: u64 = 8 << 20;

/// But at most 1/16 of the limit, because the bytes of a small device take longer.
const MOST_PART_OF_LIMIT: u64 = 16;

/// The smallest part. Parts are powers of two, so that each begins at a whole word.
const LEAST_PART_BYTES: u64 = 64 << 10;

/// The pass does something for which others may wait, and looks for work of a higher priority only
/// where it [gives way](Pass::give_way). After that it does what it did before.
pub(crate) struct HoldGuard<'a>(Option<(&'a Pass, Option<HeldFor>)>);

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
    pub(crate) async fn wait_if_lower(&self) -> Result<()> {
        if self.lock().lets_others_go_first() {
            self.wait_idle().await?;
        }
        Ok(())
    }

    /// From now on the pass meets a need of the command at the head of the queue.
    pub(crate) fn hold(&self) -> HoldGuard<'_> {
        let is_lower = self.lock().lets_others_go_first();
        match is_lower {
            true => self.hold_for(HeldFor::Command),
            false => HoldGuard(None),
        }
    }

    /// From now on the pass does something whole, if others may wait for what it does.
    pub(crate) fn hold_whole(&self) -> HoldGuard<'_> {
        let is_held = self.lock().holds.held.is_some();
        match is_held {
            true => self.hold_for(HeldFor::Whole),
            false => HoldGuard(None),
        }
    }

    /// From now on the pass does this, and others may wait for it. What the pass does whole stays
    /// whole.
    pub(crate) fn hold_for(&self, held: HeldFor) -> HoldGuard<'_> {
        let before = self.lock().holds.held;
        if before != Some(HeldFor::Whole) {
            self.swap_hold(Some(held));
        }
        HoldGuard(Some((self, before)))
    }

    /// Begins, changes or ends what others may wait for. Returns what it was.
    fn swap_hold(&self, held: Option<HeldFor>) -> Option<HeldFor> {
        let mut state = self.lock();
        let now_ns = now_ns(self, &state);
        state.holds.swap(held, now_ns)
    }

    /// What the pass frees or moves at most before the next look; `u64::MAX` where it does not
    /// look.
    pub(crate) fn part_bytes(&self) -> u64 {
        if !self.lock().holds.looks() {
            return u64::MAX;
        }
        let limit_bytes = self.driver.ledger().slab_limit_now_bytes();
        let most_bytes = limit_bytes / MOST_PART_OF_LIMIT;
        1 << most_bytes.clamp(LEAST_PART_BYTES, MOST_PART_BYTES).ilog2()
    }

    /// Whether commands have come that go before what the pass does.
    pub(crate) fn is_outranked(&self) -> bool {
        self.outranked().is_some()
    }

    /// The priority of what the pass does, if commands above it have come, and where they run.
    fn outranked(&self) -> Option<(i8, Amid)> {
        let state = &mut *self.lock();
        let held = state.holds.held.filter(|_| state.holds.looks())?;
        let now_ns = now_ns(self, state);
        state.holds.look(now_ns);
        match held {
            HeldFor::Drain { above } => {
                let has_above = state.has_above(above);
                has_above.then_some((above, Amid::Drain))
            }
            _ => {
                let passed = state.queue.passing_groups();
                let above = state.outranked()?;
                Some((above, Amid::Head { passed }))
            }
        }
    }

    /// Runs the commands that go before what the pass does, if some have come, and submits them.
    /// Returns whether that has changed anything: then nothing that the caller knows of the state
    /// need hold any more.
    pub(crate) async fn give_way(&self) -> Result<bool> {
        match self.outranked() {
            Some((above, amid)) => Paused::during(self.run_above(above, amid)).await,
            None => Ok(false),
        }
    }

    fn run_above(&self, above: i8, amid: Amid) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            // A refusal of the others' submission concerns nothing of this work.
            self.submit()?;
            let (before, refused_before) = {
                let state = self.lock();
                (state.change_marks(), state.refused_submissions())
            };
            let held = self.swap_hold(None);
            let ran = self.execute_above(above, amid).await;
            self.swap_hold(held);
            ran?;
            let has_changed = {
                let state = &mut *self.lock();
                let refused = state.refused_submissions() - refused_before;
                let has_changed = state.change_marks() != before;
                state.holds.changes_amid += u64::from(has_changed);
                state.holds.refused_amid += refused;
                has_changed
            };
            if has_changed {
                // What comes next waits for one submission at most.
                self.wait_idle().await?;
            }
            Ok(has_changed)
        })
    }

    /// How often urgent commands have changed anything in the middle of something else.
    pub(crate) fn changes_amid(&self) -> u64 {
        self.lock().holds.changes_amid
    }

    /// The refused submissions, without those of urgent commands in the middle of what the pass
    /// does.
    pub(crate) fn refused_submissions(&self) -> u64 {
        self.lock().refused_submissions()
    }
}

/// Nanoseconds since the device was opened. `None` where times are not measured.
fn now_ns(pass: &Pass, state: &State) -> Option<u64> {
    pass.has_clock().then(|| state.timing.now_ns())
}
