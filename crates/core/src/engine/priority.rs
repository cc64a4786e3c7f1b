//! Commands of a share with a higher priority run before those of others.
//!
//! Shares do not meet in a command, but for copies between them. So the commands of one share may
//! pass those of another, in their own order. They are submitted at once, and not with what comes
//! after them. A call of a higher priority ends when its commands are submitted, though the pass of
//! another thread goes on.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::cmd::Cmd;
use super::handle::Engine;
use super::queue::Queue;
use super::state::State;
use crate::memory::Storage;

/// A submission of lower work ends after this much predicted time, so that work of a higher
/// priority waits no longer.
const MOST_LOWER_NS: f64 = 4e6;

/// The lowest and the highest priority of a command's operands. They differ for a copy between
/// shares.
fn priorities(cmd: &Cmd) -> (i8, i8) {
    let mut found: Option<(i8, i8)> = None;
    cmd.each_operand(&mut |storage, _| {
        let one = storage.priority();
        let (lowest, highest) = found.unwrap_or((one, one));
        found = Some((lowest.min(one), highest.max(one)));
    });
    found.unwrap_or((0, 0))
}

/// The priority of a command: the lowest of its operands'.
pub(super) fn priority(cmd: &Cmd) -> i8 {
    priorities(cmd).0
}

/// Do shares have different priorities?
pub(super) fn is_in_use(engine: &Engine) -> bool {
    engine.lock().queue.has_priorities()
}

/// Whether all commands that a pass of this engine would run are submitted. Without priorities
/// nobody asks.
pub(super) fn is_none_left(engine: &Engine) -> bool {
    let least = engine.least_priority();
    let state = engine.lock();
    let mut left = state.queue.commands().chain(state.left_behind.iter());
    state.queue.has_priorities()
        && (state.batch.is_empty() || state.batch.highest_priority() < least)
        && left.all(|cmd| priorities(cmd).1 < least)
}

/// Whether the batch is of lower work, and takes so long that it should be submitted.
#[inline]
pub(super) fn is_long(state: &State) -> bool {
    state.queue.has_priorities() && has_long_batch(state)
}

#[cold]
fn has_long_batch(state: &State) -> bool {
    let batch = &state.batch;
    batch.predicted_ns() * state.driver.time_scale() >= MOST_LOWER_NS
        && batch.highest_priority() < state.memory.shares().highest_priority()
}

fn touches(cmd: &Cmd, storages: &FxHashSet<usize>) -> bool {
    let mut touches = false;
    cmd.each_operand(&mut |storage: &Arc<Storage>, _| {
        touches |= storages.contains(&storage.address())
    });
    touches
}

/// Brings the commands of the highest priority to the head of the queue.
#[cold]
pub(super) fn promote(state: &mut State) {
    // Commands that the one at the head needs stay in front of it, and so do its places.
    if state.rematerializers.is_any_under_way() || state.head.is_prepared() {
        state.queue.keep_news();
        return;
    }
    if let Some(urgent) = state.queue.take_urgent() {
        let limit_bytes = state.driver.ledger().slab_limit_now_bytes();
        state.queue.put_in_front(urgent, limit_bytes);
    }
}

impl Queue {
    /// Whether the command at the head, and all others, have a lower priority than the pass runs.
    pub(super) fn has_only_lower(&self, least: i8) -> bool {
        // A copy from a lower share gives the higher one a value, so it is not left to others.
        let is_lower = |cmd: &Cmd| priorities(cmd).1 < least;
        self.head().is_some_and(is_lower) && self.commands().all(is_lower)
    }

    /// Whether commands of a higher priority may be behind others now: some were appended, or the
    /// last urgent one has run, or a copy for which some waited.
    #[inline]
    pub(super) fn may_promote(&mut self) -> bool {
        self.has_priorities() && self.looks_again()
    }

    #[cold]
    fn looks_again(&mut self) -> bool {
        let Some((lowest, highest)) = self.head().map(priorities) else {
            return false;
        };
        let falls = self.swap_head_priority(lowest) > lowest;
        let has_news = self.take_news() || falls;
        if lowest < highest {
            self.keep_news();
        }
        has_news
    }

    /// The priority of the command at the head; the highest if there is none.
    pub(super) fn head_priority(&self) -> i8 {
        self.head().map_or(i8::MAX, priority)
    }

    /// Takes the commands of the highest priority out of the queue, unless they are at its head.
    fn take_urgent(&mut self) -> Option<VecDeque<Cmd>> {
        let most = self.commands().map(priority).max()?;
        if self.head().is_none_or(|cmd| priority(cmd) >= most) {
            return None;
        }
        // What commands touch that stay before others, if urgent commands may touch it too.
        let mut kept: FxHashSet<usize> = FxHashSet::default();
        self.take_out(|cmd| {
            let is_urgent = priority(cmd) == most && !touches(cmd, &kept);
            if !is_urgent {
                cmd.each_operand(&mut |storage, _| {
                    if storage.priority() >= most {
                        kept.insert(storage.address());
                    }
                });
            }
            is_urgent
        })
    }
}
