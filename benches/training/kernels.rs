//! Where the time of a step goes: all of it, the device's part, and the kernels by their time.

use std::time::{Duration, Instant};

use lapidary::optim::{AdamW, AdamWOptions};
use lapidary::{Error, Gpu, Result};

use crate::SIZES;
use crate::model::{Batch, Model};

const WARM_UP: usize = 3;
const ROUNDS: usize = 8;
/// Kernels that are listed.
const LISTED: usize = 24;

struct Step {
    model: Model,
    adam: AdamW,
    batch: Batch,
}

impl Step {
    fn run(&mut self) -> Result<()> {
        let loss = self.model.loss(&self.batch)?;
        let gradients = loss.backward()?;
        self.adam.step(&gradients)?;
        drop(gradients);
        loss.item::<f32>().map(drop)
    }
}

pub(crate) fn tell(gpu: &Gpu) -> Result<()> {
    let model = Model::new(gpu, SIZES)?.recorded()?;
    let options = AdamWOptions {
        lr: 1e-3,
        ..Default::default()
    };
    let mut step = Step {
        adam: AdamW::new(&model.parameters(), options)?,
        batch: model.batch(gpu)?,
        model,
    };
    for _ in 0..WARM_UP {
        step.run()?;
    }
    gpu.finish()?;
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        step.run()?;
        gpu.finish()?;
        best = best.min(begun.elapsed());
    }
    if let Err(error @ Error::Option { .. }) = gpu.kernels().time(true) {
        println!("no times of kernels: {error}");
        return Ok(());
    }
    step.run()?;
    let times = gpu.kernels().times()?;
    gpu.kernels().time(false)?;
    let (calls, ns) = times.iter().fold((0, 0), |(calls, ns), time| {
        (calls + time.calls, ns + time.total_ns)
    });
    println!(
        "{} layers: a step takes {:.2} ms; its {calls} kernels {:.2} ms of the device's time",
        SIZES.layers,
        best.as_secs_f64() * 1e3,
        ns as f64 / 1e6
    );
    for time in times.iter().take(LISTED) {
        println!(
            "  {:>6.3} ms, {:>3} x {:>6.1} us  {} ({})",
            time.total_ns as f64 / 1e6,
            time.calls,
            time.total_ns as f64 / 1e3 / time.calls as f64,
            time.kernel,
            time.operands
        );
    }
    Ok(())
}
