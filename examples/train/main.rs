//! Trains a small vision transformer on 1,797 handwritten digits, once for each habit that saves
//! memory. One table shows the memory and the cost of each.
//!
//! ```text
//! cargo run --release --example train                 # all of them, some minutes on a software adapter
//! cargo run --release --example train -- --epochs 1   # the peaks are the same after one
//! cargo run --release --example train -- recompute    # those whose names contain this
//! ```
//!
//! The forward and the backward pass are written out (`model.rs`), so that the lifetimes are
//! visible. The last line is for programs.

#[path = "../demo/digits.rs"]
mod digits;
mod learn;
mod model;

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use digits::{CLASSES, Digits, PIXELS, SIDE, WHITE};
use lapidary::units::Bytes;
use lapidary::{Budget, DType, Gpu, Options, Tensor};
use learn::{Habits, Learner};
use model::{Model, PATCH, TOKENS};

const SEED: u64 = 1998;
const BATCH: usize = 128;
const EPOCHS: usize = 20;
const RATE: f32 = 5e-3;
/// The least accuracy on held-out images after the default epochs, for every habit.
const LEAST_ACCURACY: f32 = 0.93;

/// Each habit alone, then together. The others are compared with the first.
const TECHNIQUES: &[(&str, Habits)] = &[
    ("the plain program", Habits::CARELESS),
    (
        "in-place updates",
        Habits {
            beside: false,
            ..Habits::CARELESS
        },
    ),
    (
        "freeing early",
        Habits {
            hold: false,
            ..Habits::CARELESS
        },
    ),
    (
        "smaller batch (32)",
        Habits {
            batch: BATCH / 4,
            ..Habits::CARELESS
        },
    ),
    (
        "accumulation (4 × 32)",
        Habits {
            batch: BATCH / 4,
            pieces: 4,
            ..Habits::CARELESS
        },
    ),
    (
        "recompute activations",
        Habits {
            recompute: true,
            ..Habits::CARELESS
        },
    ),
    (
        "f16 activations",
        Habits {
            half: true,
            ..Habits::CARELESS
        },
    ),
    (
        "park optimizer state",
        Habits {
            park: true,
            ..Habits::CARELESS
        },
    ),
    ("nothing, half the memory", Habits::CARELESS),
    (
        "all but in-place updates",
        Habits {
            beside: true,
            ..Habits::CAREFUL
        },
    ),
    (
        "all but parked state",
        Habits {
            park: false,
            ..Habits::CAREFUL
        },
    ),
    ("all together", Habits::CAREFUL),
];

fn main() -> ExitCode {
    train().unwrap_or_else(|error| {
        eprintln!("train: failed: {error}");
        ExitCode::FAILURE
    })
}

fn train() -> Result<ExitCode, Box<dyn Error>> {
    let (epochs, filter) = arguments()?;
    let chosen = TECHNIQUES
        .iter()
        .enumerate()
        .filter(|(index, (name, _))| *index == 0 || name.contains(&filter));
    println!("                              peak, live   reserved    time   loss  accuracy");
    let mut rows: Vec<Row> = Vec::new();
    for (_, (name, habits)) in chosen {
        // The one row without a habit gets half of the first row's memory, and no hints.
        let budget = match rows.first() {
            Some(first) if name.contains("half the memory") => Some(first.peak_reserved_bytes / 2),
            _ => None,
        };
        let row = Row::measure(name, *habits, budget, epochs)?;
        println!("{}", row.line(rows.first().unwrap_or(&row)));
        rows.push(row);
    }
    Ok(verdict(&rows, epochs))
}

/// The number of epochs, and a part of the techniques' names.
fn arguments() -> Result<(usize, String), Box<dyn Error>> {
    let (mut epochs, mut filter) = (EPOCHS, String::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--epochs" {
            let number = arguments.next().unwrap_or_default();
            epochs = match number.parse() {
                Ok(epochs) if epochs > 0 => epochs,
                _ => {
                    return Err(format!("--epochs wants a number from 1 on, not `{number}`").into());
                }
            };
        } else if TECHNIQUES.iter().any(|(name, _)| name.contains(&argument)) {
            filter = argument;
        } else {
            let names: Vec<_> = TECHNIQUES.iter().map(|(name, _)| *name).collect();
            return Err(format!(
                "no technique has `{argument}` in its name: {}",
                names.join(", ")
            )
            .into());
        }
    }
    Ok((epochs, filter))
}

/// One line of the table.
struct Row {
    name: &'static str,
    habits: Habits,
    peak_live_bytes: u64,
    peak_reserved_bytes: u64,
    seconds: f64,
    /// The loss of the last batch.
    loss: f32,
    accuracy: f32,
}

