//! The language model of `examples/train`, trained by all ranks together. It can be killed at any
//! time, and goes on from its last state file.
//!
//! ```text
//! cargo build --release --manifest-path examples/Cargo.toml --package lapidary-mpi --example train
//! mpirun -n 4 examples/target/release/examples/train --steps 240 --state train.state
//! ```
//!
//! A step has a batch of 8 sequences, and each rank computes an equal part of them. Rank 0 writes
//! the state file every few steps. If the file is there at the start, rank 0 reads it, and gives it
//! to the others: only rank 0 needs the file. Each rank reads the text by itself, and all must have
//! the same. The last line is for programs.

use std::error::Error;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use lapidary::files::by_name;
use lapidary::{Gpu, Options, Tensor};
use lapidary_mpi::{Ranks, RanksOptions, Replica};
use train::{BATCH, Batch, Order, SEED, Text, Training, batches};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str = "\
usage: mpirun -n RANKS train [FLAG…]
  --steps N        train for N steps (default 240)
  --state FILE     go on from this file if it is there, and write it (default train.state)
  --every N        write it every N steps (default 20)
  --timeout S      give up if a rank does not answer for S seconds (default 300)
  --folder FOLDER  learn from the .rs, .md and .txt files of this folder";

/// Names in the state file, beside those of the training.
const LOSSES: &str = "losses";
const STEPS: &str = "steps";

struct Flags {
    steps: usize,
    state: PathBuf,
    every: usize,
    timeout_s: u64,
    folder: Option<PathBuf>,
}

impl Flags {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Flags> {
        let mut flags = Flags {
            steps: 240,
            state: "train.state".into(),
            every: 20,
            timeout_s: 300,
            folder: None,
        };
        while let Some(flag) = arguments.next() {
            let value = arguments.next();
            let value = value.ok_or_else(|| format!("{flag} needs a value\n{USAGE}"))?;
            let number = || match value.parse() {
                Ok(number) if number > 0 => Ok(number),
                _ => Err(format!("{flag} does not take `{value}`\n{USAGE}")),
            };
            match flag.as_str() {
                "--steps" => flags.steps = number()? as usize,
                "--every" => flags.every = number()? as usize,
                "--timeout" => flags.timeout_s = number()?,
                "--state" => flags.state = value.into(),
                "--folder" => flags.folder = Some(value.into()),
                _ => return Err(format!("there is no flag `{flag}`\n{USAGE}").into()),
            }
        }
        Ok(flags)
    }
}

fn main() -> ExitCode {
    let flags = match Flags::parse(std::env::args().skip(1)) {
        Ok(flags) => flags,
        Err(error) => {
            eprintln!("train: {error}");
            return ExitCode::FAILURE;
        }
    };
    let options = RanksOptions {
        timeout: Duration::from_secs(flags.timeout_s),
    };
    match lapidary_mpi::run(options, |ranks| train(ranks, &flags)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("train: {error}");
            ExitCode::FAILURE
        }
    }
}

fn train(ranks: &Ranks, flags: &Flags) -> Result<()> {
    let gpu = ranks.open(Options::from_env()?)?;
    let text = Text::load(flags.folder.as_deref())?;
    check_same_text(ranks, &gpu, &text)?;
    let part = part_of(ranks)?;
    let mut training = Training::plain(&gpu, flags.steps, SEED)?;
    let mut losses = restore(ranks, &gpu, &mut training, flags)?;
    let own: Vec<Tensor> = training.parameters().into_iter().cloned().collect();
    let own: Vec<&Tensor> = own.iter().collect();
    let mut replica = Replica::new(ranks, &own, Default::default())?;
    let begun = training.done();
    let order = Order {
        seed: SEED,
        skipped: begun,
        part,
    };
    for rank in (0..ranks.count()).filter(|_| ranks.rank() == 0) {
        println!("{}", ranks.name_of(rank).unwrap_or_default());
    }
    let start = Instant::now();
    for batch in batches(&gpu, &text.learned, order, 1)?.take(flags.steps - begun) {
        losses.push(step(ranks, &mut replica, &mut training, &batch?)?);
        let done = training.done();
        if ranks.rank() == 0 {
            println!("step {done:>4}  loss {:.6}", losses[done - 1]);
            if done % flags.every == 0 || done == flags.steps {
                save(&gpu, &training, &losses, flags)?;
            }
        }
    }
    if ranks.rank() == 0 {
        let steps = flags.steps - begun;
        let bits = losses.iter().flat_map(|loss| loss.to_bits().to_ne_bytes());
        println!(
            "train: ranks={} steps={} from={begun} steps_per_s={:.2} first_loss={:.3} \
             last_loss={:.3} losses_crc={:08x}",
            ranks.count(),
            flags.steps,
            steps as f64 / start.elapsed().as_secs_f64(),
            losses[0],
            losses[flags.steps - 1],
            crc32fast::hash(&bits.collect::<Vec<_>>()),
        );
    }
    Ok(())
}

