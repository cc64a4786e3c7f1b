//! The loop for whoever has a whole terminal to give: samples, draws, and asks for keys.

use std::io;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event};

use super::super::MemoryStats;
use super::{Control, Monitor};

/// Once nothing changes any more, only keys and the terminal's size do.
const PATIENCE: Duration = Duration::from_secs(1);

/// The terminal as it was, however this ends.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

impl Monitor {
    /// Draws on this process's terminal until the user quits: a sample and a picture each time that `every`
    /// has passed. A sample that fails is the last; its message is shown, and what was seen before.
    ///
    /// ```no_run
    /// # fn demo(gpu: &lapidary::Gpu) -> std::io::Result<()> {
    /// use lapidary::monitor::Monitor;
    /// use std::time::Duration;
    ///
    /// // On a thread of its own, or on the main one while others work.
    /// Monitor::new().run(Duration::from_millis(100), || Ok(gpu.memory()))
    /// # }
    /// ```
    ///
    /// # Errors
    /// Whatever the terminal refuses, as when there is none.
    pub fn run(
        &mut self,
        every: Duration,
        mut sample: impl FnMut() -> Result<MemoryStats, String>,
    ) -> io::Result<()> {
        let mut terminal = ratatui::try_init()?;
        let _restore = Restore;
        let mut next = Instant::now();
        loop {
            if self.ended.is_none() && Instant::now() >= next {
                match sample() {
                    Ok(stats) => self.push(stats),
                    Err(why) => self.end(&why),
                }
                next = (next + every).max(Instant::now());
            }
            terminal.draw(|frame| frame.render_widget(&*self, frame.area()))?;
            let wait = match &self.ended {
                None => next.saturating_duration_since(Instant::now()),
                Some(_) => PATIENCE,
            };
            if event::poll(wait)? {
                if let Event::Key(key) = event::read()? {
                    if self.key(key) == Control::Quit {
                        return Ok(());
                    }
                }
            }
        }
    }
}
