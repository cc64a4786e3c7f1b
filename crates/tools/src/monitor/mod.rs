//! The memory live on a terminal. The monitor takes samples, keeps a history for curves and lists,
//! and answers keys.
//!
//! `draw` has the layout, `style` the colours. `holders` is the table. `events` has the changes
//! between two samples. `terminal` is a loop for programs that give the monitor the whole terminal.
//! Nothing here knows the origin of the samples: this process, a socket, or a test.

mod draw;
mod events;
mod history;
mod holders;
mod style;
mod terminal;

use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use events::RecentEvents;
use history::Curve;
use holders::Holders;
use lapidary_core::stats::MemoryStats;

/// The lengths of time that the curve can show.
const WINDOWS: [Duration; 4] = [
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(300),
    Duration::from_secs(1800),
];

/// What the caller does after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Go on.
    Continue,
    /// End: the user asked for it.
    Quit,
    /// Save a snapshot: the user asked for it. Then say by [`Monitor::say`] where it is.
    Snapshot,
}

/// The memory live, similar to `nvtop`. It shows the budget as a bar, the slabs with their use,
/// live and reserved bytes over time, the holders, and reclaim.
///
/// The app passes samples and draws the monitor as a widget of [ratatui]. The monitor has no
/// thread, timer or terminal.
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
/// | `/` | filter the holders by name; Enter keeps the filter, Esc removes it |
/// | ↑ ↓ PageUp PageDown Home | scroll the holders |
/// | `+`, `-` | show a shorter or a longer time |
/// | `p`, space | pause the picture; sampling goes on |
/// | `w` | write a snapshot to a file, which `lapidary view` shows |
/// | `?`, `h` | help |
///
/// [ratatui]: https://ratatui.rs
#[derive(Debug)]
pub struct Monitor {
    start: Instant,
    live: View,
    /// The view shown during a pause.
    frozen: Option<Box<View>>,
    holders: Holders,
    window: usize,
    shows_help: bool,
    /// Why no more samples come.
    ended: Option<String>,
    /// What the app says until the next key.
    said: Option<String>,
    /// Whose memory it is, beside the adapter.
    program: String,
}

/// Everything seen until some moment.
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
    /// A monitor without samples.
    pub fn new() -> Monitor {
        Monitor {
            start: Instant::now(),
            live: View::default(),
            frozen: None,
            holders: Holders::default(),
            window: 1,
            shows_help: false,
            ended: None,
            said: None,
            program: String::new(),
        }
    }

    /// Names the program whose memory is shown, for users who watch several.
    pub fn of_program(mut self, name: &str) -> Monitor {
        self.program = name.to_owned();
        self
    }

    /// Adds a sample of this moment.
    pub fn push(&mut self, stats: MemoryStats) {
        self.push_at(self.start.elapsed(), stats);
    }

    /// Adds a recorded sample taken `at` after the first one. An earlier time counts as the last
    /// one.
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

    /// Says that no more samples come. The last one stays visible.
    pub fn end(&mut self, why: &str) {
        self.ended = Some(why.to_owned());
    }

    /// Shows a message in the last line until the next key.
    pub fn say(&mut self, what: &str) {
        self.said = Some(what.to_owned());
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) -> Control {
        if key.kind == KeyEventKind::Release {
            return Control::Continue;
        }
        self.said = None;
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
            KeyCode::Char('w') => return Control::Snapshot,
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
