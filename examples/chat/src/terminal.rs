//! The conversation in a terminal.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use lapidary::{Budget, Gpu};

use crate::arguments::{Arguments, bytes};
use crate::error::{Error, Result};
use crate::history;
use crate::talk::{Report, Talk};
use crate::template::Message;

const HELP: &str = "\
/back           take the last question and its answer back
/save FILE      save the conversation
/load FILE      go on with a saved one
/budget SIZE    the most memory of the device, from now on
/memory         what is where
/times          how long kernels took since the last time
/quit           end";

/// So many kinds of dispatches have their times printed.
const LONGEST: usize = 20;

/// Talks until the input ends or a line says so.
///
/// # Errors
///
/// [`Error::File`] and [`Error::History`] for the history. What happens to an answer is printed,
/// and the conversation goes on.
pub fn run(gpu: &Gpu, talk: &mut Talk, arguments: &Arguments) -> Result<()> {
    if let Some(path) = arguments.history.as_deref().filter(|path| path.exists()) {
        talk.set_messages(history::load(path)?);
        println!("{} messages from {}", talk.messages().len(), path.display());
    }
    if let (Some(system), true) = (&arguments.system, talk.messages().is_empty()) {
        talk.set_messages(vec![Message::new("system", system)]);
    }
    let saved = |talk: &Talk| match &arguments.history {
        Some(path) => history::save(path, talk.messages()),
        None => Ok(()),
    };
    match &arguments.prompt {
        Some(prompt) => {
            let answered = answer(gpu, talk, prompt);
            answered.and(saved(talk))
        }
        None => converse(gpu, talk, saved),
    }
}

/// After each line, `saved` keeps what was said: a program may be ended at any time.
fn converse(gpu: &Gpu, talk: &mut Talk, saved: impl Fn(&Talk) -> Result<()>) -> Result<()> {
    println!("Say something, or /help.");
    let failed = |cause| Error::File {
        path: "the terminal".into(),
        cause,
    };
    for line in io::stdin().lock().split(b'\n') {
        let line = line.map_err(failed)?;
        let line = String::from_utf8_lossy(&line);
        let done = match line.trim().split_once(' ').unwrap_or((line.trim(), "")) {
            ("", _) => Ok(()),
            ("/quit" | "/exit", _) => break,
            ("/help", _) => {
                println!("{HELP}");
                Ok(())
            }
            ("/back", _) => {
                match talk.go_back() {
                    Some(question) => println!("(taken back: {question})"),
                    None => println!("(nothing was said)"),
                }
                Ok(())
            }
            ("/save", path) => history::save(Path::new(path), talk.messages()),
            ("/load", path) => history::load(Path::new(path)).map(|all| talk.set_messages(all)),
            ("/budget", size) => set_budget(gpu, size),
            ("/memory", _) => {
                println!("{}", gpu.memory().stats());
                Ok(())
            }
            ("/times", _) => times(gpu),
            (command, _) if command.starts_with('/') => {
                println!("`{command}` is no command\n{HELP}");
                Ok(())
            }
            _ => answer(gpu, talk, line.trim()),
        };
        if let Err(error) = done.and_then(|()| saved(talk)) {
            eprintln!("{error}");
        }
    }
    saved(talk)
}

fn set_budget(gpu: &Gpu, size: &str) -> Result<()> {
    let reserved = gpu.memory().set_budget(Budget::device(bytes(size)?))?;
    println!("({:.1} MiB are reserved now)", mib(reserved));
    Ok(())
}

/// The first call begins to measure.
fn times(gpu: &Gpu) -> Result<()> {
    let times = gpu.kernels().times()?;
    gpu.kernels().time(true)?;
    if times.is_empty() {
        println!("(kernels are timed from now on)");
    }
    for time in times.iter().take(LONGEST) {
        println!("{time}");
    }
    Ok(())
}

fn answer(gpu: &Gpu, talk: &mut Talk, question: &str) -> Result<()> {
    let before = gpu.memory().stats().restored_bytes;
    let mut out = io::stdout();
    let (begun, mut first) = (Instant::now(), None);
    let report = talk.ask(question, |piece, _| {
        first.get_or_insert_with(|| begun.elapsed());
        // A terminal that is gone hears nothing.
        let _ = write!(out, "{piece}").and_then(|()| out.flush());
    })?;
    if report.reopened > 0 {
        println!("\n(the device was lost, and is open again)");
    }
    let whole = begun.elapsed();
    let times = [first.unwrap_or(whole), whole];
    let _ = writeln!(
        io::stdout(),
        "\n{}",
        line(gpu, talk, &report, times, before)
    );
    Ok(())
}

/// What an answer took, in one line. The times are those until its first piece, and of all.
fn line(
    gpu: &Gpu,
    talk: &Talk,
    report: &Report,
    [first, whole]: [Duration; 2],
    before: u64,
) -> String {
    let stats = gpu.memory().stats();
    let after_first = whole.saturating_sub(first).as_secs_f64();
    let rate = report.said.saturating_sub(1) as f64 / after_first.max(1e-9);
    format!(
        "[{} tokens, {rate:.1} a second; {} read in {:.2} s; {:.1} MiB reserved, {:.1} of them \
         cache, {:.1} read or restored]",
        report.said,
        report.read,
        first.as_secs_f64(),
        mib(stats.reserved_bytes.now),
        mib(talk.cache_bytes()),
        mib(stats.restored_bytes - before),
    )
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
