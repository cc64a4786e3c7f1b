//! A progress bar for work that takes more than a second.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const PATIENCE: Duration = Duration::from_secs(1);

/// The bar is drawn only on a terminal, and only after some time.
pub(crate) struct Progress {
    bar: ProgressBar,
    start: Instant,
}

impl Progress {
    pub(crate) fn new(name: &str, steps: usize) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::hidden());
        let template =
            ProgressStyle::with_template("{msg}  {bar:40.cyan}  {percent:>3} %, {eta} left");
        if let Ok(style) = template {
            bar.set_style(style.progress_chars("━╸─"));
        }
        bar.set_message(name.to_owned());
        let start = Instant::now();
        Progress { bar, start }
    }

    /// Sets the number of finished steps.
    pub(crate) fn set(&self, done: usize) {
        let is_late = self.start.elapsed() >= PATIENCE;
        if is_late && self.bar.is_hidden() && io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(done as u64);
    }

    /// Removes the bar from the terminal.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
