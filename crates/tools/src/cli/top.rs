//! `lapidary top`: the memory of a running program that serves it, live.

use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use lapidary_core::units::Bytes;
use lapidary_tools::Error;
use lapidary_tools::monitor::Monitor;
use lapidary_tools::socket::Remote;

use crate::cli::failure::{Failure, Result};
use crate::cli::style::{clean, clean_path};
use crate::cli::view::write_file;

/// Watch the memory of a running program that serves it (`lapidary_tools::socket::serve`)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The program's socket or process id. Without it: the only program of yours that serves
    path: Option<PathBuf>,
    /// Milliseconds between two samples
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    every: u64,
    /// Print a line of JSON for each sample instead
    #[arg(long)]
    json: bool,
    /// End after this many samples instead of never; only with --json
    #[arg(long, value_name = "SAMPLES", requires = "json")]
    count: Option<u64>,
    /// Write a snapshot of this moment to a file instead; `lapidary view` shows it
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    snapshot: Option<PathBuf>,
}

pub(crate) fn top(args: &Args, out: &mut dyn Write) -> Result {
    let path = find(args.path.as_deref())?;
    let mut remote = Remote::connect(&path)?;
    let every = Duration::from_millis(args.every);
    if let Some(file) = &args.snapshot {
        let snapshot = remote.snapshot()?;
        return write_file(file, |to| snapshot.write_json(to));
    }
    if args.json {
        return print_samples(&mut remote, every, args.count, out);
    }
    if !io::stdout().is_terminal() {
        return Err(Failure::new(
            "the monitor needs a terminal; `lapidary top --json` prints samples for programs",
        ));
    }
    // The first answer comes before the terminal changes its mode, so an error stays readable.
    let first = remote.memory()?;
    let mut monitor = Monitor::new().of_program(&name_of(&remote, &path));
    monitor.push(first);
    let remote = RefCell::new(remote);
    let sample = || {
        let memory = remote.borrow_mut().memory();
        memory.map_err(|error| why(error, &path))
    };
    let save = || {
        let snapshot = remote.borrow_mut().snapshot();
        let snapshot = snapshot.map_err(|error| why(error, &path))?;
        let file = format!("lapidary-{}.json", snapshot.taken_unix_ms);
        let saved = snapshot.save(&file);
        saved.map_err(|error| format!("{file}: {error}"))?;
        Ok(format!("wrote {file}: see `lapidary view {file}`"))
    };
    let shown = monitor.run_saving(every, sample, save);
    shown.map_err(|error| Failure::new(format!("the terminal cannot be used: {error}")))
}

/// The program's name, arguments, and process, which differs where the others are the same.
fn name_of(remote: &Remote, path: &Path) -> String {
    let socket = path.file_stem().unwrap_or_default().to_string_lossy();
    let (program, arguments) = (clean(remote.program()), clean(remote.arguments()));
    match arguments.is_empty() {
        true => format!("{program} ({socket})"),
        false => format!("{program} {arguments} ({socket})"),
    }
}

/// The error without the socket's path, because one line shows both.
fn why(error: Error, path: &Path) -> String {
    match error {
        Error::Socket { reason } => {
            let path = format!("{}: ", path.display());
            reason.strip_prefix(&path).unwrap_or(&reason).to_owned()
        }
        other => other.to_string(),
    }
}

fn print_samples(
    remote: &mut Remote,
    every: Duration,
    count: Option<u64>,
    out: &mut dyn Write,
) -> Result {
    let mut left = count;
    while left != Some(0) {
        let stats = remote.memory()?;
        let line = serde_json::to_string(&stats).map_err(io::Error::from)?;
        writeln!(out, "{line}")?;
        out.flush()?;
        left = left.map(|left| left - 1);
        if left != Some(0) {
            thread::sleep(every);
        }
    }
    Ok(())
}

/// The path of the socket to connect to.
fn find(named: Option<&Path>) -> Result<PathBuf> {
    let served = Remote::find();
    if let Some(named) = named {
        let pid = named.to_str().and_then(|text| text.parse::<u32>().ok());
        let Some(pid) = pid.filter(|_| !named.exists()) else {
            return Ok(named.to_owned());
        };
        let found = served.into_iter().find(|served| served.pid == pid);
        let found = found.map(|served| served.path);
        return found
            .ok_or_else(|| Failure::new(format!("process {pid} serves no statistics to you")));
    }
    match &served[..] {
        [] => Err(Failure::new(
            "no program of yours serves its memory: in the program, keep what \
             `lapidary_tools::socket::serve(&gpu, None)?` returns (feature `serve`)",
        )),
        [only] => Ok(only.path.clone()),
        several => {
            let names = several.iter().map(|served| {
                let mut line = format!("  lapidary top {}", clean_path(&served.path));
                if let Ok(mut remote) = Remote::connect(&served.path) {
                    if let Ok(stats) = remote.memory() {
                        let name = name_of(&remote, &served.path);
                        let (live, adapter) = (Bytes(stats.live_bytes.now), clean(&stats.adapter));
                        line += &format!("    {name}: {live} live on {adapter}");
                    }
                }
                line
            });
            let names: Vec<String> = names.collect();
            Err(Failure::new(format!(
                "several programs serve; which?\n{}",
                names.join("\n")
            )))
        }
    }
}
