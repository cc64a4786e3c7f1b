//! Prints the results: a table for people, a line of JSON for each run for programs.

use std::io::{self, Write};

use lapidary_core::units::Bytes;
use serde_json::json;

use super::Run;
use crate::cli::style::{Style, clean};
use lapidary_tools::replay::trace::Trace;

pub(super) fn print_json(out: &mut dyn Write, trace: &Trace, run: &Run) -> io::Result<()> {
    let outcome = &run.outcome;
    let rounded = |value: f64, to: f64| (value * to).round() / to;
    let line = json!({
        "trace": trace.name,
        "policy": run.name,
        "events": trace.events.len(),
        "peak_live": outcome.peak_live_bytes,
        "peak_reserved": outcome.peak_reserved_bytes,
        "ratio": rounded(outcome.ratio(), 1e4),
        "waste": rounded(outcome.waste(), 1e4),
        "buffers_created": outcome.buffers_created,
        "buffers_created_last_third": outcome.buffers_created_last_third,
        "refused": outcome.refused,
        "ns_per_event": rounded(outcome.ns_per_event, 10.0),
        "bytes_allocated": outcome.allocated_bytes,
        "bytes_moved": outcome.moved_bytes,
        "compactions_last_third": outcome.compactions_last_third,
        "bytes_spilled_out": outcome.out_bytes,
        "bytes_spilled_in": outcome.in_bytes,
        "bytes_spilled_reference": outcome.reference_bytes,
    });
    writeln!(out, "{line}")
}

const COLUMNS: [&str; 8] = [
    "",
    "peak reserved",
    "÷ live",
    "idle",
    "buffers",
    "last third",
    "moved",
    "ns/event",
];

pub(super) fn print_table(
    out: &mut dyn Write,
    style: Style,
    trace: &Trace,
    runs: &[Run],
) -> io::Result<()> {
    writeln!(
        out,
        "{}  {} events, {} storages, at most {} live",
        style.bold(&clean(&trace.name)),
        trace.events.len(),
        trace.storages,
        Bytes(trace.peak_live_bytes),
    )?;
    let head = row(&COLUMNS.map(str::to_owned));
    writeln!(out, "{}", style.dim(&head))?;
    for (number, run) in runs.iter().enumerate() {
        let outcome = &run.outcome;
        let moved = match outcome.moved_bytes {
            0 => "–".to_owned(),
            bytes => Bytes(bytes).to_string(),
        };
        let line = row(&[
            run.title.to_owned(),
            Bytes(outcome.peak_reserved_bytes).to_string(),
            format!("{:.3}", outcome.ratio()),
            format!("{:.1} %", 100.0 * outcome.waste()),
            outcome.buffers_created.to_string(),
            outcome.buffers_created_last_third.to_string(),
            moved,
            format!("{:.0}", outcome.ns_per_event),
        ]);
        writeln!(out, "{}", style.series(number, &line))?;
        print_notes(out, run)?;
    }
    Ok(())
}

/// Remarks that only some runs have.
fn print_notes(out: &mut dyn Write, run: &Run) -> io::Result<()> {
    let outcome = &run.outcome;
    if outcome.refused > 0 {
        let refused = outcome.refused;
        writeln!(out, "    {refused} found no memory and are left out")?;
    }
    let spilled_bytes = outcome.out_bytes.saturating_add(outcome.in_bytes);
    if spilled_bytes == 0 {
        return Ok(());
    }
    let (evicted, back) = (Bytes(outcome.out_bytes), Bytes(outcome.in_bytes));
    write!(out, "    {evicted} evicted, {back} restored")?;
    if let Some(bytes) = outcome.reference_bytes.filter(|bytes| *bytes > 0) {
        let share = spilled_bytes as f64 / bytes as f64;
        write!(out, ": {share:.3} × the bytes of Belady's algorithm")?;
    }
    writeln!(out)
}

fn row(cells: &[String; 8]) -> String {
    let [title, reserved, ratio, idle, buffers, late, moved, ns] = cells;
    format!(
        "  {title:<20}{reserved:>14}{ratio:>8}{idle:>9}{buffers:>9}{late:>12}{moved:>11}{ns:>10}"
    )
}

/// Reserved ÷ live of all traces, by policy.
#[derive(Default)]
pub(super) struct Ratios(Vec<(&'static str, Vec<f64>)>);

impl Ratios {
    pub(super) fn add(&mut self, run: &Run) {
        let ratio = run.outcome.ratio();
        match self.0.iter_mut().find(|(title, _)| *title == run.title) {
            Some((_, ratios)) => ratios.push(ratio),
            None => self.0.push((run.title, vec![ratio])),
        }
    }

    /// The means, if there are several traces.
    pub(super) fn print(&self, out: &mut dyn Write, style: Style) -> io::Result<()> {
        let traces = self.0.first().map_or(0, |(_, ratios)| ratios.len());
        if traces < 2 {
            return Ok(());
        }
        let title = format!("peak reserved ÷ peak live, {traces} traces");
        writeln!(out, "{}", style.bold(&title))?;
        for (number, (title, ratios)) in self.0.iter().enumerate() {
            let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64;
            let worst = ratios.iter().copied().fold(0.0, f64::max);
            let line = format!(
                "  {title:<20}geometric mean {:.3}, worst {worst:.3}",
                mean.exp()
            );
            writeln!(out, "{}", style.series(number, &line))?;
        }
        Ok(())
    }
}