impl Row {
    fn measure(
        name: &'static str,
        habits: Habits,
        budget: Option<u64>,
        epochs: usize,
    ) -> Result<Row, Box<dyn Error>> {
        // A separate device, so that no run reuses the slabs of another.
        let gpu = Gpu::open(Options {
            budget: budget.map(Budget::device),
            ..Options::default()
        })?;
        let mut random = fastrand::Rng::with_seed(SEED);
        let digits = Digits::load()?;
        let (train, test) = digits.split(digits.len() / 5, &mut random);
        let (images, labels) = upload(&gpu, &train)?;
        let (test_images, _) = upload(&gpu, &test)?;
        let mut model = Model::new(&gpu, SEED)?;
        let mut learner = Learner::new(habits);

        let rows_per_step = habits.batch * habits.pieces;
        let steps = train.len() / rows_per_step;
        let mut order: Vec<u32> = (0..train.len() as u32).collect();
        let mut loss = gpu.zeros(&[], DType::F32)?;
        let mut seconds = 0.0;
        for epoch in 0..epochs {
            random.shuffle(&mut order);
            let shuffled = gpu.tensor(&order, &[order.len()])?;
            let rate = RATE * (1.0 - epoch as f32 / epochs as f32);
            for step in 0..steps {
                let start = Instant::now();
                let rows = shuffled.narrow(0, step * rows_per_step, rows_per_step)?;
                loss = learner.step(&mut model, &images, &labels, &rows, rate)?;
                gpu.finish()?;
                // The first step compiles the kernels that all others use.
                if epoch + step > 0 {
                    seconds += start.elapsed().as_secs_f64();
                }
            }
        }
        let peaks = gpu.memory().stats();
        let read = model.classify(&test_images)?.to_vec::<u32>()?;
        let right = read
            .iter()
            .zip(&test.labels)
            .filter(|(a, b)| a == b)
            .count();
        Ok(Row {
            name,
            habits,
            peak_live_bytes: peaks.live_bytes.peak,
            peak_reserved_bytes: peaks.reserved_bytes.peak,
            seconds,
            loss: loss.item()?,
            accuracy: right as f32 / test.len() as f32,
        })
    }

    /// For people: bytes, and the time as a multiple of the first row's.
    fn line(&self, first: &Row) -> String {
        format!(
            "{:<26} {:>10} {:>10} {:>5.2} ×  {:.3}  {:>7.1} %",
            self.name,
            Bytes(self.peak_live_bytes).to_string(),
            Bytes(self.peak_reserved_bytes).to_string(),
            self.seconds / first.seconds,
            self.loss,
            100.0 * self.accuracy,
        )
    }

    /// Must the results be the same to the bit? Such a habit only decides where and when bytes are
    /// kept.
    fn computes_the_same(&self) -> bool {
        self.habits.batch == BATCH && !self.habits.half
    }
}

/// Images as rows of patches, with numbers from 0 to 1, and their digits.
fn upload(gpu: &Gpu, digits: &Digits) -> lapidary::Result<(Tensor, Tensor)> {
    let pixels = gpu.tensor(&digits.pixels, &[digits.len(), PIXELS])?;
    let across = SIDE / PATCH;
    let patches = pixels
        .view_as(&[digits.len(), across, PATCH, across, PATCH])?
        .permute(&[0, 1, 3, 2, 4])?
        .reshape(&[digits.len(), TOKENS, PATCH * PATCH])?;
    let images = (patches.cast(DType::F32)? / f32::from(WHITE))?;
    let labels = gpu.tensor(&digits.labels, &[digits.len()])?;
    let targets = gpu.eye(CLASSES, DType::F32)?.index_select(0, &labels)?;
    Ok((images.named("images"), targets.named("targets")))
}

/// Checks the promises, and prints the line for programs.
fn verdict(rows: &[Row], epochs: usize) -> ExitCode {
    let first = &rows[0];
    let mut code = ExitCode::SUCCESS;
    let mut equal = true;
    for row in rows.iter().filter(|row| row.computes_the_same()) {
        if row.loss.to_bits() != first.loss.to_bits() {
            eprintln!("train: failed: `{}` learned something else", row.name);
            (equal, code) = (false, ExitCode::FAILURE);
        }
    }
    let least_accuracy = rows.iter().map(|row| row.accuracy).fold(1.0, f32::min);
    if epochs >= EPOCHS && least_accuracy < LEAST_ACCURACY {
        eprintln!("train: failed: an accuracy is below {LEAST_ACCURACY}");
        code = ExitCode::FAILURE;
    }
    let least = rows.iter().map(|row| row.peak_live_bytes).min();
    println!(
        "train: techniques={} equal={equal} peak_live_bytes={} least_peak_live_bytes={} least_accuracy={least_accuracy:.3}",
        rows.len(),
        first.peak_live_bytes,
        least.unwrap_or(0),
    );
    code
}
