//! Runs urgent commands in the middle of something else: between two rounds of a drain.

use super::make_gear;
use crate::engine::pass::Pass;
use crate::engine::queue::Queue;
use crate::error::Result;

/// What the pass runs, until this is dropped. Then it runs again what it ran before.
struct Between<'a> {
    pass: &'a Pass,
    before: Runs,
    was_between: bool,
}

/// The commands that a pass runs.
#[derive(Clone, Copy)]
struct Runs {
    may_defer: bool,
    least_priority: i8,
    is_slice: bool,
}

impl Runs {
    fn swap(self, queue: &mut Queue) -> Runs {
        let before = Runs {
            may_defer: queue.may_defer(),
            least_priority: queue.least_priority(),
            is_slice: queue.is_slice(),
        };
        queue.begin_pass(self.may_defer, self.least_priority);
        #[cfg(not(target_arch = "wasm32"))]
        if self.is_slice {
            queue.slice();
        }
        before
    }
}

impl<'a> Between<'a> {
    fn new(pass: &'a Pass, runs: Runs) -> Self {
        let state = &mut *pass.lock();
        Between {
            pass,
            before: runs.swap(&mut state.queue),
            was_between: state.holds.set_between(true),
        }
    }
}

impl Drop for Between<'_> {
    fn drop(&mut self) {
        let state = &mut *self.pass.lock();
        self.before.swap(&mut state.queue);
        state.holds.set_between(self.was_between);
    }
}

/// Runs the commands above this priority, and submits them.
pub(super) async fn execute_above(pass: &Pass, above: i8) -> Result<()> {
    if pass.diagnostics().is_some() {
        make_gear::prepare_diagnose(pass).await?;
    }
    let runs = Runs {
        may_defer: false,
        least_priority: above.saturating_add(1),
        is_slice: false,
    };
    let _between = Between::new(pass, runs);
    pass.run_steps().await?;
    pass.submit()
}
