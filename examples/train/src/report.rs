//! What came of a training: where the memory was, what the model writes, and whether all promises
//! were kept.

use std::cmp::Reverse;
use std::error::Error;
use std::process::ExitCode;

use lapidary::units::Bytes;
use lapidary::{Gpu, Result, Tensor};

use crate::data::{Batch, Order, THREADS, Text, batches};
use crate::flags::Flags;
use crate::model::{LETTERS, Model, Pass};
use crate::{STEPS, mean, read_losses, sample};

/// Lines of the program that are listed with their memory.
const HOLDERS: usize = 6;
/// Batches of held-out text.
const HELD_OUT_BATCHES: usize = 4;
/// The most loss on held-out text after the default steps.
const MOST_HELD_OUT_LOSS: f32 = 2.6;
const SAMPLES: usize = 3;
const SAMPLE_BYTES: usize = 160;

/// The lines that held most memory, each at its own peak.
pub(crate) fn print_memory(gpu: &Gpu) {
    let mut stats = gpu.memory().stats();
    stats.tags.sort_by_key(|of| Reverse(of.bytes.peak));
    println!(
        "At most {} at once. The lines that made most of it, each at its own peak:\n",
        Bytes(stats.live_bytes.peak)
    );
    for of in stats.tags.iter().take(HOLDERS) {
        let Some(tag) = &of.tag else { continue };
        println!("  {:>10}  {tag}", Bytes(of.bytes.peak).to_string());
    }
    println!();
}

/// Saves the model in f16, reads it back, lets it write, and checks the promises. `is_equal`:
/// whether the first losses are those without a budget, if there is one.
pub(crate) fn finish(
    gpu: &Gpu,
    text: &Text,
    flags: &Flags,
    model: &Model,
    losses: &[f32],
    is_equal: Option<bool>,
) -> std::result::Result<ExitCode, Box<dyn Error>> {
    let model = model.rounded()?;
    model.save(&flags.out)?;
    let loaded = Model::load(gpu, &flags.out)?;
    let [held_out, read_back] = [&model, &loaded].map(|model| held_out_loss(gpu, text, model));
    let (held_out, read_back) = (held_out?, read_back?);
    let is_read_back = held_out.to_bits() == read_back.to_bits();
    println!("The model is in {}. It writes:\n", flags.out.display());
    for text in sample::continued(gpu, &loaded, &text.held_out, SAMPLES, SAMPLE_BYTES)? {
        println!("  …{}\n", text.replace('\n', "\n   "));
    }
    println!(
        "Held-out text: {held_out:.3} nats a byte. One who knows nothing has {:.3}.\n",
        (LETTERS as f32).ln(),
    );
    let stats = gpu.memory().stats();
    println!(
        "train: equal={} read_back={is_read_back} steps={} first_loss={:.3} last_loss={:.3} \
         held_out_loss={held_out:.3} evicted_bytes={} recomputed_bytes={}",
        is_equal.map_or("unchecked".into(), |is_equal| is_equal.to_string()),
        losses.len(),
        losses[0],
        mean(&losses[losses.len() * 9 / 10..]),
        stats.evicted_bytes,
        stats.recomputed_bytes,
    );
    let has_learned = losses.len() < STEPS || held_out < MOST_HELD_OUT_LOSS;
    let promises = [
        (is_equal != Some(false), "the budget changed a loss"),
        (is_read_back, "the folder has another model"),
        (has_learned, "the loss on held-out text is too high"),
    ];
    let mut code = ExitCode::SUCCESS;
    for (_, fault) in promises.iter().filter(|(is_kept, _)| !is_kept) {
        eprintln!("train: failed: {fault}");
        code = ExitCode::FAILURE;
    }
    Ok(code)
}

/// The mean loss on text that was not learned from.
fn held_out_loss(gpu: &Gpu, text: &Text, model: &Model) -> Result<f32> {
    let _no_grad = gpu.no_grad();
    let batches = batches(gpu, &text.held_out, Order::default(), THREADS)?.take(HELD_OUT_BATCHES);
    let loss = |batch: Result<Batch>| {
        let batch = batch?;
        model.loss(&batch.seen, &batch.next, Pass::PLAIN)
    };
    let losses: Vec<Tensor> = batches.map(loss).collect::<Result<_>>()?;
    Ok(mean(&read_losses(&losses)?))
}
