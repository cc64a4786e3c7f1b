//! The memory live, on a terminal: takes samples, keeps what is needed for curves and lists,
//! answers keys.
//!
//! `draw` lays it out and draws it, `holders` is the table, `events` what happened between two
//! samples, `terminal` the loop for whoever has a whole terminal to give. Nothing here knows where
//! samples come from: from this process, through a socket, or from a test.

mod draw;
mod events;
mod history;
mod holders;
mod terminal;

use std::time::{Duration, Instant};

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::widgets::Widget;

use events::RecentEvents;
use history::Curve;
use holders::Holders;
use lapidary_core::stats::MemoryStats;

/// How much of the past the curve shows.
const WINDOWS: [Duration; 4] = [
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(300),
    Duration::from_secs(1800),
];

/// What is to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// To go on.
    Continue,
    /// To end: the user has asked for it.
    Quit,
}

/// The memory live, in the manner of `nvtop`: the budget as a bar, slabs and how full they are,
/// live and reserved bytes over time, who holds how much, and what was done to make room.
///
/// It takes samples and draws itself wherever the app says, with [ratatui]; it has no thread, no
/// timer and no terminal of its own.
///
/// ```no_run
/// use lapidary_tools::monitor::Monitor;
/// # fn demo(frame: &mut ratatui::Frame<'_>, gpu: &lapidary_core::Gpu) {
/// let mut monitor = Monitor::new();
/// // Ten times a second or so, and when something else was drawn over it:
/// monitor.push(gpu.memory().stats());
/// frame.render_widget(&monitor, frame.area());
/// # }
/// ```
///
/// | key | |
/// | --- | --- |
/// | `q`, Ctrl-C | quit |
/// | `s`, `S` | sort the holders by another column, and back |
/// | `/` | show only holders whose name has what is typed; Enter keeps it, Esc gives it up |
/// | ↑ ↓ PageUp PageDown Home | scroll the holders |
/// | `+`, `-` | a shorter or a longer part of the past |
/// | `p`, space | pause: the picture stands still, samples are taken all the same |
/// | `?`, `h` | help |
///
/// [ratatui]: https://ratatui.rs
#[derive(Debug)]
pub struct Monitor {
    start: Instant,
    live: View,
    /// What is shown while it is paused.
    frozen: Option<Box<View>>,
    holders: Holders,
    window: usize,
    shows_help: bool,
    /// Why no more samples come.
    ended: Option<String>,
}

/// What was seen up to some moment.
#[derive(Clone, Debug, Default)]
struct View {
    stats: Option<MemoryStats>,
    curve: Curve,
    events: RecentEvents,
}

impl Default for Monitor {
    fn default() -> Self {
        Monitor::new()
    }
}

impl Monitor {
    /// One that has seen nothing yet.
    pub fn new() -> Monitor {
        Monitor {
            start: Instant::now(),
            live: View::default(),
            frozen: None,
            holders: Holders::default(),
            window: 1,
            shows_help: false,
            ended: None,
        }
    }

    /// Takes a sample of this moment.
    pub fn push(&mut self, stats: MemoryStats) {
        self.push_at(self.start.elapsed(), stats);
    }

    /// Takes a sample of so long after the first: for what was recorded. Times that go back count
    /// as the last one.
    pub fn push_at(&mut self, at: Duration, stats: MemoryStats) {
        let view = &mut self.live;
        let at = at.max(view.curve.last_at());
        if let Some(before) = &view.stats {
            view.events.compare(at, before, &stats);
        }
        view.curve.push(at, &stats);
        view.stats = Some(stats);
        self.ended = None;
    }

    /// No more samples come: says so, and goes on showing the last.
    pub fn end(&mut self, why: &str) {
        self.ended = Some(why.to_owned());
    }

    /// Answers a key.
    pub fn key(&mut self, key: KeyEvent) -> Control {
        if key.kind == KeyEventKind::Release {
            return Control::Continue;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Control::Quit,
                _ => Control::Continue,
            };
        }
        if self.holders.is_typing() {
            self.holders.type_key(key.code);
            return Control::Continue;
        }
        if self.shows_help {
            self.shows_help = false;
            return match key.code {
                KeyCode::Char('q') => Control::Quit,
                _ => Control::Continue,
            };
        }
        match key.code {
            KeyCode::Char('q') => return Control::Quit,
            KeyCode::Char('?' | 'h') => self.shows_help = true,
            KeyCode::Char('p' | ' ') => {
                self.frozen = match self.frozen.take() {
                    Some(_) => None,
                    None => Some(Box::new(self.live.clone())),
                };
            }
            KeyCode::Char('+' | '=') => self.window = self.window.saturating_sub(1),
            KeyCode::Char('-') => self.window = (self.window + 1).min(WINDOWS.len() - 1),
            other => self.holders.key(other),
        }
        Control::Continue
    }

    fn shown(&self) -> &View {
        self.frozen.as_deref().unwrap_or(&self.live)
    }
}

impl Widget for &Monitor {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        draw::draw(self, area.intersection(buffer.area), buffer);
    }
}
