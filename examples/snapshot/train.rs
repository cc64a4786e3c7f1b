//! A network of residual blocks that learns with momentum, with hand-written gradients. The memory
//! is too little for all its tensors: velocities are evicted between two updates.

use lapidary::units::MIB;
use lapidary::{Budget, DType, Gpu, Options, Result, Tensor, stats::Snapshot};

/// The device's budget.
const BUDGET_BYTES: u64 = 44 * MIB;

const BLOCKS: usize = 8;
const WIDTH: usize = 256;
const HIDDEN: usize = 1024;
const BATCH: usize = 256;
const STEPS: usize = 14;
const RATE: f32 = 1e-4;
const MOMENTUM: f32 = 0.8;

/// Two snapshots of a run, and its loss at both.
pub(crate) struct Run {
    pub(crate) first: Snapshot,
    pub(crate) last: Snapshot,
    pub(crate) losses: (f32, f32),
}

/// `x + relu(x · up) · down`, and the momentum of both matrices.
struct Block {
    up: Tensor,
    down: Tensor,
    up_velocity: Tensor,
    down_velocity: Tensor,
}

impl Block {
    fn new(gpu: &Gpu, seed: u64) -> Result<Block> {
        let matrix = |rows: usize, columns: usize, std: f32, seed, name| {
            let values = gpu.rand_normal(&[rows, columns], 0.0, std, seed, DType::F32)?;
            Ok::<_, lapidary::Error>(values.named(name))
        };
        let std = (2.0 / WIDTH as f32).sqrt();
        Ok(Block {
            up: matrix(WIDTH, HIDDEN, std, seed, "up")?,
            down: matrix(HIDDEN, WIDTH, std / BLOCKS as f32, seed + 1, "down")?,
            up_velocity: gpu
                .zeros(&[WIDTH, HIDDEN], DType::F32)?
                .named("up velocity"),
            down_velocity: gpu
                .zeros(&[HIDDEN, WIDTH], DType::F32)?
                .named("down velocity"),
        })
    }

    /// The output, and the tensor that the backward pass needs beside the input.
    fn forward(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let hidden = x.matmul(&self.up)?.relu()?.named("hidden");
        let y = (x + hidden.matmul(&self.down)?)?;
        Ok((y.named("activation"), hidden))
    }

    /// The gradient of the input, and those of the matrices.
    fn backward(&self, x: &Tensor, hidden: &Tensor, of_y: &Tensor) -> Result<[Tensor; 3]> {
        let of_down = hidden.t()?.matmul(of_y)?.named("gradient");
        let mask = hidden.gt(0.0)?.cast(DType::F32)?;
        let of_hidden = (of_y.matmul(&self.down.t()?)? * mask)?;
        let of_up = x.t()?.matmul(&of_hidden)?.named("gradient");
        let of_x = (of_y + of_hidden.matmul(&self.up.t()?)?)?;
        Ok([of_x.named("gradient of activation"), of_up, of_down])
    }

    fn update(&self, of_up: &Tensor, of_down: &Tensor) -> Result<()> {
        for (value, velocity, gradient) in [
            (&self.up, &self.up_velocity, of_up),
            (&self.down, &self.down_velocity, of_down),
        ] {
            velocity.mul_(MOMENTUM)?;
            velocity.add_(gradient)?;
            value.sub_(&(velocity * RATE)?)?;
        }
        Ok(())
    }
}

/// One step on one batch; returns the loss before it.
fn step(gpu: &Gpu, blocks: &[Block], x: &Tensor, target: &Tensor) -> Result<f32> {
    let _step = gpu.scope("step");
    let mut inputs = vec![x.clone()];
    let mut hiddens = Vec::new();
    {
        let _forward = gpu.scope("forward");
        for block in blocks {
            let (y, hidden) = block.forward(&inputs[inputs.len() - 1])?;
            inputs.push(y);
            hiddens.push(hidden);
        }
    }
    let count = (BATCH * WIDTH) as f32;
    let error = (inputs.pop().unwrap_or_else(|| x.clone()) - target)?;
    let loss = ((&error * &error)?.sum_all()? * (1.0 / count))?;
    // That of the loss, times the width: a step of its own size.
    let mut gradient = (error * (2.0 / BATCH as f32))?.named("gradient of activation");
    let mut gradients = Vec::new();
    {
        let _backward = gpu.scope("backward");
        for (block, (x, hidden)) in blocks.iter().zip(inputs.into_iter().zip(hiddens)).rev() {
            let [of_x, of_up, of_down] = block.backward(&x, &hidden, &gradient)?;
            gradient = of_x;
            gradients.push((block, of_up, of_down));
        }
    }
    let _update = gpu.scope("update");
    for (block, of_up, of_down) in gradients {
        block.update(&of_up, &of_down)?;
    }
    loss.item()
}

/// Trains, and takes snapshots after two steps and in the midst of the last.
pub(crate) fn run() -> Result<Run> {
    let gpu = Gpu::open(Options {
        budget: Some(Budget::device(BUDGET_BYTES)),
        ..Options::from_env()?
    })?;
    gpu.memory().keep_history(1_000_000);
    let blocks = {
        let _scope = gpu.scope("parameters");
        (0..BLOCKS as u64)
            .map(|block| Block::new(&gpu, 2 * block))
            .collect::<Result<Vec<_>>>()?
    };
    let batch = |seed, name| {
        let _scope = gpu.scope("data");
        let values = gpu.rand_normal(&[BATCH, WIDTH], 0.0, 1.0, seed, DType::F32)?;
        Ok::<_, lapidary::Error>(values.named(name))
    };
    let (x, target) = (batch(1000, "batch")?, batch(1001, "target")?);

    let mut first = None;
    let mut losses = Vec::new();
    for number in 0..STEPS {
        losses.push(step(&gpu, &blocks, &x, &target)?);
        if number == 1 {
            first = Some(gpu.memory().snapshot());
        }
    }
    let last = {
        let _scope = gpu.scope("step");
        let _forward = gpu.scope("forward");
        let mut held = vec![(x.clone(), x)];
        for block in &blocks {
            held.push(block.forward(&held[held.len() - 1].0)?);
        }
        gpu.finish()?;
        gpu.memory().snapshot()
    };
    Ok(Run {
        first: first.unwrap_or_else(|| last.clone()),
        last,
        losses: (losses[0], losses[STEPS - 1]),
    })
}
