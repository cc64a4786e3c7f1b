//! Learns to read handwritten digits: a network of two layers on 1,797 real images, a fifth of them
//! held out. After the first epoch it creates no more buffers.
//!
//! ```text
//! cargo run --release --example demo
//! ```
//!
//! `LAPIDARY_ADAPTER=cpu` (or a part of a name, or an index) chooses the adapter. The last line is
//! for programs.

mod digits;
mod network;
mod picture;

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use digits::{CLASSES, Digits, PIXELS, WHITE};
use lapidary::{DType, Gpu, Options, Tensor, stats::MemoryStats};
use network::Network;

const SEED: u64 = 1998;
const HIDDEN: usize = 128;
const BATCH: usize = 64;
const EPOCHS: usize = 30;
/// The learning rate of the first epoch; it falls linearly to 0.
const RATE: f64 = 0.4;
const LEAST_ACCURACY: f32 = 0.97;

fn main() -> ExitCode {
    demo().unwrap_or_else(|error| {
        eprintln!("demo: failed: {error}");
        ExitCode::FAILURE
    })
}

fn demo() -> Result<ExitCode, Box<dyn Error>> {
    let gpu = Gpu::open(Options::from_env()?)?;
    let digits = Digits::load()?;
    let mut random = fastrand::Rng::with_seed(SEED);
    let (train, test) = digits.split(digits.len() / 5, &mut random);
    println!(
        "{} images to learn from, {} held out, on {} ({})\n",
        train.len(),
        test.len(),
        gpu.caps().name,
        gpu.caps().backend,
    );
    let caption = |index: usize| train.labels[index].to_string();
    println!("{}", picture::images(&train, &[0, 1, 2, 3, 4], caption));

    let start = Instant::now();
    let trained = Trained::new(&gpu, &train, &test, &mut random)?;
    let seconds = start.elapsed().as_secs_f32();

    println!("\n{EPOCHS} epochs in {seconds:.1} s; the loss of each step:\n");
    println!("{}", example_parts::curve(&trained.losses));
    println!("The images held out:\n");
    println!("{}", picture::confusion(&test.labels, &trained.read));
    let mut misread = misread(&test, &trained.read);
    misread.truncate(5);
    let caption = |index: usize| format!("{}, read as {}", test.labels[index], trained.read[index]);
    println!("{}", picture::images(&test, &misread, caption));
    println!("{}", trained.memory);
    Ok(verdict(&trained))
}

/// Checks the promises, and prints the line for programs.
fn verdict(trained: &Trained) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    if trained.accuracy < LEAST_ACCURACY {
        eprintln!("demo: failed: the accuracy is below {LEAST_ACCURACY}");
        code = ExitCode::FAILURE;
    }
    if trained.buffers_after_first_epoch > 0 {
        eprintln!("demo: failed: buffers were created after the first epoch");
        code = ExitCode::FAILURE;
    }
    let memory = &trained.memory;
    println!(
        "demo: accuracy={:.3} buffers_after_first_epoch={} peak_reserved_bytes={} \
         peak_live_bytes={} adapter={:?}",
        trained.accuracy,
        trained.buffers_after_first_epoch,
        memory.reserved_bytes.peak,
        memory.live_bytes.peak,
        memory.adapter,
    );
    code
}

/// The results of the training.
struct Trained {
    /// The loss of each step.
    losses: Vec<f32>,
    /// The digits that the network finally reads in the held-out images.
    read: Vec<u32>,
    /// The share of held-out images that it reads correctly.
    accuracy: f32,
    buffers_after_first_epoch: u64,
    memory: MemoryStats,
}

impl Trained {
    fn new(
        gpu: &Gpu,
        train: &Digits,
        test: &Digits,
        random: &mut fastrand::Rng,
    ) -> lapidary::Result<Trained> {
        let mut network = Network::new(gpu, [PIXELS, HIDDEN, CLASSES], SEED)?;
        let (images, targets) = upload(gpu, train)?;
        let (test_images, _) = upload(gpu, test)?;

        // The losses stay on the device and are read once an epoch, so no step waits for its own.
        let steps = train.len().div_ceil(BATCH);
        let epoch_losses = gpu.zeros(&[steps], DType::F32)?.named("losses");
        let mut order: Vec<u32> = (0..train.len() as u32).collect();
        let mut losses = Vec::new();
        let mut read = Vec::new();
        let mut buffers_after_first = 0;
        for epoch in 0..EPOCHS {
            let rate = RATE * (1.0 - epoch as f64 / EPOCHS as f64);
            random.shuffle(&mut order);
            let shuffled = gpu.tensor(&order, &[order.len()])?.named("order");
            for step in 0..steps {
                let first = step * BATCH;
                let batch = shuffled.narrow(0, first, BATCH.min(order.len() - first))?;
                let x = images.index_select(0, &batch)?;
                let y = targets.index_select(0, &batch)?;
                let loss = network.learn(&x, &y, rate)?;
                epoch_losses.narrow(0, step, 1)?.copy_(&loss)?;
            }
            losses.extend(epoch_losses.to_vec::<f32>()?);
            read = network.classify(&test_images)?.to_vec::<u32>()?;
            if epoch == 0 {
                buffers_after_first = gpu.memory().stats().buffers_created;
            }
            progress(epoch, &losses[epoch * steps..], test, &read);
        }
        let memory = gpu.memory().stats();
        Ok(Trained {
            losses,
            accuracy: 1.0 - misread(test, &read).len() as f32 / test.len() as f32,
            read,
            buffers_after_first_epoch: memory.buffers_created - buffers_after_first,
            memory,
        })
    }
}

/// Images as numbers from 0 to 1, and a one-hot row for each digit. The upload sends bytes; the
/// device converts them to floats.
fn upload(gpu: &Gpu, digits: &Digits) -> lapidary::Result<(Tensor, Tensor)> {
    let pixels = gpu.tensor(&digits.pixels, &[digits.len(), PIXELS])?;
    let images = (pixels.cast(DType::F32)? / f32::from(WHITE))?;
    let labels = gpu.tensor(&digits.labels, &[digits.len()])?;
    let targets = gpu.eye(CLASSES, DType::F32)?.index_select(0, &labels)?;
    Ok((images.named("images"), targets.named("targets")))
}

/// The images that were read as another digit.
fn misread(digits: &Digits, read: &[u32]) -> Vec<usize> {
    let wrong = |index: &usize| digits.labels[*index] != read[*index];
    (0..digits.len()).filter(wrong).collect()
}

fn progress(epoch: usize, losses: &[f32], test: &Digits, read: &[u32]) {
    let loss = losses.iter().sum::<f32>() / losses.len() as f32;
    let wrong = misread(test, read).len();
    println!(
        "epoch {:>2}  loss {loss:.4}  {wrong:>3} of {} misread {}",
        epoch + 1,
        test.len(),
        picture::marks(wrong),
    );
}
