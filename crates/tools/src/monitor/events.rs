//! The changes between two samples: successful reclaim steps, refusals, evictions, restores, and
//! waits for memory.

use std::collections::VecDeque;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Widget};

use super::style::{DIM, panel};
use lapidary_core::internal::Counted;
use lapidary_core::stats::MemoryStats;
use lapidary_core::stats::{ReclaimStep, ReclaimStepUse};
use lapidary_core::units::{Bytes, Nanoseconds};

const MOST_LINES: usize = 200;

#[derive(Clone, Debug)]
struct Happened {
    at: Duration,
    what: String,
    style: Style,
}

/// The last events, newest first.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentEvents {
    happened: VecDeque<Happened>,
}

impl RecentEvents {
    /// Records the differences between two samples. A counter that went back counts as unchanged.
    pub(super) fn compare(&mut self, at: Duration, before: &MemoryStats, after: &MemoryStats) {
        let more = |count: fn(&MemoryStats) -> u64| count(after).saturating_sub(count(before));
        let created = more(|stats| stats.slabs_created);
        if created > 0 {
            self.enter(
                at,
                format!("{} created", Counted(created, "slab")),
                Color::Blue,
            );
        }
        let released = more(|stats| stats.slabs_released);
        if released > 0 {
            self.enter(
                at,
                format!("{} released", Counted(released, "slab")),
                Color::Blue,
            );
        }
        for one in &after.reclaim_steps {
            let known = before
                .reclaim_steps
                .iter()
                .find(|known| known.step == one.step);
            let more = |count: fn(&ReclaimStepUse) -> u64| {
                count(one).saturating_sub(known.map_or(0, &count))
            };
            let freed_bytes = more(|one| one.freed_bytes);
            if freed_bytes > 0 {
                let what = format!(
                    "{:<9} freed {}, {} of {}",
                    one.step.name(),
                    Bytes(freed_bytes),
                    more(|one| one.gains),
                    counted_tries(more(|one| one.tries)),
                );
                self.enter(at, what, colour(one.step));
            }
        }
        let left = more(|stats| stats.evictions);
        if left > 0 {
            let written_bytes = more(|stats| stats.evicted_bytes);
            let dropped_bytes = more(|stats| stats.dropped_bytes);
            let at_source_bytes = more(|stats| stats.dropped_to_source_bytes);
            let (written, dropped) = (Bytes(written_bytes), Bytes(dropped_bytes));
            let tensors = Counted(left, "tensor");
            let what = match (written_bytes, dropped_bytes) {
                (_, 0) => format!("{tensors} evicted, {written}"),
                (0, bytes) if bytes == at_source_bytes => {
                    format!("{tensors} dropped, {dropped}: at source")
                }
                (0, _) => format!("{tensors} dropped, {dropped}"),
                _ => format!("{tensors} out, {written} + {dropped} dropped"),
            };
            self.enter(at, what, Color::Magenta);
        }
        let back = more(|stats| stats.restores);
        if back > 0 {
            let bytes = Bytes(more(|stats| stats.restored_bytes));
            self.enter(
                at,
                format!("{} restored, {bytes}", Counted(back, "tensor")),
                Color::Cyan,
            );
        }
        let waits = after.waits().since(&before.waits());
        if waits.total().ns > 0 {
            let (what, waited) = waits.longest();
            let (all, most) = (Nanoseconds(waits.total().ns), Nanoseconds(waited.ns));
            self.enter(at, format!("waited {all}, {what} {most}"), Color::Gray);
        }
        let refusals = more(|stats| stats.refusals);
        if refusals > 0 {
            self.enter(
                at,
                format!("{} REFUSED", Counted(refusals, "request")),
                Color::Red,
            );
        }
    }

    fn enter(&mut self, at: Duration, what: String, colour: Color) {
        self.happened.truncate(MOST_LINES - 1);
        let style = match colour {
            Color::Red => Style::new().fg(colour).add_modifier(Modifier::BOLD),
            colour => Style::new().fg(colour),
        };
        self.happened.push_front(Happened { at, what, style });
    }

    pub(super) fn draw(&self, area: Rect, buffer: &mut Buffer, stats: &MemoryStats) {
        let title = match stats.refusals {
            0 => Line::from(" reclaim "),
            refusals => Line::from_iter([
                Span::raw(" reclaim: "),
                Span::styled(
                    format!("{} ", Counted(refusals, "refusal")),
                    Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
                ),
            ]),
        };
        let lines = self
            .happened
            .iter()
            .take(usize::from(area.height))
            .map(|happened| {
                let seconds = happened.at.as_secs_f64();
                Line::from_iter([
                    Span::styled(format!("{seconds:>7.1} s  "), DIM),
                    Span::styled(happened.what.as_str(), happened.style),
                ])
            });
        let mut lines: Vec<Line<'_>> = lines.collect();
        if lines.is_empty() {
            lines.push(Line::styled(" memory was never short", DIM));
        }
        Paragraph::new(lines)
            .block(panel(title))
            .render(area, buffer);
    }
}

fn counted_tries(tries: u64) -> String {
    match tries {
        1 => "1 try".into(),
        tries => format!("{tries} tries"),
    }
}

/// Steps without transfers are dim; steps with transfers stand out.
fn colour(step: ReclaimStep) -> Color {
    match step {
        ReclaimStep::Retire | ReclaimStep::Caches | ReclaimStep::Trim | ReclaimStep::Wait => {
            Color::Gray
        }
        ReclaimStep::Callbacks => Color::Green,
        ReclaimStep::Compact => Color::Cyan,
        ReclaimStep::Host | ReclaimStep::Drop => Color::Yellow,
        ReclaimStep::Store => Color::LightYellow,
        ReclaimStep::Disk => Color::LightRed,
        // Repack, and steps that have no colour of their own.
        _ => Color::Red,
    }
}
