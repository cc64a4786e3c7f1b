//! `lapidary replay`: runs recorded allocations through our engine on a simulated device, beside
//! the rules of other allocators.
//!
//! Each storage of a trace becomes a buffer on the simulated device, placed at once by the same
//! engine that runs everything else. Buffers have sizes but no contents, so traces of many GiB fit.
//! A trace that says what its operators read is replayed by operator, so the engine can evict in
//! between.

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

/// The limit of slab bytes.
#[derive(Clone, Copy, Debug)]
enum Budget {
    Bytes(u64),
    /// A multiple of the highest sum of live bytes.
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
    /// All that the engine can do.
    Default,
    /// No moves on the device.
    NoMove,
    /// Only the choice of victims, on a device without slabs. Needs --budget and a trace that says
    /// what operators read.
    Choice,
}

/// The allocators to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Against {
    /// All of them.
    All,
    /// None.
    None,
    /// PyTorch's caching allocator for CUDA.
    Pytorch,
    /// A free list for each power of two.
    Buckets,
    /// Best fit on one heap that grows at its end.
    Heap,
    /// One buffer for each tensor.
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
/// A file is a trace or a log in RMM's format, plain or compressed with gzip. A trace has the lines
/// `a ID BYTES` and `f ID`; the lines `r` and `w` say what operators read and change. A log has the
/// columns `Thread,Time,Action,Pointer,Size,Stream`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Traces or logs in RMM's format
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Size of the device's largest buffer
    #[arg(long, value_name = "BYTES", default_value = "4GiB", value_parser = bytes)]
    limit: u64,
    /// Limit of slab bytes: a number of bytes, or a multiple of the trace's peak (0.75x). The other
    /// allocators have no limit
    #[arg(long, value_name = "BYTES|FACTORx")]
    budget: Option<Budget>,
    /// What our engine may do
    #[arg(long, value_enum, default_value = "default")]
    policy: Ours,
    /// Allocators to compare with, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "all")]
    against: Vec<Against>,
    /// Do not plot the reserved bytes
    #[arg(long)]
    no_plot: bool,
    /// Print a line of JSON for each trace and policy
    #[arg(long)]
    json: bool,
}

fn bytes(text: &str) -> std::result::Result<u64, String> {
    let bytes = parse_bytes(text).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| format!("`{text}` is not a number of bytes such as 512MiB"))
}

/// One policy, and its result on a trace.
struct Run {
    /// The name for programs.
    name: &'static str,
    /// The name for people.
    title: &'static str,
    outcome: Outcome,
}

/// Replays all files; a file that fails does not stop the others.
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
        return Err("it has no allocation".into());
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
