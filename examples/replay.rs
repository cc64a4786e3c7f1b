//! Replays recorded allocation traces and says what they would have reserved.
//!
//! ```text
//! cargo run --release --features sim --example replay -- [--json] [--limit BYTES] [--policy no-move] FILE...
//! ```
//!
//! Each storage of a trace becomes a tensor on the simulated device (sizes only, so that traces
//! of many GiB fit), placed at once, by the engine that runs everything else.

#[path = "../tests/common/trace.rs"]
#[allow(dead_code, reason = "shared with tests, which use more of it")]
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use lapidary::sim::{SimMode, SimOptions};
use lapidary::{DType, Error, Gpu, MemoryStats, Tensor};
use trace::{Event, Trace};

const USAGE: &str = "usage: replay [--json] [--limit BYTES] [--policy no-move] FILE...";
const UNIT_BYTES: u64 = 256;

struct Options {
    json: bool,
    limit_bytes: u64,
    files: Vec<PathBuf>,
}

/// What became of one trace.
struct Outcome {
    stats: MemoryStats,
    buffers_created_last_third: u64,
    refused: u64,
    ns_per_event: f64,
}

fn main() -> ExitCode {
    let options = match parse_options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut ratios = Vec::new();
    let mut failed = false;
    if !options.json {
        print_head();
    }
    for file in &options.files {
        match trace::read(file)
            .map_err(|error| error.to_string())
            .and_then(|trace| {
                let outcome =
                    replay(&trace, options.limit_bytes).map_err(|error| error.to_string())?;
                Ok((trace, outcome))
            }) {
            Ok((trace, outcome)) => {
                ratios.push(ratio(&trace, &outcome));
                if options.json {
                    print_json(&trace, &outcome)
                } else {
                    print_row(&trace, &outcome)
                }
            }
            Err(message) => {
                eprintln!("{}: {message}", file.display());
                failed = true;
            }
        }
    }
    if !options.json && !ratios.is_empty() {
        print_summary(&ratios);
    }
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn parse_options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        json: false,
        limit_bytes: 4 << 30,
        files: Vec::new(),
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => options.json = true,
            "--limit" => {
                let value = args.next().ok_or("--limit needs a number of bytes")?;
                let bytes = value
                    .parse()
                    .map_err(|_| format!("`{value}` is no number of bytes"))?;
                options.limit_bytes = bytes;
            }
            "--policy" => match args.next().as_deref() {
                Some("no-move") => {}
                other => {
                    return Err(format!(
                        "no policy {:?}; there is `no-move`",
                        other.unwrap_or_default()
                    ));
                }
            },
            _ if arg.starts_with('-') => return Err(format!("no option `{arg}`")),
            _ => options.files.push(arg.into()),
        }
    }
    if options.files.is_empty() {
        Err("no trace is named".into())
    } else {
        Ok(options)
    }
}

/// Runs all events of a trace. A request that the device can never serve is counted and skipped.
fn replay(trace: &Trace, limit_bytes: u64) -> Result<Outcome, Error> {
    let (gpu, _sim) = Gpu::simulated(SimOptions {
        mode: SimMode::SizesOnly,
        memory_bytes: u64::MAX,
        max_buffer_bytes: limit_bytes,
        offset_alignment_bytes: UNIT_BYTES,
        lag_submissions: 0,
        ..SimOptions::default()
    })?;
    let mut tensors: Vec<Option<Tensor>> = vec![None; trace.storages];
    let mut refused = 0;
    let last_third_from = trace.events.len() * 2 / 3;
    let mut created_before = 0;
    let start = Instant::now();
    for (number, &event) in trace.events.iter().enumerate() {
        if number == last_third_from {
            created_before = gpu.memory().slabs_created;
        }
        match event {
            Event::Alloc { id, bytes } => match place(&gpu, bytes) {
                Ok(tensor) => tensors[id] = Some(tensor),
                Err(Error::NeverFits { .. }) => refused += 1,
                Err(error) => return Err(error),
            },
            Event::Free { id } => tensors[id] = None,
        }
    }
    let ns_per_event = start.elapsed().as_nanos() as f64 / trace.events.len().max(1) as f64;
    let stats = gpu.memory();
    let buffers_created_last_third = stats.slabs_created - created_before;
    Ok(Outcome {
        stats,
        buffers_created_last_third,
        refused,
        ns_per_event,
    })
}

/// A tensor of so many bytes, placed before the next event.
fn place(gpu: &Gpu, bytes: u64) -> Result<Tensor, Error> {
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    let tensor = gpu.zeros(&[len], DType::U8)?;
    tensor.force()?;
    Ok(tensor)
}

/// Peak reserved over peak live; of refused requests only the live part is missing from the peak.
fn ratio(trace: &Trace, outcome: &Outcome) -> f64 {
    outcome.stats.peak_reserved_bytes as f64 / peak_live_bytes(trace, outcome).max(1) as f64
}

fn peak_live_bytes(trace: &Trace, outcome: &Outcome) -> u64 {
    if outcome.refused > 0 {
        outcome.stats.peak_requested_bytes
    } else {
        trace.peak_live_bytes
    }
}

fn print_json(trace: &Trace, outcome: &Outcome) {
    let name = trace.name.replace('\\', "\\\\").replace('"', "\\\"");
    println!(
        "{{\"trace\":\"{name}\",\"events\":{},\"peak_live\":{},\"peak_reserved\":{},\"ratio\":{:.4},\
         \"buffers_created\":{},\"buffers_created_last_third\":{},\"refused\":{},\"ns_per_event\":{:.1}}}",
        trace.events.len(),
        peak_live_bytes(trace, outcome),
        outcome.stats.peak_reserved_bytes,
        ratio(trace, outcome),
        outcome.stats.slabs_created,
        outcome.buffers_created_last_third,
        outcome.refused,
        outcome.ns_per_event,
    );
}

fn print_head() {
    println!(
        "{:<36} {:>8} {:>10} {:>12} {:>6} {:>8} {:>10} {:>8} {:>9}",
        "trace",
        "events",
        "live MiB",
        "reserved MiB",
        "ratio",
        "buffers",
        "last third",
        "ns/event",
        "refused"
    );
}

fn print_row(trace: &Trace, outcome: &Outcome) {
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    println!(
        "{:<36} {:>8} {:>10.1} {:>12.1} {:>6.3} {:>8} {:>10} {:>8.0} {:>9}",
        trace.name,
        trace.events.len(),
        mib(peak_live_bytes(trace, outcome)),
        mib(outcome.stats.peak_reserved_bytes),
        ratio(trace, outcome),
        outcome.stats.slabs_created,
        outcome.buffers_created_last_third,
        outcome.ns_per_event,
        if outcome.refused > 0 {
            format!("{} !", outcome.refused)
        } else {
            "0".into()
        },
    );
}

fn print_summary(ratios: &[f64]) {
    let mean_log = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64;
    let worst = ratios.iter().copied().fold(0.0, f64::max);
    println!(
        "geo-mean {:.3}, worst {:.3}, over {} traces",
        mean_log.exp(),
        worst,
        ratios.len()
    );
}
