//! The first steps of a training, measured: time, memory, and the losses.

use std::time::Instant;

use lapidary::units::KIB;
use lapidary::{Budget, Gpu, Result};

use crate::data::{Order, THREADS, Text, batches};
use crate::training::{Habits, Training};
use crate::{SEED, read_losses};

/// Enough for the small batches of this model.
const STAGING_BYTES: u64 = 256 * KIB;

/// What some steps took. Bytes are those on the device.
pub(crate) struct Measured {
    /// The loss of each step.
    pub(crate) losses: Vec<f32>,
    pub(crate) steps_per_s: f64,
    /// Parameters and the optimizer's state.
    pub(crate) fixed_bytes: u64,
    pub(crate) peak_live_bytes: u64,
    /// Most bytes of all buffers, staging included.
    pub(crate) peak_device_bytes: u64,
    pub(crate) evicted_bytes: u64,
    pub(crate) restored_bytes: u64,
    pub(crate) recomputed_bytes: u64,
}

impl Measured {
    /// Trains a new model for some steps, of which the first is not timed: it compiles kernels.
    pub(crate) fn steps(
        gpu: &Gpu,
        text: &Text,
        habits: Habits,
        budget: Option<Budget>,
        steps: usize,
    ) -> Result<Measured> {
        let memory = gpu.memory();
        memory.set_budget(Budget::default())?;
        memory.trim(0)?;
        let mut training = Training::new(gpu, habits, steps, SEED)?;
        gpu.finish()?;
        let fixed_bytes = memory.stats().live_bytes.now;
        memory.set_budget(budget.unwrap_or_default())?;
        memory.reset_peaks();
        let before = memory.stats();
        let (mut losses, mut start) = (Vec::new(), Instant::now());
        for batch in batches(gpu, &text.learned, Order::default(), THREADS)?.take(steps) {
            losses.push(training.step(&batch?)?);
            if losses.len() == 1 {
                gpu.finish()?;
                start = Instant::now();
            }
        }
        gpu.finish()?;
        let seconds = start.elapsed().as_secs_f64();
        let stats = memory.stats();
        Ok(Measured {
            losses: read_losses(&losses)?,
            steps_per_s: (steps - 1) as f64 / seconds,
            fixed_bytes,
            peak_live_bytes: stats.live_bytes.peak,
            peak_device_bytes: stats.device_bytes.peak,
            evicted_bytes: stats.evicted_bytes - before.evicted_bytes,
            restored_bytes: stats.restored_bytes - before.restored_bytes,
            recomputed_bytes: stats.recomputed_bytes - before.recomputed_bytes,
        })
    }

    /// A budget with room for this percentage of what the steps took beside parameters and
    /// optimizer.
    pub(crate) fn budget(&self, percent: u64) -> Budget {
        let step_bytes = self.peak_live_bytes - self.fixed_bytes;
        Budget {
            staging_bytes: Some(STAGING_BYTES),
            ..Budget::device(self.fixed_bytes + step_bytes * percent / 100 + STAGING_BYTES)
        }
    }

    /// Are these the same losses to the bit, as far as both go?
    pub(crate) fn begins_as(&self, losses: &[f32]) -> bool {
        let mut pairs = self.losses.iter().zip(losses);
        pairs.all(|(a, b)| a.to_bits() == b.to_bits())
    }
}
