//! A step with AdamW within less memory than it takes: how long, and at which cost.

use std::time::{Duration, Instant};

use lapidary::optim::{AdamW, AdamWOptions};
use lapidary::stats::MemoryStats;
use lapidary::{Budget, Gpu, Result};

use crate::SIZES;
use crate::model::{Batch, Model};

/// Shares of the peak beyond parameters and the state of the optimizer.
const PERCENTAGES: [u64; 3] = [100, 50, 25];
const WARM_UP: usize = 2;
const ROUNDS: usize = 5;
const STAGING_BYTES: u64 = 2 << 20;

/// A model with its own device and budget.
struct Run {
    percentage: Option<u64>,
    gpu: Gpu,
    model: Model,
    adam: AdamW,
    batch: Batch,
    losses: Vec<u32>,
    best: Duration,
}

/// Compares the budgets, and returns the peak of a step without one.
///
/// `open` opens a device for each run.
pub(crate) fn compare(open: impl Fn() -> Result<Gpu>) -> Result<u64> {
    let mut free = Run::new(open()?, None)?;
    let base_bytes = free.gpu.memory().stats().live_bytes.now;
    free.step()?;
    free.gpu.memory().reset_peaks();
    free.step()?;
    let peak_bytes = free.gpu.memory().stats().live_bytes.peak;
    println!(
        "{} layers: peak {:.1} MB, parameters and state {:.1} MB",
        SIZES.layers,
        peak_bytes as f64 / 1e6,
        base_bytes as f64 / 1e6
    );
    let mut runs = vec![free];
    for percentage in PERCENTAGES {
        let mut run = Run::new(open()?, Some(percentage))?;
        let budget_bytes = base_bytes + (peak_bytes - base_bytes) * percentage / 100;
        run.gpu.memory().set_budget(Budget {
            staging_bytes: Some(STAGING_BYTES),
            ..Budget::device(budget_bytes + STAGING_BYTES)
        })?;
        for _ in 0..WARM_UP {
            run.step()?;
        }
        runs.push(run);
    }
    let before: Vec<MemoryStats> = runs.iter().map(|run| run.gpu.memory().stats()).collect();
    for run in &mut runs {
        run.best = Duration::MAX;
    }
    for _ in 0..ROUNDS {
        for run in &mut runs {
            run.step()?;
        }
    }
    let free = runs[0].best;
    for (run, before) in runs.iter().zip(&before) {
        assert_eq!(run.losses, runs[0].losses, "{:?} %", run.percentage);
        run.tell(free, before);
    }
    Ok(peak_bytes)
}

impl Run {
    fn new(gpu: Gpu, percentage: Option<u64>) -> Result<Self> {
        let model = Model::new(&gpu, SIZES)?.recorded()?;
        let options = AdamWOptions {
            lr: 1e-3,
            ..Default::default()
        };
        let adam = AdamW::new(&model.parameters(), options)?;
        let batch = model.batch(&gpu)?;
        gpu.finish()?;
        Ok(Run {
            percentage,
            gpu,
            model,
            adam,
            batch,
            losses: Vec::new(),
            best: Duration::MAX,
        })
    }

    fn step(&mut self) -> Result<()> {
        let start = Instant::now();
        let loss = self.model.loss(&self.batch)?;
        let gradients = loss.backward()?;
        self.adam.step(&gradients)?;
        drop(gradients);
        self.losses.push(loss.item::<f32>()?.to_bits());
        self.gpu.finish()?;
        self.best = self.best.min(start.elapsed());
        Ok(())
    }

    fn tell(&self, free: Duration, before: &MemoryStats) {
        let name = match self.percentage {
            None => "no budget".into(),
            Some(percentage) => format!("{percentage} %"),
        };
        let stats = self.gpu.memory().stats();
        let a_step = |count: fn(&MemoryStats) -> u64| {
            (count(&stats) - count(before)) as f64 / 1e6 / ROUNDS as f64
        };
        let times =
            |count: fn(&MemoryStats) -> u64| (count(&stats) - count(before)) / ROUNDS as u64;
        println!(
            "  {name:<10} {:.4} s a step, {:.2} x; {} commands in {} submissions; MB a step: \
             evicted {:.1}, restored {:.1}, recomputed {:.1}, moved {:.1}; at most {:.1} MB on the \
             device",
            self.best.as_secs_f64(),
            self.best.as_secs_f64() / free.as_secs_f64(),
            times(|stats| stats.commands),
            times(|stats| stats.submissions),
            a_step(|stats| stats.evicted_bytes),
            a_step(|stats| stats.restored_bytes),
            a_step(|stats| stats.recomputed_bytes),
            a_step(|stats| stats.moved_bytes),
            stats.device_bytes.peak as f64 / 1e6,
        );
    }
}
