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

/// A device, and the time for which it has been busy, if that is known.
pub(crate) struct Device {
    pub(crate) gpu: Gpu,
    pub(crate) busy_ns: Box<dyn Fn() -> u64>,
}

impl From<Gpu> for Device {
    fn from(gpu: Gpu) -> Self {
        Device {
            gpu,
            busy_ns: Box::new(|| 0),
        }
    }
}

/// The runs in each budget, the one without first.
pub(crate) struct Measured {
    pub(crate) base_bytes: u64,
    pub(crate) peak_bytes: u64,
    pub(crate) rows: Vec<Row>,
}

/// A step in a budget: the best time, and means of all others.
pub(crate) struct Row {
    percentage: Option<u64>,
    pub(crate) step_s: f64,
    /// Beside a step without a budget.
    pub(crate) ratio: f64,
    #[cfg_attr(
        not(feature = "sim"),
        expect(dead_code, reason = "for the simulated card")
    )]
    pub(crate) busy_s: f64,
    pub(crate) commands: f64,
    pub(crate) submissions: f64,
    /// For memory, as [`MemoryStats::waits`] counts.
    pub(crate) waits: f64,
    pub(crate) evicted_mb: f64,
    pub(crate) restored_mb: f64,
    pub(crate) recomputed_mb: f64,
    pub(crate) moved_mb: f64,
    pub(crate) device_peak_mb: f64,
}

impl Row {
    pub(crate) fn name(&self) -> String {
        match self.percentage {
            None => "no budget".into(),
            Some(percentage) => format!("{percentage} %"),
        }
    }
}

/// A model with its own device and budget.
struct Run {
    percentage: Option<u64>,
    device: Device,
    model: Model,
    adam: AdamW,
    batch: Batch,
    losses: Vec<u32>,
    best: Duration,
}

/// What a run has counted so far.
struct Counted {
    stats: MemoryStats,
    busy_ns: u64,
}

/// Compares the budgets, and returns the peak of a step without one.
///
/// `open` opens a device for each run.
pub(crate) fn compare(open: impl Fn() -> Result<Gpu>) -> Result<u64> {
    let measured = measure(|| Ok(open()?.into()), ROUNDS)?;
    println!(
        "{} layers: peak {:.1} MB, parameters and state {:.1} MB",
        SIZES.layers,
        measured.peak_bytes as f64 / 1e6,
        measured.base_bytes as f64 / 1e6
    );
    for row in &measured.rows {
        println!(
            "  {:<10} {:.4} s a step, {:.2} x; {:.0} commands in {:.0} submissions, {:.0} \
             waits for memory; MB a step: evicted {:.1}, restored {:.1}, recomputed {:.1}, \
             moved {:.1}; at most {:.1} MB on the device",
            row.name(),
            row.step_s,
            row.ratio,
            row.commands,
            row.submissions,
            row.waits,
            row.evicted_mb,
            row.restored_mb,
            row.recomputed_mb,
            row.moved_mb,
            row.device_peak_mb,
        );
    }
    Ok(measured.peak_bytes)
}

/// Runs steps without a budget and in each of them, in turns.
pub(crate) fn measure(open: impl Fn() -> Result<Device>, rounds: usize) -> Result<Measured> {
    let mut free = Run::new(open()?, None)?;
    let base_bytes = free.device.gpu.memory().stats().live_bytes.now;
    free.step()?;
    free.device.gpu.memory().reset_peaks();
    free.step()?;
    let peak_bytes = free.device.gpu.memory().stats().live_bytes.peak;
    let mut runs = vec![free];
    for percentage in PERCENTAGES {
        let mut run = Run::new(open()?, Some(percentage))?;
        let budget_bytes = base_bytes + (peak_bytes - base_bytes) * percentage / 100;
        run.device.gpu.memory().set_budget(Budget {
            staging_bytes: Some(STAGING_BYTES),
            ..Budget::device(budget_bytes + STAGING_BYTES)
        })?;
        for _ in 0..WARM_UP {
            run.step()?;
        }
        runs.push(run);
    }
    let before: Vec<Counted> = runs.iter().map(Run::counted).collect();
    for run in &mut runs {
        run.best = Duration::MAX;
    }
    for _ in 0..rounds {
        for run in &mut runs {
            run.step()?;
        }
    }
    for run in &runs {
        assert_eq!(run.losses, runs[0].losses, "{:?} %", run.percentage);
    }
    let free = runs[0].best;
    let rows = runs.iter().zip(&before);
    Ok(Measured {
        base_bytes,
        peak_bytes,
        rows: rows
            .map(|(run, before)| run.row(free, before, rounds))
            .collect(),
    })
}

impl Run {
    fn new(device: Device, percentage: Option<u64>) -> Result<Self> {
        let gpu = &device.gpu;
        let model = Model::new(gpu, SIZES)?.recorded()?;
        let options = AdamWOptions {
            lr: 1e-3,
            ..Default::default()
        };
        let adam = AdamW::new(&model.parameters(), options)?;
        let batch = model.batch(gpu)?;
        gpu.finish()?;
        Ok(Run {
            percentage,
            device,
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
        self.device.gpu.finish()?;
        self.best = self.best.min(start.elapsed());
        Ok(())
    }

    fn counted(&self) -> Counted {
        Counted {
            stats: self.device.gpu.memory().stats(),
            busy_ns: (self.device.busy_ns)(),
        }
    }

    fn row(&self, free: Duration, before: &Counted, rounds: usize) -> Row {
        let after = self.counted();
        let a_step = |count: fn(&MemoryStats) -> u64| {
            (count(&after.stats) - count(&before.stats)) as f64 / rounds as f64
        };
        let mb_a_step = |count| a_step(count) / 1e6;
        let step_s = self.best.as_secs_f64();
        Row {
            percentage: self.percentage,
            step_s,
            ratio: step_s / free.as_secs_f64(),
            busy_s: (after.busy_ns - before.busy_ns) as f64 / 1e9 / rounds as f64,
            commands: a_step(|stats| stats.commands),
            submissions: a_step(|stats| stats.submissions),
            waits: a_step(|stats| stats.waits().total().times),
            evicted_mb: mb_a_step(|stats| stats.evicted_bytes),
            restored_mb: mb_a_step(|stats| stats.restored_bytes),
            recomputed_mb: mb_a_step(|stats| stats.recomputed_bytes),
            moved_mb: mb_a_step(|stats| stats.moved_bytes),
            device_peak_mb: after.stats.device_bytes.peak as f64 / 1e6,
        }
    }
}
