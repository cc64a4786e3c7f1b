//! Training with batches that take long to read: with a loader, without one, and with a batch that
//! is on the device already.
//!
//! ```text
//! cargo bench --bench loader
//! ```
//!
//! Steps a second of a perceptron with two layers. Reading is a pause, as for a disk or a network,
//! so that it takes no core from a software adapter. The rows run in turns, so that noise hits all.

use std::thread;
use std::time::{Duration, Instant};

use lapidary::loader::{LoaderOptions, LoaderStats, PrepareError, Uploader};
use lapidary::{DType, Gpu, Options, Result, Tensor};

const ROWS: usize = 64;
const INPUTS: usize = 784;
const HIDDEN: usize = 128;
const CLASSES: usize = 10;
const STEPS: u32 = 60;
const ROUNDS: u32 = 5;
/// Pauses of reading a batch.
const PAUSES_MS: [u64; 2] = [2, 8];
/// Threads and batches ahead of the loaders.
const LOADERS: [(usize, usize); 3] = [(1, 2), (2, 4), (4, 8)];

struct Network {
    gpu: Gpu,
    weights: [Tensor; 2],
}

impl Network {
    fn new(gpu: &Gpu) -> Result<Self> {
        let normal = |shape: [usize; 2], seed| {
            let weights = gpu.rand_normal(&shape, 0.0, 0.05, seed, DType::F32)?;
            weights.requires_grad()
        };
        Ok(Network {
            gpu: gpu.clone(),
            weights: [normal([INPUTS, HIDDEN], 1)?, normal([HIDDEN, CLASSES], 2)?],
        })
    }

    fn learn(&self, (x, labels): &(Tensor, Tensor)) -> Result<()> {
        let [first, second] = &self.weights;
        let logits = x.matmul(first)?.relu()?.matmul(second)?;
        let loss = logits.cross_entropy(labels, None, Default::default())?;
        let gradients = loss.backward()?;
        let _no_grad = self.gpu.no_grad();
        for weight in &self.weights {
            if let Some(gradient) = gradients.get(weight) {
                weight.sub_(&(gradient * 0.05)?)?;
            }
        }
        // A loop that shows its loss waits for each step.
        loss.item::<f32>().map(drop)
    }
}

/// Reads a batch, and uploads it.
fn read(
    pause: Duration,
    uploader: &Uploader<'_>,
    step: u32,
) -> Result<(Tensor, Tensor), PrepareError> {
    thread::sleep(pause);
    let pixels: Vec<u8> = (0..ROWS * INPUTS)
        .map(|at| (at as u32 + step) as u8)
        .collect();
    let labels: Vec<u32> = (0..ROWS as u32)
        .map(|row| (row + step) % CLASSES as u32)
        .collect();
    let pixels = uploader.tensor(&pixels, &[ROWS, INPUTS])?;
    let x = (pixels.cast(DType::F32)? / 255.0)?;
    Ok((x, uploader.tensor(&labels, &[ROWS])?))
}

/// The time of all steps, and the statistics of the loader.
fn run(gpu: &Gpu, pause_ms: u64, options: LoaderOptions) -> Result<(Duration, LoaderStats)> {
    let network = Network::new(gpu)?;
    let pause = Duration::from_millis(pause_ms);
    let mut loader = gpu.loader(0..STEPS, options, move |uploader, step| {
        read(pause, uploader, step)
    })?;
    let start = Instant::now();
    for batch in &mut loader {
        network.learn(&batch?)?;
    }
    Ok((start.elapsed(), loader.stats()))
}

/// The time of all steps with one batch that is there already.
fn run_resident(gpu: &Gpu) -> Result<Duration> {
    let network = Network::new(gpu)?;
    let options = LoaderOptions::default();
    let mut loader = gpu.loader(0..1, options, |uploader, step| {
        read(Duration::ZERO, uploader, step)
    })?;
    let mut spent = Duration::ZERO;
    if let Some(batch) = loader.next() {
        let batch = batch?;
        let start = Instant::now();
        for _ in 0..STEPS {
            network.learn(&batch)?;
        }
        spent = start.elapsed();
    }
    Ok(spent)
}

fn main() -> Result<()> {
    let gpu = Gpu::open(Options::from_env()?)?;
    println!(
        "on {}: steps a second, the best of {ROUNDS}\n",
        gpu.caps().name
    );
    println!(
        "| reading | batches from | steps/s | of resident | waits of {STEPS} | device waits |"
    );
    println!("| --- | --- | ---: | ---: | ---: | ---: |");
    for pause_ms in PAUSES_MS {
        let mut resident = run_resident(&gpu)?;
        let mut best: Vec<(Duration, LoaderStats)> = Vec::new();
        let without = LoaderOptions {
            threads: 0,
            ..Default::default()
        };
        let with = LOADERS.map(|(threads, batches_ahead)| LoaderOptions {
            threads,
            batches_ahead,
            ..Default::default()
        });
        let rows = || std::iter::once(without).chain(with);
        for round in 0..ROUNDS {
            resident = resident.min(run_resident(&gpu)?);
            for (row, options) in rows().enumerate() {
                let got = run(&gpu, pause_ms, options)?;
                match best.get_mut(row) {
                    Some(best) if best.0 > got.0 => *best = got,
                    None if round == 0 => best.push(got),
                    _ => {}
                }
            }
        }
        let per_second = |time: Duration| f64::from(STEPS) / time.as_secs_f64();
        println!(
            "| – | the device | {:.0} | 100 % | – | – |",
            per_second(resident)
        );
        for (options, (time, stats)) in rows().zip(best) {
            let from = match options.threads {
                0 => "the loop itself".into(),
                threads => format!(
                    "a loader, threads {threads}, ahead {}",
                    options.batches_ahead
                ),
            };
            let share = 100.0 * resident.as_secs_f64() / time.as_secs_f64();
            println!(
                "| {pause_ms} ms | {from} | {:.0} | {share:.0} % | {} | {} |",
                per_second(time),
                stats.waits,
                stats.device_waits,
            );
        }
    }
    Ok(())
}
