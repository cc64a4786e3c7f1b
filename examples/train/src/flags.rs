//! The arguments of the program.

use std::path::PathBuf;

use crate::data::{BATCH, THREADS, root};
use crate::training::Habits;

const USAGE: &str = "\
usage: train [FLAG…]
  --steps N        train for N steps (default 240; 5 with --compare)
  --budget PERCENT leave a step PERCENT of the memory that it takes, 10 to 100
  --checkpoint     keep only the input of each block, and compute the rest again
  --accumulate N   take each batch in N parts: 2, 4 or 8
  --f16            compute in f16, and scale the loss
  --bf16-state     keep the optimizer's state in bf16
  --threads N      prepare batches on N threads (default 1; 0 for none)
  --compare        train no model, but compare all habits in a table
  --out FOLDER     write the model there (default target/train)
  --folder FOLDER  learn from the .rs, .md and .txt files of this folder";

pub(crate) struct Flags {
    pub(crate) steps: Option<usize>,
    pub(crate) budget_percent: Option<u64>,
    pub(crate) habits: Habits,
    pub(crate) threads: usize,
    pub(crate) compare: bool,
    pub(crate) out: PathBuf,
    pub(crate) folder: Option<PathBuf>,
}

impl Flags {
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Flags, String> {
        let mut flags = Flags {
            steps: None,
            budget_percent: None,
            habits: Habits::PLAIN,
            threads: THREADS,
            compare: false,
            out: target_folder().join("train"),
            folder: None,
        };
        while let Some(flag) = arguments.next() {
            let mut value = || {
                let value = arguments.next();
                value.ok_or_else(|| format!("{flag} needs a value\n{USAGE}"))
            };
            match flag.as_str() {
                "--checkpoint" => flags.habits.checkpoint = true,
                "--f16" => flags.habits.f16 = true,
                "--bf16-state" => flags.habits.bf16_state = true,
                "--compare" => flags.compare = true,
                "--out" => flags.out = value()?.into(),
                "--folder" => flags.folder = Some(value()?.into()),
                "--steps" => flags.steps = Some(number(&flag, &value()?, |n| n >= 2)?),
                "--budget" => {
                    let percent = number(&flag, &value()?, |n| (10..=100).contains(&n))?;
                    flags.budget_percent = Some(percent as u64);
                }
                "--threads" => flags.threads = number(&flag, &value()?, |n| n <= 64)?,
                "--accumulate" => {
                    flags.habits.parts = number(&flag, &value()?, |n| BATCH.is_multiple_of(n))?;
                }
                _ => return Err(format!("there is no flag `{flag}`\n{USAGE}")),
            }
        }
        if flags.compare && (flags.habits != Habits::PLAIN || flags.budget_percent.is_some()) {
            return Err(format!(
                "--compare has all habits and budgets: give none besides\n{USAGE}"
            ));
        }
        Ok(flags)
    }

    /// Makes the model's folder, unless it is there.
    pub(crate) fn make_out(&self) -> Result<(), String> {
        std::fs::create_dir_all(&self.out)
            .map_err(|error| format!("--out {}: {error}", self.out.display()))
    }
}

fn target_folder() -> PathBuf {
    let root = root();
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root.join(folder),
        None => root.join("target"),
    }
}

/// The number that is the value of a flag.
fn number(flag: &str, text: &str, is_good: fn(usize) -> bool) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if is_good(number) => Ok(number),
        _ => Err(format!("{flag} does not take `{text}`\n{USAGE}")),
    }
}
