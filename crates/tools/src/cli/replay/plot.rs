//! A chart of the bytes reserved during a trace, made of characters.

use std::io::{self, Write};

use lapidary_core::units::Bytes;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style as CellStyle};
use ratatui::symbols::Marker;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget};

use super::Run;
use crate::cli::style::{SERIES, Style, width};
use lapidary_tools::replay::outcome::{POINTS, Point};

const HEIGHT: u16 = 14;
const MOST_WIDTH: u16 = 110;

/// Draws the reserved bytes of all runs in the colours of their rows, and the live bytes below
/// them. Without colours only the first run is drawn.
pub(super) fn print(out: &mut dyn Write, style: Style, runs: &[Run]) -> io::Result<()> {
    let Some(first) = runs.first().filter(|run| !run.outcome.curve.is_empty()) else {
        return Ok(());
    };
    let most_runs = if style.has_colours() { runs.len() } else { 1 };
    let drawn = &runs[..most_runs];
    let live = line(&first.outcome.curve, |point| point.live_bytes);
    let reserved: Vec<Vec<(f64, f64)>> = drawn
        .iter()
        .map(|run| line(&run.outcome.curve, |point| point.reserved_bytes))
        .collect();
    let drawn_bytes = drawn.iter().map(|run| run.outcome.peak_reserved_bytes);
    let most_bytes = drawn_bytes
        .chain([first.outcome.peak_live_bytes])
        .max()
        .unwrap_or(1);

    let mut sets = vec![dataset(&live, Color::DarkGray).graph_type(GraphType::Bar)];
    // The first run is drawn last, on top of the others.
    for (number, points) in reserved.iter().enumerate().rev() {
        // The curve of a policy that reserves only live bytes is drawn already.
        if *points == live {
            continue;
        }
        sets.push(dataset(points, SERIES[number % SERIES.len()]));
    }
    let labels = [0, most_bytes / 2, most_bytes].map(|bytes| Bytes(bytes).to_string());
    let dim = CellStyle::new().fg(Color::DarkGray);
    let chart = Chart::new(sets)
        .legend_position(None)
        .x_axis(
            Axis::default()
                .bounds([0.0, (POINTS - 1) as f64])
                .style(dim),
        )
        .y_axis(
            Axis::default()
                .bounds([0.0, most_bytes as f64])
                .labels(labels)
                .style(dim),
        );
    let mut buffer = Buffer::empty(Rect::new(0, 0, width().min(MOST_WIDTH), HEIGHT));
    chart.render(buffer.area, &mut buffer);
    style.print_cells(out, &buffer)?;
    let what = match drawn.len() {
        1 => format!("reserved by {}; filled: live", first.title),
        _ => "reserved over the events of the trace; filled: live".into(),
    };
    writeln!(out, "{:>12}{}\n", "", style.dim(&what))
}

fn line(curve: &[Point], bytes: fn(&Point) -> u64) -> Vec<(f64, f64)> {
    let points = curve.iter().enumerate();
    points
        .map(|(at, point)| (at as f64, bytes(point) as f64))
        .collect()
}

fn dataset(points: &[(f64, f64)], colour: Color) -> Dataset<'_> {
    Dataset::default()
        .marker(Marker::Braille)
        .graph_type(GraphType::Line)
        .style(CellStyle::new().fg(colour))
        .data(points)
}
