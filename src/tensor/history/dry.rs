//! Histories in a dry run: what it changes of those from before is undone at its end.
//!
//! The storages of the app have fakes in a dry run, with histories of their own. Three changes
//! reach the app's histories all the same. These are a write in place through a handle with its own
//! history, a function for a gradient, and a backward that frees saved values.

use std::cell::RefCell;

use super::number;

/// A dry run of this thread.
struct DryHistories {
    /// No node and no other run has this number. Nodes with a lower one are from before the run.
    number: u64,
    undo: Vec<Box<dyn FnOnce()>>,
}

thread_local! {
    static DRY: RefCell<Vec<DryHistories>> = const { RefCell::new(Vec::new()) };
}

/// The histories of this thread's dry run, until it is dropped.
#[derive(Debug)]
pub(crate) struct DryGuard(());

impl DryGuard {
    /// A dry run begins.
    pub(crate) fn begin() -> Self {
        let histories = DryHistories {
            number: number::take(),
            undo: Vec::new(),
        };
        DRY.with_borrow_mut(|dry| dry.push(histories));
        DryGuard(())
    }
}

impl Drop for DryGuard {
    fn drop(&mut self) {
        let histories = DRY.with_borrow_mut(Vec::pop);
        let undo = histories.map(|histories| histories.undo);
        undo.into_iter().flatten().rev().for_each(|undo| undo());
    }
}

/// The number of this thread's dry run; the innermost, if there are several.
pub(crate) fn run() -> Option<u64> {
    let number = |dry: &RefCell<Vec<DryHistories>>| dry.borrow().last().map(|last| last.number);
    DRY.try_with(number).ok().flatten()
}

/// Is this node from before the dry run of this thread?
pub(super) fn is_from_before(node: u64) -> bool {
    let is_before = |dry: &RefCell<Vec<DryHistories>>| {
        let dry = dry.borrow();
        dry.last().is_some_and(|last| node < last.number)
    };
    DRY.try_with(is_before).unwrap_or(false)
}

/// If the node is from before the dry run of this thread, calls `undo` at the end of that.
pub(crate) fn undo_later(node: u64, undo: impl FnOnce() + 'static) {
    if is_from_before(node) {
        DRY.with_borrow_mut(|dry| {
            if let Some(last) = dry.last_mut() {
                last.undo.push(Box::new(undo));
            }
        });
    }
}
