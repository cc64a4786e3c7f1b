//! A background job that makes room for a game: its budget shrinks while the game takes memory, and
//! grows again when the game ends. The job continues all the time, with correct results.
//!
//! ```text
//! cargo run --release --example stay_inside
//! ```
//!
//! Here a list of numbers plays the game. A real app would get the news from the system. Or it
//! leaves the device's budget to lapidary, which follows the system's. The last line is for
//! programs.

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use lapidary::units::{Bytes, MIB};
use lapidary::{Budget, DType, Gpu, Options, Tensor};

/// The job's tensors, of `LEN` i32 each: 24 MiB together.
const TENSORS: usize = 12;
const LEN: usize = 512 << 10;

/// The job's budget while the game starts, loads, runs and ends.
const BUDGETS_MIB: [u64; 14] = [64, 64, 32, 24, 16, 12, 10, 8, 8, 12, 16, 32, 64, 64];

fn main() -> ExitCode {
    stay_inside().unwrap_or_else(|error| {
        eprintln!("stay_inside: failed: {error}");
        ExitCode::FAILURE
    })
}

fn stay_inside() -> Result<ExitCode, Box<dyn Error>> {
    let gpu = Gpu::open(Options {
        budget: Some(Budget::device(BUDGETS_MIB[0] * MIB)),
        ..Options::from_env()?
    })?;
    println!(
        "{TENSORS} tensors of {} on {} ({})\n",
        Bytes(4 * LEN as u64),
        gpu.caps().name,
        gpu.caps().backend,
    );
    let mut job = Job::new(&gpu)?;
    println!("step      budget  shortfall        peak     evicted    restored  make way    step");
    let (mut is_right, mut peak_bytes, mut worst_over_bytes) = (true, 0, 0);
    for (step, budget_mib) in BUDGETS_MIB.into_iter().enumerate() {
        let budget_bytes = budget_mib * MIB;
        let before = gpu.memory().stats();
        let start = Instant::now();
        let shortfall_bytes = gpu.memory().set_budget(Budget::device(budget_bytes))?;
        let make_way_ms = 1e3 * start.elapsed().as_secs_f64();

        // From here on the budget must hold.
        gpu.memory().reset_peaks();
        let start = Instant::now();
        job.step()?;
        gpu.finish()?;
        let step_ms = 1e3 * start.elapsed().as_secs_f64();
        let step_is_right = job.is_right()?;

        let after = gpu.memory().stats();
        println!(
            "{:>4} {:>11} {:>10} {:>11} {:>11} {:>11} {:>6.1} ms {:>4.0} ms  {}",
            step + 1,
            Bytes(budget_bytes).to_string(),
            Bytes(shortfall_bytes).to_string(),
            Bytes(after.device_bytes.peak).to_string(),
            Bytes(after.evicted_bytes - before.evicted_bytes).to_string(),
            Bytes(after.restored_bytes - before.restored_bytes).to_string(),
            make_way_ms,
            step_ms,
            if step_is_right { "right" } else { "WRONG" },
        );
        is_right &= step_is_right;
        peak_bytes = peak_bytes.max(after.device_bytes.peak);
        worst_over_bytes =
            worst_over_bytes.max(after.device_bytes.peak.saturating_sub(budget_bytes));
    }
    println!("\n{}", gpu.memory().stats());
    println!(
        "stay_inside: steps={} right={is_right} peak_device_bytes={peak_bytes} \
         worst_over_budget_bytes={worst_over_bytes}",
        BUDGETS_MIB.len(),
    );
    Ok(match is_right && worst_over_bytes == 0 {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Tensors that add each other up, and their expected values.
struct Job {
    /// All are multiples of `0, 1, 2, …`, in wrapping arithmetic.
    tensors: Vec<Tensor>,
    factors: Vec<i32>,
}

impl Job {
    fn new(gpu: &Gpu) -> lapidary::Result<Job> {
        let ramp = gpu.arange(0, LEN as i32, 1, DType::I32)?;
        let factors: Vec<i32> = (1..=TENSORS as i32).collect();
        let tensors = factors.iter().map(|&factor| &ramp * factor);
        let tensors = tensors.collect::<lapidary::Result<_>>()?;
        Ok(Job { tensors, factors })
    }

    /// Adds to each tensor three times the next one.
    fn step(&mut self) -> lapidary::Result<()> {
        for index in 0..TENSORS {
            let next = (index + 1) % TENSORS;
            self.tensors[index].add_(&(&self.tensors[next] * 3)?)?;
            let added = self.factors[next].wrapping_mul(3);
            self.factors[index] = self.factors[index].wrapping_add(added);
        }
        Ok(())
    }

    /// Do all tensors have the expected values, wherever they are?
    fn is_right(&self) -> lapidary::Result<bool> {
        for (tensor, &factor) in self.tensors.iter().zip(&self.factors) {
            let values = tensor.to_vec::<i32>()?;
            let mut ramp = 0..LEN as i32;
            let is_right = |value: &i32| {
                ramp.next()
                    .is_some_and(|x| *value == x.wrapping_mul(factor))
            };
            if !values.iter().all(is_right) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
