//! Replays recorded allocation traces and says what they reserve, move and put out.
//!
//! ```text
//! cargo run --release --features sim --example replay -- [--json] [--limit BYTES] [--budget BYTES|FACTORx]
//!     [--policy default|no-move|choice] FILE...
//! ```
//!
//! Each storage of a trace becomes a tensor on the simulated device (sizes only, so that traces
//! of many GiB fit), placed at once, by the engine that runs everything else. A trace that says what
//! its operators read is replayed operator by operator, so that tensors can leave in between.

mod report;
mod run;
#[path = "../../tests/common/spilling.rs"]
mod spilling;
#[path = "../../tests/common/trace.rs"]
#[allow(dead_code, reason = "shared with tests, which use more of it")]
mod trace;
#[path = "../../src/memory/victims.rs"]
mod victims;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use run::Outcome;
use trace::Trace;

const USAGE: &str = "usage: replay [--json] [--limit BYTES] [--budget BYTES|FACTORx] \
                     [--policy default|no-move|choice] FILE...
  --limit   the largest buffer of the device; 4 GiB if not given
  --budget  what slabs may take: bytes, or a multiple of the trace's peak (0.75x)
  --policy  default: whatever the engine does
            no-move: nothing is moved on the device
            choice: the choice of victims alone, on a device without slabs; needs --budget";

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

    fn parse(text: &str) -> Option<Budget> {
        let Some(factor) = text.strip_suffix('x') else {
            return text.parse().ok().map(Budget::Bytes);
        };
        let factor = factor.parse().ok();
        let factor = factor.filter(|factor: &f64| factor.is_finite() && *factor >= 0.0);
        factor.map(Budget::OfPeak)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Default,
    NoMove,
    Choice,
}

struct Options {
    json: bool,
    limit_bytes: u64,
    budget: Option<Budget>,
    policy: Policy,
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let options = match parse_options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if !options.json {
        report::print_head();
    }
    let mut ratios = Vec::new();
    for file in &options.files {
        match replay(file, &options) {
            Ok((trace, outcome)) => {
                ratios.push(outcome.ratio());
                match options.json {
                    true => report::print_json(&trace, &outcome),
                    false => report::print_row(&trace, &outcome),
                }
            }
            Err(message) => eprintln!("{}: {message}", file.display()),
        }
    }
    if !options.json && !ratios.is_empty() {
        report::print_summary(&ratios);
    }
    match ratios.len() == options.files.len() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn replay(file: &Path, options: &Options) -> Result<(Trace, Outcome), String> {
    let trace = trace::read(file).map_err(|error| error.to_string())?;
    let budget_bytes = options.budget.map(|budget| budget.bytes(&trace));
    let mut outcome = match (options.policy, budget_bytes) {
        (Policy::Choice, Some(budget_bytes)) if trace.has_operators() => {
            run::choice(&trace, budget_bytes)
        }
        (Policy::Choice, Some(_)) => return Err("it does not say what is read".into()),
        (Policy::Choice, None) => return Err("the policy `choice` needs --budget".into()),
        (policy, _) => {
            let never_move = policy == Policy::NoMove;
            let outcome = run::replay(&trace, options.limit_bytes, budget_bytes, never_move);
            outcome.map_err(|error| error.to_string())?
        }
    };
    if let Some(budget_bytes) = budget_bytes.filter(|_| trace.has_operators()) {
        let reference = spilling::spill(&trace, budget_bytes, spilling::Order::Oracle);
        outcome.reference_bytes = Some(reference.bytes());
    }
    Ok((trace, outcome))
}

fn parse_options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        json: false,
        limit_bytes: 4 << 30,
        budget: None,
        policy: Policy::Default,
        files: Vec::new(),
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--json" => options.json = true,
            "--limit" => {
                let value = value()?;
                let bytes = value.parse();
                options.limit_bytes =
                    bytes.map_err(|_| format!("`{value}` is no number of bytes"))?;
            }
            "--budget" => {
                let value = value()?;
                let budget = Budget::parse(&value);
                let budget =
                    budget.ok_or(format!("`{value}` is neither bytes nor like `0.75x`"))?;
                options.budget = Some(budget);
            }
            "--policy" => {
                options.policy = match value()?.as_str() {
                    "default" => Policy::Default,
                    "no-move" => Policy::NoMove,
                    "choice" => Policy::Choice,
                    other => return Err(format!("no policy `{other}`")),
                }
            }
            _ if arg.starts_with('-') => return Err(format!("no option `{arg}`")),
            _ => options.files.push(arg.into()),
        }
    }
    match options.files.is_empty() {
        true => Err("no trace is named".into()),
        false => Ok(options),
    }
}
