//! Prints what became of traces: a table for people, a line of JSON a trace for programs.

use crate::run::Outcome;
use crate::trace::Trace;

pub(crate) fn print_json(trace: &Trace, outcome: &Outcome) {
    let name = trace.name.replace('\\', "\\\\").replace('"', "\\\"");
    let reference = outcome.reference_bytes;
    let reference = reference.map_or("null".to_string(), |bytes| bytes.to_string());
    println!(
        "{{\"trace\":\"{name}\",\"events\":{},\"peak_live\":{},\"peak_reserved\":{},\"ratio\":{:.4},\
         \"buffers_created\":{},\"buffers_created_last_third\":{},\"refused\":{},\"ns_per_event\":{:.1},\
         \"bytes_moved\":{},\"compactions_last_third\":{},\"bytes_spilled_out\":{},\
         \"bytes_spilled_in\":{},\"bytes_spilled_reference\":{reference}}}",
        trace.events.len(),
        outcome.peak_live_bytes,
        outcome.peak_reserved_bytes,
        outcome.ratio(),
        outcome.buffers_created,
        outcome.buffers_created_last_third,
        outcome.refused,
        outcome.ns_per_event,
        outcome.moved_bytes,
        outcome.compactions_last_third,
        outcome.out_bytes,
        outcome.in_bytes,
    );
}

pub(crate) fn print_head() {
    println!(
        "{:<36} {:>8} {:>9} {:>12} {:>6} {:>8} {:>10} {:>8} {:>7} {:>9} {:>11} {:>9} {:>9} {:>10}",
        "trace",
        "events",
        "live MiB",
        "reserved MiB",
        "ratio",
        "buffers",
        "last third",
        "ns/event",
        "refused",
        "moved MiB",
        "compactions",
        "out MiB",
        "in MiB",
        "×reference"
    );
}

pub(crate) fn print_row(trace: &Trace, outcome: &Outcome) {
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    let spilled_bytes = outcome.out_bytes + outcome.in_bytes;
    let of_reference = match outcome.reference_bytes {
        Some(bytes) if bytes > 0 => format!("{:.3}", spilled_bytes as f64 / bytes as f64),
        _ => "-".into(),
    };
    println!(
        "{:<36} {:>8} {:>9.1} {:>12.1} {:>6.3} {:>8} {:>10} {:>8.0} {:>7} {:>9.1} {:>11} {:>9.0} {:>9.0} {:>10}",
        trace.name,
        trace.events.len(),
        mib(outcome.peak_live_bytes),
        mib(outcome.peak_reserved_bytes),
        outcome.ratio(),
        outcome.buffers_created,
        outcome.buffers_created_last_third,
        outcome.ns_per_event,
        outcome.refused,
        mib(outcome.moved_bytes),
        outcome.compactions_last_third,
        mib(outcome.out_bytes),
        mib(outcome.in_bytes),
        of_reference,
    );
}

pub(crate) fn print_summary(ratios: &[f64]) {
    let mean_log = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64;
    let worst = ratios.iter().copied().fold(0.0, f64::max);
    println!(
        "geo-mean {:.3}, worst {:.3}, over {} traces",
        mean_log.exp(),
        worst,
        ratios.len()
    );
}
