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

impl Pass {
    /// Runs the commands above this priority that wait for no lower ones, and submits them. What
    /// was left behind before stays so.
    pub(crate) async fn execute_above(&self, above: i8, amid: Amid) -> Result<()> {
        if self.diagnostics().is_some() {
            make_gear::prepare_diagnose(self).await?;
        }
        let runs = Runs {
            least_priority: above.saturating_add(1),
            amid: Some(amid),
            ..Runs::all()
        };
        let _between = Between::new(self, runs);
        self.run_steps().await?;
        self.submit()
    }
}
