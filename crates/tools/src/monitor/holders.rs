//! The holders: a table that can be sorted, filtered and scrolled.

use std::cmp::Reverse;

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table, Widget};

use super::style::{DIM, LIVE, panel};
use lapidary_core::stats::MemoryStats;
use lapidary_core::stats::TagUse;
use lapidary_core::units::Bytes;

/// Most characters of the filter.
const MOST_FILTER_CHARS: usize = 60;

const PAGE: usize = 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Bytes,
    Peak,
    Saved,
    Storages,
    Name,
}

impl Order {
    const ALL: [Order; 5] = [
        Order::Bytes,
        Order::Peak,
        Order::Saved,
        Order::Storages,
        Order::Name,
    ];

    fn title(self) -> &'static str {
        match self {
            Order::Bytes => "bytes",
            Order::Peak => "peak",
            Order::Saved => "saved",
            Order::Storages => "storages",
            Order::Name => "who",
        }
    }

    /// The column `by` places further; the first comes after the last.
    fn moved(self, by: usize) -> Order {
        let at = Order::ALL
            .iter()
            .position(|order| *order == self)
            .unwrap_or(0);
        Order::ALL[(at + by) % Order::ALL.len()]
    }
}

/// The user's choices for the table.
#[derive(Debug, Default)]
pub(super) struct Holders {
    order: Order,
    filter: String,
    is_typing: bool,
    /// Number of rows scrolled past.
    above: usize,
}

impl Holders {
    pub(super) fn is_typing(&self) -> bool {
        self.is_typing
    }

    /// Handles a key while the filter is typed.
    pub(super) fn type_key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if self.filter.chars().count() < MOST_FILTER_CHARS => {
                self.filter.push(c);
            }
            _ => {}
        }
        self.above = 0;
    }

    /// Handles any other key.
    pub(super) fn key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char('s') => self.order = self.order.moved(1),
            KeyCode::Char('S') => self.order = self.order.moved(Order::ALL.len() - 1),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Up => self.above = self.above.saturating_sub(1),
            KeyCode::Down => self.above = self.above.saturating_add(1),
            KeyCode::PageUp => self.above = self.above.saturating_sub(PAGE),
            KeyCode::PageDown => self.above = self.above.saturating_add(PAGE),
            KeyCode::Home => self.above = 0,
            _ => {}
        }
    }

    /// The filtered holders in the chosen order.
    fn chosen<'a>(&self, stats: &'a MemoryStats) -> Vec<(String, &'a TagUse)> {
        let name = |tag: &TagUse| {
            tag.tag
                .as_ref()
                .map_or("others".into(), ToString::to_string)
        };
        let wanted = self.filter.to_lowercase();
        let named = stats.tags.iter().map(|tag| (name(tag), tag));
        let mut chosen: Vec<(String, &TagUse)> = named
            .filter(|(name, _)| wanted.is_empty() || name.to_lowercase().contains(&wanted))
            .collect();
        match self.order {
            Order::Bytes => chosen.sort_by_key(|(_, tag)| Reverse((tag.bytes.now, tag.bytes.peak))),
            Order::Peak => chosen.sort_by_key(|(_, tag)| Reverse((tag.bytes.peak, tag.bytes.now))),
            Order::Saved => {
                chosen.sort_by_key(|(_, tag)| Reverse((tag.saved_bytes, tag.bytes.now)))
            }
            Order::Storages => {
                chosen.sort_by_key(|(_, tag)| Reverse((tag.storages.now, tag.bytes.now)))
            }
            Order::Name => chosen.sort_by(|(a, _), (b, _)| a.cmp(b)),
        }
        chosen
    }

    pub(super) fn draw(&self, area: Rect, buffer: &mut Buffer, stats: &MemoryStats) {
        let chosen = self.chosen(stats);
        let rows = usize::from(area.height.saturating_sub(3));
        let above = self.above.min(chosen.len().saturating_sub(rows));
        let title = match (self.filter.is_empty(), self.is_typing) {
            (true, false) => format!(" holders: {} ", chosen.len()),
            (_, true) => format!(" holders with: {}_ ", self.filter),
            (false, false) => format!(" holders with `{}`: {} ", self.filter, chosen.len()),
        };
        let mut block = panel(title);
        let below = chosen.len().saturating_sub(above + rows);
        if above + below > 0 {
            let more = Line::styled(format!(" {above} above, {below} below "), DIM);
            block = block.title_bottom(more.right_aligned());
        }
        // Most programs compute no gradients, and terminals are narrow.
        let has_saved = stats.saved_bytes > 0 || self.order == Order::Saved;
        let whole_bytes = stats.live_bytes.now.max(1);
        let shown = chosen.iter().skip(above).take(rows).map(|(name, tag)| {
            let share = (tag.bytes.now as f64 / whole_bytes as f64).min(1.0);
            let style = if tag.bytes.now == 0 {
                DIM
            } else {
                Style::new()
            };
            let begin = [
                right(&Bytes(tag.bytes.now)),
                Cell::new(Line::styled(bar(share), LIVE)),
                right(&Bytes(tag.bytes.peak)),
            ];
            let end = [right(&tag.storages.now), Cell::new(name.clone())];
            let saved = has_saved.then(|| right(&saved(tag)));
            Row::new(begin.into_iter().chain(saved).chain(end)).style(style)
        });
        let head = Order::ALL.map(|order| {
            let mark = if order == self.order { "▼" } else { "" };
            let line = Line::from(format!("{}{mark}", order.title()));
            let style = match order == self.order {
                true => Style::new().add_modifier(Modifier::BOLD),
                false => DIM,
            };
            match order {
                Order::Name => Cell::new(line.style(style)),
                _ => Cell::new(line.style(style).right_aligned()),
            }
        });
        let [bytes, peak, saved, storages, who] = head;
        let saved = has_saved.then_some(saved);
        let head = [bytes, Cell::new(""), peak].into_iter().chain(saved);
        let widths = [10, 8, 10].into_iter().chain(has_saved.then_some(10));
        let widths = widths.chain([9]).map(Constraint::Length);
        Table::new(shown, widths.chain([Constraint::Min(10)]))
            .header(Row::new(head.chain([storages, who])))
            .block(block)
            .render(area, buffer);
    }
}

/// The bytes that wait for a backward, if there are any.
fn saved(tag: &TagUse) -> String {
    match tag.saved_bytes {
        0 => String::new(),
        bytes => Bytes(bytes).to_string(),
    }
}

fn right(figure: &impl ToString) -> Cell<'static> {
    Cell::new(Line::from(figure.to_string()).right_aligned())
}

/// A bar of eight cells, in steps of an eighth of a cell.
fn bar(share: f64) -> String {
    const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share * 64.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(PARTS[eighths % 8]);
    }
    bar
}