/// The sequences of each batch that this rank computes.
fn part_of(ranks: &Ranks) -> Result<Range<usize>> {
    let (rank, count) = (ranks.rank(), ranks.count());
    if !BATCH.is_multiple_of(count) {
        let reason = format!("{count} ranks cannot share {BATCH} sequences: start 1, 2, 4 or 8");
        return Err(reason.into());
    }
    let len = BATCH / count;
    Ok(rank * len..(rank + 1) * len)
}

/// Ranks on machines with other files would learn from something else.
fn check_same_text(ranks: &Ranks, gpu: &Gpu, text: &Text) -> Result<()> {
    let own = crc32fast::hash(&text.learned);
    let all = ranks
        .all_gather(&gpu.tensor(&[own], &[1])?, 0)?
        .to_vec::<u32>()?;
    match all.iter().position(|other| *other != all[0]) {
        None => Ok(()),
        Some(rank) => Err(format!(
            "rank {rank} has another text than rank 0: give a `--folder` with the same files on \
             all machines"
        )
        .into()),
    }
}

/// A step of all ranks. Returns the mean of their losses.
fn step(
    ranks: &Ranks,
    replica: &mut Replica<'_>,
    training: &mut Training,
    batch: &Batch,
) -> Result<f32> {
    let backward = replica.backward(|_| training.loss(batch))?;
    training.apply(backward.gradients)?;
    let mean = ranks.all_reduce(&backward.loss, lapidary::devices::Reduce::Mean)?;
    Ok(mean.item()?)
}

/// The file has the old state or the new one, whenever this is killed.
fn save(gpu: &Gpu, training: &Training, losses: &[f32], flags: &Flags) -> Result<()> {
    let losses = gpu.tensor(losses, &[losses.len()])?;
    let steps = gpu.tensor(&[flags.steps as u32], &[1])?;
    let state = training.state()?;
    let mut named: Vec<(&str, &Tensor)> = vec![(LOSSES, &losses), (STEPS, &steps)];
    named.extend(by_name(&state));
    Ok(gpu.files().save_state(&flags.state, &named)?)
}

/// Rank 0 reads the state, if there is one, and gives it to all. Returns the losses on rank 0.
fn restore(ranks: &Ranks, gpu: &Gpu, training: &mut Training, flags: &Flags) -> Result<Vec<f32>> {
    let is_first = ranks.rank() == 0;
    let is_there = is_first && flags.state.exists();
    let is_there = gpu.tensor(&[u32::from(is_there)], &[1])?;
    if ranks.broadcast(0, &is_there)?.item::<u32>()? == 0 {
        return Ok(Vec::new());
    }
    let mut losses = Vec::new();
    if is_first {
        let saved = gpu.files().load_state(&flags.state)?;
        let steps = saved.get(STEPS)?.item::<u32>()? as usize;
        if steps != flags.steps {
            return Err(format!(
                "{} is of a training of {steps} steps, and this one has {}: give `--steps {steps}` \
                 or another `--state`",
                flags.state.display(),
                flags.steps
            )
            .into());
        }
        training.load_state(|name| saved.get(name))?;
        losses = saved.get(LOSSES)?.to_vec()?;
    }
    let mut arrived = Vec::new();
    for (name, tensor) in training.state()? {
        arrived.push((name, ranks.broadcast(0, &tensor)?));
    }
    if !is_first {
        training.load_state(|name| {
            let found = arrived.iter().find(|(known, _)| known == name);
            Ok(found.expect("all ranks have the same names").1.clone())
        })?;
        losses.resize(training.done(), 0.0);
    }
    Ok(losses)
}
