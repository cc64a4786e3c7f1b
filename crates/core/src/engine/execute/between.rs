//! Runs urgent commands in the middle of something else: between two rounds of a drain.

use super::make_gear;
use crate::engine::pass::Pass;
use crate::engine::queue::Runs;
use crate::error::Result;

/// What the pass runs, until this is dropped. Then it runs again what it ran before. It does not
/// nest: [`may_run_between`](crate::engine::state::State::may_run_between).
struct Between<'a> {
    pass: &'a Pass,
    before: Runs,
}

impl<'a> Between<'a> {
    fn new(pass: &'a Pass, runs: Runs) -> Self {
        let state = &mut *pass.lock();
        state.holds.set_between(true);
        Between {
            pass,
            before: state.queue.swap_runs(runs),
        }
    }
}

impl Drop for Between<'_> {
    fn drop(&mut self) {
        let state = &mut *self.pass.lock();
        state.queue.swap_runs(self.before);
        state.holds.set_between(false);
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
