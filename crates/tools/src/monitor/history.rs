//! Live and reserved bytes over time: a bounded ring of small samples, and the curve of the last
//! ones.

use std::collections::VecDeque;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget};

use super::style::{DIM, LIVE, OUT, RESERVED, panel};
use lapidary_core::stats::MemoryStats;
use lapidary_core::units::Bytes;

/// One hour at ten samples a second.
const MOST_SAMPLES: usize = 36_000;

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    live_bytes: u64,
    reserved_bytes: u64,
    /// Bytes in the host's memory, in stores and on disk.
    out_bytes: u64,
    commands: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Curve {
    samples: VecDeque<Sample>,
}

impl Curve {
    pub(super) fn push(&mut self, at: Duration, stats: &MemoryStats) {
        if self.samples.len() >= MOST_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample {
            at,
            live_bytes: stats.live_bytes.now,
            reserved_bytes: stats.reserved_bytes.now,
            out_bytes: (stats.host_bytes.now)
                .saturating_add(stats.store_bytes())
                .saturating_add(stats.spilled_bytes.now),
            commands: stats.commands,
        });
    }

    pub(super) fn last_at(&self) -> Duration {
        self.samples
            .back()
            .map_or(Duration::ZERO, |sample| sample.at)
    }

    /// Samples and commands per second over the last two seconds.
    pub(super) fn rates(&self) -> (f64, f64) {
        let Some(last) = self.samples.back() else {
            return (0.0, 0.0);
        };
        let since = last.at.saturating_sub(Duration::from_secs(2));
        let recent = self
            .samples
            .iter()
            .rev()
            .take_while(|sample| sample.at >= since);
        let (mut count, mut first) = (0_u32, last);
        for sample in recent {
            (count, first) = (count + 1, sample);
        }
        let seconds = (last.at - first.at).as_secs_f64();
        if seconds <= 0.0 {
            return (0.0, 0.0);
        }
        let commands = last.commands.saturating_sub(first.commands);
        (f64::from(count - 1) / seconds, commands as f64 / seconds)
    }

    /// Draws the last `window`. A budget is a line.
    pub(super) fn draw(
        &self,
        area: Rect,
        buffer: &mut Buffer,
        window: Duration,
        budget_bytes: Option<u64>,
    ) {
        let title = format!(" last {} ", seconds(window));
        let columns = usize::from(area.width.saturating_sub(12)).max(1) * 2;
        let [live, reserved, out] = self.columns(window, columns);
        let most = |points: &[(f64, f64)]| points.iter().map(|point| point.1).fold(0.0, f64::max);
        let mut legend = vec![
            Span::styled(" ■ live ", LIVE),
            Span::styled("■ reserved ", RESERVED),
        ];
        if most(&out) > 0.0 {
            legend.push(Span::styled("■ evicted ", OUT));
        }
        let block = panel(title).title_top(Line::from(legend).right_aligned());
        let inner = block.inner(area);
        block.render(area, buffer);
        let most_bytes = most(&live).max(most(&reserved)).max(most(&out)).max(1.0);
        // A budget far above the curves would flatten them.
        let budget = budget_bytes.map(|bytes| bytes as f64);
        let budget = budget.filter(|bytes| *bytes <= 3.0 * most_bytes);
        let top = budget.map_or(most_bytes, |bytes| bytes.max(most_bytes)) * 1.02;
        let end = (columns - 1) as f64;
        let limit: Vec<(f64, f64)> = budget.map_or(Vec::new(), |y| vec![(0.0, y), (end, y)]);
        let labels = [0.0, top / 2.0, top].map(|bytes| Bytes(bytes as u64).to_string());
        let set = |points, graph, style| {
            Dataset::default()
                .marker(Marker::Braille)
                .graph_type(graph)
                .style(style)
                .data(points)
        };
        let mut sets = vec![
            set(&live, GraphType::Bar, LIVE),
            set(&reserved, GraphType::Line, RESERVED),
        ];
        if most(&out) > 0.0 {
            sets.push(set(&out, GraphType::Line, OUT));
        }
        sets.push(set(&limit, GraphType::Line, Style::new().fg(Color::Red)));
        Chart::new(sets)
            .legend_position(None)
            .x_axis(Axis::default().bounds([0.0, end]).style(DIM))
            .y_axis(Axis::default().bounds([0.0, top]).labels(labels).style(DIM))
            .render(inner, buffer);
    }

    /// The highest live, reserved and evicted bytes in each of `columns` parts of the window.
    fn columns(&self, window: Duration, columns: usize) -> [Vec<(f64, f64)>; 3] {
        let last = self.last_at();
        let mut parts: Vec<Option<[u64; 3]>> = vec![None; columns];
        for sample in self.samples.iter().rev() {
            let age = last - sample.at;
            if age > window {
                break;
            }
            let back = age.as_secs_f64() / window.as_secs_f64() * columns as f64;
            let part = &mut parts[columns - 1 - (back as usize).min(columns - 1)];
            let seen = [sample.live_bytes, sample.reserved_bytes, sample.out_bytes];
            let most = part.get_or_insert([0; 3]);
            for (most, seen) in most.iter_mut().zip(seen) {
                *most = (*most).max(seen);
            }
        }
        let mut curves = [const { Vec::new() }; 3];
        let mut before = None;
        for (column, part) in parts.into_iter().enumerate() {
            // A column without a sample repeats the last one.
            before = part.or(before);
            for (curve, bytes) in curves.iter_mut().zip(before.into_iter().flatten()) {
                curve.push((column as f64, bytes as f64));
            }
        }
        curves
    }
}

/// `10 s`, `5 min`.
fn seconds(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds < 120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}
