//! Training steps with recorded gradients beside the same steps with a backward by hand.
//!
//! ```text
//! cargo bench --bench gradients
//! cargo bench --bench gradients -- host    # the host's part, on a simulated device
//! ```
//!
//! Steps a second of a perceptron with two layers, and the share of the speed by hand. Both run in
//! turns, so that noise hits both. The losses of both are compared. The host's part is also told
//! for single operations: what recording one costs more than not recording it.

use std::time::{Duration, Instant};

use lapidary::{DType, Gpu, Options, Result, Tensor};

/// Rows, inputs, hidden units and classes.
const SIZES: [(usize, usize, usize, usize); 2] = [(64, 784, 128, 10), (256, 784, 512, 10)];
const STEPS: u32 = 20;
const ROUNDS: u32 = 8;
const RATE: f64 = 0.05;
const CHAIN: u32 = 1000;
const CHAINS: u32 = 60;

struct Network {
    x: Tensor,
    labels: Tensor,
    classes: usize,
    weights: [Tensor; 2],
    biases: [Tensor; 2],
}

impl Network {
    fn new(
        gpu: &Gpu,
        (rows, inputs, hidden, classes): (usize, usize, usize, usize),
    ) -> Result<Self> {
        let normal = |shape: [usize; 2], seed| gpu.rand_normal(&shape, 0.0, 0.05, seed, DType::F32);
        let x = normal([rows, inputs], 1)?;
        let labels = (0..rows as u32)
            .map(|row| row % classes as u32)
            .collect::<Vec<_>>();
        let labels = gpu.tensor(&labels, &[rows])?;
        let weights = [normal([inputs, hidden], 2)?, normal([hidden, classes], 3)?];
        let biases = [
            gpu.zeros(&[hidden], DType::F32)?,
            gpu.zeros(&[classes], DType::F32)?,
        ];
        Ok(Network {
            x,
            labels,
            classes,
            weights,
            biases,
        })
    }

    fn parameters(self) -> Result<Self> {
        for tensor in self.weights.iter().chain(&self.biases) {
            tensor.clone().requires_grad()?;
        }
        Ok(self)
    }

    fn step_by_tape(&self, gpu: &Gpu) -> Result<Tensor> {
        let ([w1, w2], [b1, b2]) = (&self.weights, &self.biases);
        let h = (self.x.matmul(w1)? + b1)?.relu()?;
        let logits = (h.matmul(w2)? + b2)?;
        let loss = logits.cross_entropy(&self.labels, None, Default::default())?;
        let gradients = loss.backward()?;
        let _no_grad = gpu.no_grad();
        for parameter in self.weights.iter().chain(&self.biases) {
            if let Some(gradient) = gradients.get(parameter) {
                parameter.sub_(&(gradient * RATE)?)?;
            }
        }
        Ok(loss.detach())
    }

    fn step_by_hand(&self) -> Result<Tensor> {
        let ([w1, w2], [b1, b2]) = (&self.weights, &self.biases);
        let h = (self.x.matmul(w1)? + b1)?.relu()?;
        let logits = (h.matmul(w2)? + b2)?;
        let loss = logits.cross_entropy(&self.labels, None, Default::default())?;
        let share = 1.0 / self.x.shape()[0] as f64;
        let by_logits =
            ((logits.softmax(1)? - self.labels.one_hot(self.classes, DType::F32)?)? * share)?;
        let by_h = by_logits.matmul(&w2.t()?)?.masked_fill(&h.le(0.0)?, 0.0)?;
        let gradients = [
            (w1, self.x.t()?.matmul(&by_h)?),
            (w2, h.t()?.matmul(&by_logits)?),
            (b1, by_h.sum(&[0])?),
            (b2, by_logits.sum(&[0])?),
        ];
        for (parameter, gradient) in gradients {
            parameter.sub_(&(gradient * RATE)?)?;
        }
        Ok(loss)
    }
}

/// The time of some steps, and the last loss.
fn round(mut step: impl FnMut() -> Result<Tensor>) -> Result<(Duration, f32)> {
    let start = Instant::now();
    let mut loss = 0.0;
    for number in 0..STEPS {
        let made = step()?;
        if number == STEPS - 1 {
            loss = made.item::<f32>()?;
        }
    }
    Ok((start.elapsed(), loss))
}

fn main() -> Result<()> {
    if std::env::args().any(|arg| arg == "host") {
        return tell_of_host();
    }
    let gpu = Gpu::open(Options::from_env()?)?;
    println!("{} ({})", gpu.caps().name, gpu.caps().backend);
    compare(&gpu)
}

/// A device whose work takes no time.
fn tell_of_host() -> Result<()> {
    use lapidary::sim::{SimMode, SimOptions};
    let device = SimOptions {
        mode: SimMode::SizesOnly,
        ..SimOptions::default()
    };
    let (gpu, _sim) = Gpu::simulated_with(device, Options::from_env()?)?;
    compare(&gpu)?;
    let x = gpu.zeros(&[64], DType::F32)?;
    let w = gpu.zeros(&[64], DType::F32)?.requires_grad()?;
    tell_of_operation(&gpu, "y + w", |y| y + &w)?;
    tell_of_operation(&gpu, "y * x", |y| y * &x)?;
    tell_of_operation(&gpu, "y.sin()", |y| y.sin())?;
    Ok(())
}

/// The time of an operation in a chain whose values are all kept, recorded and under `no_grad`.
/// That includes the drop of what was recorded.
fn tell_of_operation(
    gpu: &Gpu,
    name: &str,
    operation: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<()> {
    let start = gpu.zeros(&[64], DType::F32)?.requires_grad()?;
    let chain = || -> Result<Duration> {
        let begun = Instant::now();
        let mut all = vec![start.clone()];
        for _ in 0..CHAIN {
            all.push(operation(&all[all.len() - 1])?);
        }
        drop(all);
        gpu.finish()?;
        Ok(begun.elapsed())
    };
    let mut best = [Duration::MAX; 2];
    for _ in 0..CHAINS {
        best[0] = best[0].min(chain()?);
        let _no_grad = gpu.no_grad();
        best[1] = best[1].min(chain()?);
    }
    let [recorded, plain] = best.map(|time| time.as_secs_f64() * 1e9 / f64::from(CHAIN));
    println!(
        "  {name:<8} {plain:.0} ns, recorded {recorded:.0} ns: {:.0} ns more",
        recorded - plain
    );
    Ok(())
}

fn compare(gpu: &Gpu) -> Result<()> {
    for sizes in SIZES {
        let by_tape = Network::new(gpu, sizes)?.parameters()?;
        let by_hand = Network::new(gpu, sizes)?;
        let mut best = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            let (time, loss) = round(|| by_tape.step_by_tape(gpu))?;
            best[0] = best[0].min(time);
            let (time, expected) = round(|| by_hand.step_by_hand())?;
            best[1] = best[1].min(time);
            assert!(
                (loss - expected).abs() < 1e-3 * (1.0 + expected),
                "{loss} {expected}"
            );
        }
        let [tape, hand] = best.map(|time| f64::from(STEPS) / time.as_secs_f64());
        let (rows, inputs, hidden, classes) = sizes;
        println!(
            "  {rows} x {inputs} - {hidden} - {classes:<6} {tape:>7.0} steps/s, {:.2} of {hand:.0} by \
             hand",
            tape / hand
        );
    }
    Ok(())
}
