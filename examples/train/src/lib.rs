//! A small language model learns to write documentation, within as much memory as you give it.
//!
//! ```text
//! cargo run --release --package train
//! cargo run --release --package train -- --budget 25
//! cargo run --release --package train -- --compare
//! ```
//!
//! It learns from the documentation of lapidary and its dependencies, byte by byte, with recorded
//! gradients. It writes the model into a folder as Hugging Face's programs read it, loads it again,
//! and lets it write. The flags are habits that save memory; `--compare` shows the effect of each.
//! `LAPIDARY_ADAPTER=cpu` (or a part of a name, or an index) chooses the adapter. The last line is
//! for programs.

mod compare;
mod data;
mod flags;
mod folder;
mod measure;
mod model;
mod report;
mod sample;
mod state;
mod training;

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

pub use data::{BATCH, Batch, Order, Text, batches};
use flags::Flags;
use lapidary::units::Bytes;
use lapidary::{Gpu, Options, Result, Tensor};
use measure::Measured;
use model::Model;
pub use training::Training;

/// Of the model's first parameters, and of the order of the text.
pub const SEED: u64 = 2017;
const STEPS: usize = 240;
const STEPS_TO_COMPARE: usize = 5;
/// Steps that are measured to find a budget.
const STEPS_TO_MEASURE: usize = 3;
/// Steps between two lines of progress.
const STEPS_A_LINE: usize = 20;

/// Trains as the arguments say, and prints what came of it.
pub fn program(arguments: impl Iterator<Item = String>) -> ExitCode {
    train(arguments).unwrap_or_else(|error| {
        eprintln!("train: failed: {error}");
        ExitCode::FAILURE
    })
}

fn train(arguments: impl Iterator<Item = String>) -> std::result::Result<ExitCode, Box<dyn Error>> {
    let flags = Flags::parse(arguments)?;
    // A training takes minutes, so a wrong path is an error now.
    flags.make_out()?;
    let gpu = Gpu::open(Options::from_env()?)?;
    let text = Text::load(flags.folder.as_deref())?;
    println!(
        "{} of documentation to learn from, {} held out, on {} ({})\n",
        Bytes(text.learned.len() as u64),
        Bytes(text.held_out.len() as u64),
        gpu.caps().name,
        gpu.caps().backend,
    );
    if flags.compare {
        let steps = flags.steps.unwrap_or(STEPS_TO_COMPARE);
        return Ok(compare::habits(&gpu, &text, steps)?);
    }
    let measured = match flags.budget_percent {
        Some(percent) => Some(within(&gpu, &text, &flags, percent)?),
        None => None,
    };
    let start = Instant::now();
    let steps = flags.steps.unwrap_or(STEPS);
    let (model, losses) = learn(&gpu, &text, &flags, steps)?;
    println!(
        "\n{steps} steps in {:.0} s; the loss of each, in nats a byte:\n\n{}",
        start.elapsed().as_secs_f64(),
        example_parts::curve(&losses)
    );
    report::print_memory(&gpu);
    let is_equal = measured.map(|measured| measured.begins_as(&losses));
    report::finish(&gpu, &text, &flags, &model, &losses, is_equal)
}

/// Sets the budget that the flags want, by the memory of the first steps without one. Returns what
/// those took.
fn within(gpu: &Gpu, text: &Text, flags: &Flags, percent: u64) -> Result<Measured> {
    let measured = Measured::steps(gpu, text, flags.habits, None, STEPS_TO_MEASURE)?;
    gpu.memory().trim(0)?;
    let budget = measured.budget(percent);
    gpu.memory().set_budget(budget)?;
    println!(
        "A step takes {} beside {} of parameters and optimizer. {percent} % of it make a budget of \
         {}.\n",
        Bytes(measured.peak_live_bytes - measured.fixed_bytes),
        Bytes(measured.fixed_bytes),
        Bytes(budget.device_bytes.unwrap_or(0)),
    );
    Ok(measured)
}

/// Trains a model. Returns it with the loss of each step.
fn learn(gpu: &Gpu, text: &Text, flags: &Flags, steps: usize) -> Result<(Model, Vec<f32>)> {
    let mut training = Training::new(gpu, flags.habits, steps, SEED)?;
    gpu.memory().reset_peaks();
    let (mut losses, mut unread, mut start) = (Vec::new(), Vec::new(), Instant::now());
    let mut batches = batches(gpu, &text.learned, Order::default(), flags.threads)?;
    for (number, batch) in (1..=steps).zip(&mut batches) {
        unread.push(training.step(&batch?)?);
        // Reading waits for the device.
        if number % STEPS_A_LINE == 0 || number == steps {
            let read = read_losses(&unread)?;
            println!(
                "step {number:>4}  loss {:.3}  {:.2} steps/s",
                mean(&read),
                read.len() as f64 / start.elapsed().as_secs_f64(),
            );
            losses.extend(read);
            unread.clear();
            start = Instant::now();
        }
    }
    println!("{}", batches.stats());
    Ok((training.model, losses))
}

/// The numbers of tensors of shape `[]`, read at once.
fn read_losses(losses: &[Tensor]) -> Result<Vec<f32>> {
    Tensor::stack(&losses.iter().collect::<Vec<_>>(), 0)?.to_vec()
}

fn mean(losses: &[f32]) -> f32 {
    losses.iter().sum::<f32>() / losses.len() as f32
}
