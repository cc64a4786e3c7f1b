//! Runs urgent commands in the middle of something else.

use super::make_gear;
use crate::engine::pass::Pass;
use crate::engine::queue::{Amid, Runs};
use crate::error::Result;

/// What the pass runs, until this is dropped. Then it runs again what it ran before.
struct Between<'a> {
    pass: &'a Pass,
    before: Runs,
}

impl<'a> Between<'a> {
    fn new(pass: &'a Pass, runs: Runs) -> Self {
        let before = pass.lock().queue.swap_runs(runs);
        Between { pass, before }
    }
}

impl Drop for Between<'_> {
    fn drop(&mut self) {
        // What the pass found that must wait is no news, so this is no swap.
        self.pass.lock().queue.runs = self.before;
    }
}

/// Runs the commands above this priority, and submits them.
pub(super) async fn execute_above(pass: &Pass, above: i8, amid: Amid) -> Result<()> {
    if pass.diagnostics().is_some() {
        make_gear::prepare_diagnose(pass).await?;
    }
    let runs = Runs {
        least_priority: above.saturating_add(1),
        amid: Some(amid),
        ..Runs::all()
    };
    let _between = Between::new(pass, runs);
    pass.run_steps().await?;
    pass.submit()
}
