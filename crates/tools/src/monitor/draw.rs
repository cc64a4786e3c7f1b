//! The layout of the terminal, and how its parts are drawn: head, budget, slabs, keys, help.

use std::cmp::Reverse;

use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Widget};

use super::style::{DIM, LIVE, OUT, RESERVED, panel};
use super::{Monitor, WINDOWS};
use lapidary_core::internal::{printable, printable_end};
use lapidary_core::stats::MemoryStats;
use lapidary_core::stats::SlabUse;
use lapidary_core::units::Bytes;

const STAGING: Style = Style::new().fg(Color::Yellow);
const ALARM: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Columns of the panels for slabs and for reclaim.
const SIDE_COLUMNS: u16 = 44;
const SLAB_CELLS: usize = 18;
/// Rows of shares, and columns of a share's path.
const MOST_SHARES: usize = 6;
const SHARE_COLUMNS: usize = 17;

impl Widget for &Monitor {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        draw(self, area.intersection(buffer.area), buffer);
    }
}

fn draw(monitor: &Monitor, area: Rect, buffer: &mut Buffer) {
    let view = monitor.shown();
    let [head, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_head(monitor, head, buffer);
    draw_keys(monitor, foot, buffer);
    let Some(stats) = &view.stats else {
        Paragraph::new("no sample yet")
            .style(DIM)
            .render(body, buffer);
        return;
    };
    let [budget, rest] = Layout::vertical([Constraint::Length(4), Constraint::Min(0)]).areas(body);
    draw_budget(stats, budget, buffer);
    let window = WINDOWS[monitor.window.min(WINDOWS.len() - 1)];
    let is_wide = area.width >= 90;
    let (share, sides) = match is_wide {
        true => (45, [Constraint::Fill(1), Constraint::Length(SIDE_COLUMNS)]),
        false => (40, [Constraint::Fill(1), Constraint::Length(0)]),
    };
    let halves = [Constraint::Percentage(share), Constraint::Fill(1)];
    let [upper, lower] = Layout::vertical(halves).areas(rest);
    let [curve, slabs] = Layout::horizontal(sides).areas(upper);
    let [holders, events] = Layout::horizontal(sides).areas(lower);
    view.curve.draw(curve, buffer, window, stats.budget_bytes);
    monitor.holders.draw(holders, buffer, stats);
    if is_wide {
        let rows = match stats.shares.len() {
            0 => 0,
            count => u16::try_from(count.min(MOST_SHARES)).unwrap_or(0) + 2,
        };
        let parts = [Constraint::Length(rows), Constraint::Min(0)];
        let [shares, slabs] = Layout::vertical(parts).areas(slabs);
        draw_shares(stats, shares, buffer);
        let hosts = Constraint::Fill(u16::from(!stats.host_slabs.is_empty()));
        let [slabs, host] = Layout::vertical([Constraint::Fill(1), hosts]).areas(slabs);
        draw_slabs("slabs", &stats.slabs, slabs, buffer);
        draw_slabs("host's slabs", &stats.host_slabs, host, buffer);
        view.events.draw(events, buffer, stats);
    }
    if monitor.shows_help {
        draw_help(area, buffer);
    }
}

fn draw_head(monitor: &Monitor, area: Rect, buffer: &mut Buffer) {
    let view = monitor.shown();
    let mut left = vec![Span::styled(" lapidary  ", BOLD.fg(Color::Cyan))];
    if let Some(stats) = &view.stats {
        let (adapter, backend) = (printable(&stats.adapter, 70), printable(&stats.backend, 10));
        left.push(Span::raw(adapter));
        left.push(Span::styled(format!("  {backend}"), DIM));
    }
    if !monitor.program.is_empty() {
        left.push(Span::raw(format!("  {}", printable(&monitor.program, 60))));
    }
    let (samples, commands) = view.curve.rates();
    let at = view.curve.last_at().as_secs();
    let (hours, minutes, seconds) = (at / 3600, at / 60 % 60, at % 60);
    let state = match (&monitor.ended, &monitor.frozen) {
        (Some(why), _) => Span::styled(format!("■ {} ", printable(why, 60)), ALARM),
        (None, Some(_)) => Span::styled("‖ paused ", STAGING.add_modifier(Modifier::BOLD)),
        (None, None) => Span::styled(format!("● {samples:.0} Hz "), LIVE),
    };
    let commands = match area.width {
        0..100 => String::new(),
        _ => format!("{commands:.0} commands/s  "),
    };
    let right = vec![
        Span::styled(format!("  {commands}"), DIM),
        state,
        Span::raw(format!(" {hours}:{minutes:02}:{seconds:02} ")),
    ];
    let right = Line::from(right).alignment(Alignment::Right);
    let width = u16::try_from(right.width()).unwrap_or(u16::MAX);
    let sides = [Constraint::Min(0), Constraint::Length(width)];
    let [start, end] = Layout::horizontal(sides).areas(area);
    Line::from(left).render(start, buffer);
    right.render(end, buffer);
}

/// The device as one bar up to the budget, and the bytes in other places.
fn draw_budget(stats: &MemoryStats, area: Rect, buffer: &mut Buffer) {
    let device_bytes = stats.device_bytes.now;
    let whole_bytes = match stats.budget_bytes {
        Some(bytes) => bytes,
        None => stats.device_bytes.peak.max(stats.reserved_bytes.now),
    }
    .max(1);
    let share = 100.0 * device_bytes as f64 / whole_bytes as f64;
    let title = match stats.budget_bytes {
        Some(bytes) => format!(
            " device: {} of a budget of {} ",
            Bytes(device_bytes),
            Bytes(bytes)
        ),
        None => format!(" device: {}, without a budget ", Bytes(device_bytes)),
    };
    let figure = match stats.budget_bytes {
        Some(_) if share >= 99.5 => Line::styled(format!(" {share:.0} % "), ALARM),
        Some(_) => Line::styled(format!(" {share:.0} % "), BOLD),
        None => Line::styled(" of the peak ", DIM),
    };
    let peak = format!(" peak {} ", Bytes(stats.device_bytes.peak));
    let block = panel(Line::styled(title, BOLD))
        .title_top(figure)
        .title_top(Line::styled(peak, DIM).right_aligned());
    let inner = block.inner(area);
    block.render(area, buffer);
    let [bar, text] = Layout::vertical([Constraint::Length(1); 2]).areas(inner);
    let parts = parts(stats);
    draw_bar(&parts, whole_bytes, bar, buffer);
    let mut spans = Vec::new();
    for (name, bytes, style) in &parts {
        spans.push(Span::styled("■ ", *style));
        spans.push(Span::raw(format!("{name} {}   ", Bytes(*bytes))));
    }
    let elsewhere = [
        ("host", stats.host_bytes.now),
        ("stores", stats.store_bytes()),
        ("disk", stats.spilled_bytes.now),
        ("imported", stats.imported_bytes.now),
        ("waiting", stats.pending_bytes.now),
    ];
    for (name, bytes) in elsewhere.into_iter().filter(|(_, bytes)| *bytes > 0) {
        spans.push(Span::styled(format!("│ {name} {} ", Bytes(bytes)), OUT));
    }
    Line::from(spans).render(text, buffer);
}

/// The parts of the device's bytes.
fn parts(stats: &MemoryStats) -> [(&'static str, u64, Style); 4] {
    let staging_bytes = (stats.upload_bytes.now)
        .saturating_add(stats.restore_staging_bytes.now)
        .saturating_add(stats.readback_bytes.now);
    [
        ("live", stats.live_bytes.now, LIVE),
        ("free in slabs", stats.cached_bytes.now, RESERVED),
        ("staging", staging_bytes, STAGING),
        ("retiring", stats.retiring_bytes.now, OUT),
    ]
}

/// The parts side by side. A part that is not empty gets at least one cell. The rest is dotted.
fn draw_bar(parts: &[(&str, u64, Style)], whole_bytes: u64, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let mut x = area.left();
    for (_, bytes, style) in parts.iter().filter(|(_, bytes, _)| *bytes > 0) {
        let cells = (*bytes as f64 / whole_bytes as f64 * f64::from(area.width)).round();
        let end = x.saturating_add((cells as u16).max(1)).min(area.right());
        for x in x..end {
            buffer[(x, area.y)].set_symbol("█").set_style(*style);
        }
        x = end;
    }
    for x in x..area.right() {
        buffer[(x, area.y)].set_symbol("·").set_style(DIM);
    }
}

/// The shares: what each holds of its ceiling, or of its guarantee.
fn draw_shares(stats: &MemoryStats, area: Rect, buffer: &mut Buffer) {
    let block = panel(format!(" shares: {} ", stats.shares.len()));
    let inner = block.inner(area);
    if area.is_empty() {
        return;
    }
    block.render(area, buffer);
    for (share, y) in stats.shares.iter().zip(inner.top()..inner.bottom()) {
        let (held_bytes, guaranteed_bytes) = (share.bytes.now, share.guaranteed_bytes);
        let most_bytes = share.ceiling_bytes.unwrap_or(guaranteed_bytes);
        let style = match (held_bytes > guaranteed_bytes, share.is_closed) {
            (_, true) => DIM,
            (true, false) => STAGING,
            (false, false) => LIVE,
        };
        let line = Line::from_iter([
            Span::raw(format!("{:>10} ", Bytes(held_bytes).to_string())),
            Span::styled(format!("of {:>10} ", Bytes(most_bytes).to_string()), DIM),
            Span::styled(printable_end(&share.path, SHARE_COLUMNS), style),
        ]);
        buffer.set_line(inner.x, y, &line, inner.width);
    }
}

/// Slabs as bars, largest first, as many as fit.
fn draw_slabs(name: &str, slabs: &[SlabUse], area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let mut slabs: Vec<&SlabUse> = slabs.iter().collect();
    slabs.sort_by_key(|slab| Reverse((slab.size_bytes, slab.live_bytes)));
    let holes = slabs.iter().map(|slab| slab.largest_hole_bytes);
    let hole = Bytes(holes.max().unwrap_or(0));
    let title = format!(" {name}: {}, largest hole {hole} ", slabs.len());
    let block = panel(title);
    let inner = block.inner(area);
    block.render(area, buffer);
    let rows = usize::from(inner.height);
    let hidden = slabs.len().saturating_sub(rows);
    // The last row says how many slabs are not shown.
    let shown = if hidden > 0 {
        rows.saturating_sub(1)
    } else {
        rows
    };
    for (slab, y) in slabs.iter().take(shown).zip(inner.top()..) {
        let size_bytes = slab.size_bytes.max(1);
        let share = (slab.live_bytes as f64 / size_bytes as f64).min(1.0);
        let filled = (share * SLAB_CELLS as f64).ceil() as usize;
        let line = Line::from_iter([
            Span::raw(format!("{:>10} ", Bytes(slab.size_bytes).to_string())),
            Span::styled("█".repeat(filled), LIVE),
            Span::styled("░".repeat(SLAB_CELLS - filled.min(SLAB_CELLS)), RESERVED),
            Span::raw(format!(" {:>3.0} %", 100.0 * share)),
            Span::styled(format!(" {:>6}", slab.blocks), DIM),
        ]);
        buffer.set_line(inner.x, y, &line, inner.width);
    }
    if hidden > 0 && rows > 0 {
        let rest = &slabs[shown..];
        let sum = |bytes: fn(&SlabUse) -> u64| {
            rest.iter()
                .fold(0, |sum: u64, slab| sum.saturating_add(bytes(slab)))
        };
        let (live, size) = (sum(|slab| slab.live_bytes), sum(|slab| slab.size_bytes));
        let line = format!(
            "  and {} more: {} live of {}",
            rest.len(),
            Bytes(live),
            Bytes(size)
        );
        let line = Line::styled(line, DIM);
        buffer.set_line(inner.x, inner.bottom() - 1, &line, inner.width);
    }
}

fn draw_keys(monitor: &Monitor, area: Rect, buffer: &mut Buffer) {
    if let Some(said) = &monitor.said {
        let width = usize::from(area.width);
        return Line::styled(format!(" {}", printable_end(said, width)), BOLD).render(area, buffer);
    }
    let keys: &[(&str, &str)] = match monitor.holders.is_typing() {
        true => &[("Enter", "keep"), ("Esc", "remove")],
        false => &[
            ("q", "quit"),
            ("s", "sort"),
            ("/", "filter"),
            ("↑↓", "scroll"),
            ("+-", "time"),
            ("p", "pause"),
            ("w", "snapshot"),
            ("?", "help"),
        ],
    };
    let mut spans = vec![Span::raw(" ")];
    for (key, what) in keys {
        spans.push(Span::styled(*key, BOLD.fg(Color::Cyan)));
        spans.push(Span::styled(format!(" {what}   "), DIM));
    }
    Line::from(spans).render(area, buffer);
}

const HELP: [(&str, &str); 11] = [
    ("q  Ctrl-C", "quit"),
    ("s  S", "sort the holders by another column, and back"),
    ("/", "filter the holders by name"),
    ("Esc", "show all holders again"),
    ("↑ ↓ PgUp PgDn Home", "scroll the holders"),
    ("+  -", "show a shorter or longer time"),
    ("p  space", "pause or resume the picture"),
    ("w", "write a snapshot to a file; `lapidary view` shows it"),
    (
        "live, free in slabs",
        "bytes of slabs with and without tensors",
    ),
    (
        "host's slabs",
        "slabs in the host's memory with evicted tensors",
    ),
    (
        "reclaim",
        "steps that freed memory, refused requests, waits for memory",
    ),
];

fn draw_help(area: Rect, buffer: &mut Buffer) {
    let width = area.width.min(88);
    let height = area.height.min(HELP.len() as u16 + 2);
    let [middle] = Layout::vertical([Constraint::Length(height)])
        .flex(ratatui::layout::Flex::Center)
        .areas(area);
    let [middle] = Layout::horizontal([Constraint::Length(width)])
        .flex(ratatui::layout::Flex::Center)
        .areas(middle);
    Clear.render(middle, buffer);
    let lines = HELP.map(|(key, what)| {
        Line::from_iter([
            Span::styled(format!(" {key:<20} "), BOLD.fg(Color::Cyan)),
            Span::raw(what),
        ])
    });
    Paragraph::new(lines.to_vec())
        .block(panel(" help: any key closes it "))
        .render(middle, buffer);
}
