//! The matrix products of a step alone: no step on the device can take less time.

use std::time::{Duration, Instant};

use lapidary::{DType, Gpu, Result, Tensor};

use crate::SIZES;
use crate::model::{Batch, Model};

const ROUNDS: usize = 8;

pub(crate) fn compare(gpu: &Gpu) -> Result<()> {
    let model = Model::new(gpu, SIZES)?.recorded()?;
    let batch = model.batch(gpu)?;
    let products = products(gpu)?;
    let mut best = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        let step = timed(gpu, || model_step(&model, &batch))?;
        let alone = timed(gpu, || products.iter().try_for_each(Product::run))?;
        best = [best[0].min(step), best[1].min(alone)];
    }
    let [step, alone] = best.map(|time| time.as_secs_f64());
    let operations: f64 = products.iter().map(Product::operations).sum();
    println!(
        "{} layers: forward and backward {step:.3} s; its {} products of layers alone {alone:.3} s \
         ({:.1} GFLOP/s), {:.2} of it",
        SIZES.layers,
        3 * products.len(),
        operations / alone / 1e9,
        alone / step
    );
    Ok(())
}

fn timed(gpu: &Gpu, work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let begun = Instant::now();
    work()?;
    gpu.finish()?;
    Ok(begun.elapsed())
}

fn model_step(model: &Model, batch: &Batch) -> Result<()> {
    model.loss(batch)?.backward().map(drop)
}

/// A layer's input, weight and gradient of its output.
struct Product {
    x: Tensor,
    w: Tensor,
    gradient: Tensor,
}

impl Product {
    /// The layer, and the gradients of both of its operands.
    fn run(&self) -> Result<()> {
        self.x.matmul(&self.w)?;
        self.gradient.matmul(&self.w.t()?)?;
        self.x.t()?.matmul(&self.gradient).map(drop)
    }

    fn operations(&self) -> f64 {
        let [rows, inputs] = [0, 1].map(|axis| self.x.shape()[axis]);
        (3 * 2 * rows * inputs * self.w.shape()[1]) as f64
    }
}

fn products(gpu: &Gpu) -> Result<Vec<Product>> {
    let width = SIZES.width;
    let of_block = [
        (width, 3 * width),
        (width, width),
        (width, 4 * width),
        (4 * width, width),
    ];
    let blocks = std::iter::repeat_n(of_block, SIZES.layers).flatten();
    let sizes = blocks.chain([(width, SIZES.words)]);
    let random = |rows, columns| gpu.rand_normal(&[rows, columns], 0.0, 0.1, 1, DType::F32);
    let made = sizes.map(|(inputs, outputs)| {
        Ok(Product {
            x: random(SIZES.rows(), inputs)?,
            w: random(inputs, outputs)?,
            gradient: random(SIZES.rows(), outputs)?,
        })
    });
    made.collect()
}
