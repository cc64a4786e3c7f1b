//! A loop for programs that give the monitor the whole terminal: it samples, draws and reads keys.

use std::io;
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, enable_raw_mode};

use super::{Control, Monitor};
use lapidary_core::stats::MemoryStats;

/// Least time before the next sample after a failed one. Keys are answered meanwhile.
const RETRY: Duration = Duration::from_secs(1);

/// Longest time between samples. A longer one could overflow an instant or a timer of the system.
const MOST_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// Restores the terminal on drop.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

impl Monitor {
    /// Draws on this process's terminal until the user quits. Takes and draws a sample every
    /// `every`, at most a day. If a sample fails, the monitor shows its message above the last
    /// picture and tries again after at least a second.
    ///
    /// ```no_run
    /// # fn demo(gpu: &lapidary_core::Gpu) -> std::io::Result<()> {
    /// use lapidary_tools::monitor::Monitor;
    /// use std::time::Duration;
    ///
    /// // On a thread of its own, or on the main one while others work.
    /// Monitor::new().run(Duration::from_millis(100), || Ok(gpu.memory().stats()))
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of the terminal, for example if there is none.
    pub fn run(
        &mut self,
        every: Duration,
        sample: impl FnMut() -> Result<MemoryStats, String>,
    ) -> io::Result<()> {
        let save = || Err("this program does not save snapshots".to_owned());
        self.run_saving(every, sample, save)
    }

    /// As [`run`](Monitor::run). The key `w` saves a snapshot by `save`, whose result is a message
    /// such as the path of the file.
    ///
    /// # Errors
    /// As [`run`](Monitor::run).
    pub fn run_saving(
        &mut self,
        every: Duration,
        mut sample: impl FnMut() -> Result<MemoryStats, String>,
        mut save: impl FnMut() -> Result<String, String>,
    ) -> io::Result<()> {
        // Not `ratatui::init`: the panic hook that it installs would stay after this call.
        enable_raw_mode()?;
        let _restore = Restore;
        execute!(io::stdout(), EnterAlternateScreen)?;
        let mut terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        let every = every.min(MOST_EVERY);
        let mut next = Instant::now();
        loop {
            if Instant::now() >= next {
                match sample() {
                    Ok(stats) => {
                        self.push(stats);
                        next = (next + every).max(Instant::now());
                    }
                    Err(why) => {
                        self.end(&why);
                        next = Instant::now() + every.max(RETRY);
                    }
                }
            }
            terminal.draw(|frame| frame.render_widget(&*self, frame.area()))?;
            let wait = next.saturating_duration_since(Instant::now());
            if event::poll(wait)? {
                if let Event::Key(key) = event::read()? {
                    match self.key(key) {
                        Control::Continue => {}
                        Control::Quit => return Ok(()),
                        Control::Snapshot => self.say(&save().unwrap_or_else(|why| why)),
                    }
                }
            }
        }
    }
}
