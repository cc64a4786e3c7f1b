//! `lapidary replay`: recorded allocations through our engine on a simulated device, beside what
//! other allocators would make of them.
//!
//! Each storage of a trace becomes a buffer on the simulated device (sizes only, so that traces of
//! many GiB fit), placed at once, by the engine that runs everything else. A trace that says what
//! its operators read is replayed operator by operator, so that tensors can leave in between.

mod plot;
mod report;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use lapidary_core::units::parse_bytes;

use crate::cli::failure::{Failure, Result};
use crate::cli::progress::Progress;
use crate::cli::style::{Style, clean, clean_path};
use lapidary_tools::replay::outcome::Outcome;
use lapidary_tools::replay::policy::{self, Reference};
use lapidary_tools::replay::trace::Trace;
use lapidary_tools::replay::{rmm, run, spilling};

/// What slabs may take.
#[derive(Clone, Copy, Debug)]
enum Budget {
    Bytes(u64),
    /// So many times the highest sum of live bytes.
    OfPeak(f64),
}

impl Budget {
    fn bytes(self, trace: &Trace) -> u64 {
        match self {
            Budget::Bytes(bytes) => bytes,
            Budget::OfPeak(factor) => (trace.peak_live_bytes as f64 * factor) as u64,
        }
    }
}

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Budget, String> {
        let wrong = || format!("`{text}` is neither bytes (`512MiB`) nor a multiple (`0.75x`)");
        let Some(factor) = text.strip_suffix('x') else {
            return parse_bytes(text).map(Budget::Bytes).ok_or_else(wrong);
        };
        let factor = factor.parse().ok();
        let factor = factor.filter(|factor: &f64| factor.is_finite() && *factor >= 0.0);
        factor.map(Budget::OfPeak).ok_or_else(wrong)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Ours {
    /// Whatever the engine does.
    Default,
    /// Nothing is moved on the device.
    NoMove,
    /// The choice of victims alone, on a device without slabs; needs --budget and a trace that says
    /// what operators read.
    Choice,
}

/// What our engine is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Against {
    /// All of them.
    All,
    /// Nothing.
    None,
    /// PyTorch's caching allocator for CUDA.
    Pytorch,
    /// A free list for each power of two.
    Buckets,
    /// Best fit on one heap that grows at its end.
    Heap,
    /// A buffer for each tensor.
    Apart,
}

impl Against {
    fn references(self) -> &'static [Reference] {
        match self {
            Against::All => &Reference::ALL,
            Against::None => &[],
            Against::Pytorch => &[Reference::Pytorch],
            Against::Buckets => &[Reference::Buckets],
            Against::Heap => &[Reference::Heap],
            Against::Apart => &[Reference::Apart],
        }
    }
}

/// Replay recorded allocations: what they reserve here, and under other allocators' rules
///
/// A file is a trace (`a ID BYTES`, `f ID`, a line each; `r` and `w` lines say what operators read
/// and change) or a log of RMM's (`Thread,Time,Action,Pointer,Size,Stream`), plain or compressed
/// with gzip.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Traces, or logs of RMM's
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The largest buffer of the device
    #[arg(long, value_name = "BYTES", default_value = "4GiB", value_parser = bytes)]
    limit: u64,
    /// What slabs may take: bytes, or a multiple of the trace's peak (0.75x). The others have no
    /// budget
    #[arg(long, value_name = "BYTES|FACTORx")]
    budget: Option<Budget>,
    /// What our engine may do
    #[arg(long, value_enum, default_value = "default")]
    policy: Ours,
    /// Whom to compare with; several with commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "all")]
    against: Vec<Against>,
    /// No plot of what is reserved over time
    #[arg(long)]
    no_plot: bool,
    /// A line of JSON for each trace and policy
    #[arg(long)]
    json: bool,
}

fn bytes(text: &str) -> std::result::Result<u64, String> {
    let bytes = parse_bytes(text).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| format!("`{text}` is no number of bytes, such as 512MiB"))
}

/// One policy and what became of a trace under it.
struct Run {
    /// As programs read it.
    name: &'static str,
    /// As people read it.
    title: &'static str,
    outcome: Outcome,
}

/// Replays all files; goes on after one that cannot be.
pub(crate) fn replay(args: &Args, style: Style, out: &mut dyn Write) -> Result {
    let mut ratios = report::Ratios::default();
    let mut failed = Vec::new();
    for file in &args.files {
        let (trace, runs) = match replay_one(file, args) {
            Ok(done) => done,
            Err(what) => {
                failed.push(Failure::new(format!("{}: {what}", clean_path(file))));
                continue;
            }
        };
        if args.json {
            for run in &runs {
                report::print_json(out, &trace, run)?;
            }
            continue;
        }
        report::print_table(out, style, &trace, &runs)?;
        if !args.no_plot {
            plot::print(out, style, &runs)?;
        }
        runs.iter().for_each(|run| ratios.add(run));
        out.flush()?;
    }
    if !args.json {
        ratios.print(out, style)?;
    }
    Failure::all(failed)
}

fn replay_one(file: &Path, args: &Args) -> std::result::Result<(Trace, Vec<Run>), String> {
    let trace = rmm::read(file)?;
    if trace.events.is_empty() {
        return Err("it says of no allocation".into());
    }
    let mut runs = vec![ours(&trace, args)?];
    let mut references: Vec<Reference> = Vec::new();
    for &reference in args.against.iter().flat_map(|against| against.references()) {
        if !references.contains(&reference) {
            references.push(reference);
        }
    }
    runs.extend(references.into_iter().map(|reference| Run {
        name: reference.name(),
        title: reference.title(),
        outcome: policy::run(&trace, reference),
    }));
    Ok((trace, runs))
}

fn ours(trace: &Trace, args: &Args) -> std::result::Result<Run, String> {
    let budget_bytes = args.budget.map(|budget| budget.bytes(trace));
    let (name, title) = match args.policy {
        Ours::Default => ("lapidary", "lapidary"),
        Ours::NoMove => ("lapidary-no-move", "lapidary, no moves"),
        Ours::Choice => ("lapidary-choice", "lapidary's choice"),
    };
    let mut outcome = match (args.policy, budget_bytes) {
        (Ours::Choice, Some(budget_bytes)) if trace.has_operators() => {
            run::choice(trace, budget_bytes)
        }
        (Ours::Choice, Some(_)) => return Err("it does not say what operators read".into()),
        (Ours::Choice, None) => return Err("the policy `choice` needs --budget".into()),
        (policy, _) => {
            let setting = run::Setting {
                limit_bytes: args.limit,
                budget_bytes,
                never_move: policy == Ours::NoMove,
            };
            let progress = Progress::new(&clean(&trace.name), trace.events.len());
            let outcome = run::replay(trace, setting, &mut |done| progress.set(done));
            progress.clear();
            outcome.map_err(|error| error.to_string())?
        }
    };
    if let Some(budget_bytes) = budget_bytes.filter(|_| trace.has_operators()) {
        let reference = spilling::spill(trace, budget_bytes, spilling::Order::Oracle);
        outcome.reference_bytes = Some(reference.bytes());
    }
    Ok(Run {
        name,
        title,
        outcome,
    })
}
