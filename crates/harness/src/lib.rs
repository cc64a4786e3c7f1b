//! The measured cases, the method, and the comparison, independent of the library.
//!
//! `cases` lists the work. `measure` times it in rounds that alternate with those of the `host`,
//! which uses loops over all cores (`loops`) or OpenBLAS ([`openblas`]). `check` checks results,
//! `start` times whole processes, and `row` formats a result. A measured library is a [`Subject`]:
//! lapidary in `benches/table`, and others in the separate workspace `benches/peers`. So nothing
//! here may depend on one of them.

#![allow(missing_docs, reason = "not published; the names and the units say it")]

mod cases;
mod check;
mod host;
mod loops;
mod measure;
mod network;
pub mod openblas;
mod row;
mod start;
mod subject;

use std::process::ExitCode;
use std::time::Duration;

pub use cases::{BATCH, CASES, CLASSES, Event, HIDDEN, INPUTS, PLACES, RATE, Way, Work, events};
use host::Host;
use row::{Outcome, Row};
pub use subject::{About, Result, Subject, Timed};

const USAGE: &str = "\
options: [--json] [--list] [--exact] [--bare] [--seconds N] [PART OF A NAME]…
  --json       one JSON object a line
  --list       only names the cases
  --exact      the whole name is meant
  --bare       without what the host can do
  --seconds N  the time a case may take, about (1.5)";

struct Options {
    is_json: bool,
    lists: bool,
    is_exact: bool,
    is_bare: bool,
    is_first_result: bool,
    budget: Duration,
    names: Vec<String>,
}

fn options() -> Result<Options> {
    let mut options = Options {
        is_json: false,
        lists: false,
        is_exact: false,
        is_bare: false,
        is_first_result: false,
        budget: Duration::from_millis(1500),
        names: Vec::new(),
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => options.is_json = true,
            "--list" => options.lists = true,
            "--exact" => options.is_exact = true,
            "--bare" => options.is_bare = true,
            start::FIRST_RESULT => options.is_first_result = true,
            "--seconds" => {
                let seconds: f64 = args.next().ok_or(USAGE)?.parse()?;
                options.budget = Duration::try_from_secs_f64(seconds)?;
            }
            // `cargo bench` adds this argument.
            "--bench" => {}
            _ if arg.starts_with('-') => return Err(USAGE.into()),
            _ => options.names.push(arg),
        }
    }
    Ok(options)
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        let is_meant = |wanted: &String| match self.is_exact {
            true => name == wanted,
            false => name.contains(wanted.as_str()),
        };
        self.names.is_empty() || self.names.iter().any(is_meant)
    }
}

/// Measures the cases of the command line with the subject that `open` returns.
pub fn main(open: fn() -> Result<Box<dyn Subject>>) -> ExitCode {
    // `cargo test --benches` only checks that the bench starts.
    if std::env::args().any(|arg| arg == "--test") {
        return ExitCode::SUCCESS;
    }
    match options().and_then(|options| run(&options, open)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether nothing failed.
fn run(options: &Options, open: fn() -> Result<Box<dyn Subject>>) -> Result<bool> {
    if options.is_first_result {
        start::first_result(&*open()?)?;
        return Ok(true);
    }
    let chosen: Vec<_> = CASES
        .into_iter()
        .filter(|(name, _)| options.wants(name))
        .collect();
    if chosen.is_empty() {
        return Err("no case has such a name; `--list` names them".into());
    }
    if options.lists {
        for (name, _) in chosen {
            println!("{name}");
        }
        return Ok(true);
    }
    let subject = open()?;
    let about = subject.about();
    let host = Host::new();
    if !options.is_json {
        println!("{}: {} ({})", about.by, about.adapter, about.driver);
        println!("{}", row::header());
    }
    let mut is_good = true;
    for (case, work) in chosen {
        let beside = Some(&host).filter(|_| !options.is_bare);
        let outcome = match measure::measure(&work, &*subject, beside, options.budget) {
            Ok(Some(figures)) => Outcome::Measured(figures),
            Ok(None) => Outcome::Absent,
            Err(error) => Outcome::Failed(error.to_string()),
        };
        is_good &= !matches!(outcome, Outcome::Failed(_));
        let row = Row {
            case,
            work,
            about: &about,
            outcome,
        };
        match options.is_json {
            true => println!("{}", row.json()),
            false => println!("{}", row.text()),
        }
    }
    Ok(is_good)
}
