//! Steps a second with recorded gradients and with a backward by hand.

use std::time::{Duration, Instant};

use lapidary::{Gpu, Result, Tensor};

use crate::SIZES;
use crate::hand::is_later;
use crate::model::{Batch, Model, Sizes};

const LAYERS: usize = 4;
const ROUNDS: usize = 12;
const RATE: f64 = 0.01;

struct Pair<'a> {
    gpu: &'a Gpu,
    by_tape: Model,
    by_hand: Model,
    batch: Batch,
    is_later: Tensor,
}

/// `has_values` says whether the device computes, so that gradients can be compared too.
pub(crate) fn compare(gpu: &Gpu, has_values: bool) -> Result<()> {
    let sizes = Sizes {
        layers: LAYERS,
        ..SIZES
    };
    let by_hand = Model::new(gpu, sizes)?;
    let pair = Pair {
        gpu,
        by_tape: Model::new(gpu, sizes)?.recorded()?,
        batch: by_hand.batch(gpu)?,
        by_hand,
        is_later: is_later(gpu, &sizes)?,
    };
    if has_values {
        println!(
            "{LAYERS} layers, gradients differ by {:.1e} of the largest of a tensor at most",
            pair.difference()?
        );
    }
    let mut best = [Duration::MAX; 2];
    let mut peaks = [0; 2];
    for _ in 0..ROUNDS {
        for (at, step) in [Pair::step_by_tape, Pair::step_by_hand].iter().enumerate() {
            gpu.memory().reset_peaks();
            let start = Instant::now();
            step(&pair)?;
            gpu.finish()?;
            best[at] = best[at].min(start.elapsed());
            peaks[at] = gpu.memory().stats().live_bytes.peak;
        }
    }
    let [tape, hand] = best.map(|time| time.as_secs_f64().recip());
    println!(
        "{LAYERS} layers: {tape:.2} steps/s, {:.2} of {hand:.2} by hand; peak {:.2} of that by hand",
        tape / hand,
        peaks[0] as f64 / peaks[1] as f64
    );
    Ok(())
}

impl Pair<'_> {
    /// The largest difference between the gradients, as a share of the largest element of a tensor.
    fn difference(&self) -> Result<f32> {
        let by_tape = self.by_tape.loss(&self.batch)?.backward()?;
        let (_, by_hand) = self.by_hand.loss_by_hand(&self.batch, &self.is_later)?;
        let mut most = 0.0_f32;
        for (parameter, expected) in self.by_tape.parameters().into_iter().zip(&by_hand) {
            let found = by_tape.get(parameter).expect("the loss depends on each");
            let apart = (found - expected)?.abs()?.max_all()?.item::<f32>()?;
            most = most.max(apart / expected.abs()?.max_all()?.item::<f32>()?);
        }
        assert!(most < 1e-3, "the gradients differ by {most}");
        Ok(most)
    }

    fn step_by_tape(&self) -> Result<()> {
        let gradients = self.by_tape.loss(&self.batch)?.backward()?;
        let _no_grad = self.gpu.no_grad();
        for parameter in self.by_tape.parameters() {
            if let Some(gradient) = gradients.get(parameter) {
                parameter.sub_(&(gradient * RATE)?)?;
            }
        }
        Ok(())
    }

    fn step_by_hand(&self) -> Result<()> {
        let (_, gradients) = self.by_hand.loss_by_hand(&self.batch, &self.is_later)?;
        for (parameter, gradient) in self.by_hand.parameters().into_iter().zip(gradients) {
            parameter.sub_(&(gradient * RATE)?)?;
        }
        Ok(())
    }
}
