//! The work: `x = tanh(x · W)` through all weights, several times over, and its cost.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use lapidary::{DType, Gpu, Source, Tensor};

/// Rows and columns of a weight, of f32.
pub(crate) const SIZE: usize = 1024;
pub(crate) const WEIGHT_BYTES: u64 = (SIZE * SIZE * 4) as u64;
pub(crate) const WEIGHTS: usize = 32;
/// Rows of the input.
const ROWS: usize = 16;
/// Bytes of the input, and of the output.
pub(crate) const X_BYTES: u64 = (ROWS * SIZE * 4) as u64;
/// Number of passes through all weights.
pub(crate) const PASSES: usize = 4;

/// The input, and the contents of all weights in a row.
pub(crate) struct Numbers {
    x: Vec<f32>,
    weights: Vec<f32>,
}

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut draw = |count: usize, limit: f32| -> Vec<f32> {
            let draws = (0..count).map(|_| limit * (2.0 * random.f32() - 1.0));
            draws.collect()
        };
        // Large enough that no number vanishes on the way: one wrong byte anywhere changes the
        // result.
        let limit = 3.0 / (SIZE as f32).sqrt();
        Numbers {
            x: draw(ROWS * SIZE, 1.0),
            weights: draw(WEIGHTS * SIZE * SIZE, limit),
        }
    }

    /// The bytes of all weights.
    pub(crate) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.weights)
    }
}

/// The source of the weights.
#[derive(Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// A file, which can give them again: they are dropped, and never written out.
    File(&'a Path),
    /// The program's memory: uploaded once, so evicted weights must be kept elsewhere.
    Memory,
}

impl Origin<'_> {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Origin::File(_) => "a file",
            Origin::Memory => "memory",
        }
    }

    fn weight(self, gpu: &Gpu, numbers: &Numbers, index: usize) -> Result<Tensor, Box<dyn Error>> {
        let shape = [SIZE, SIZE];
        Ok(match self {
            Origin::File(path) => {
                let source = Source::file(path, index as u64 * WEIGHT_BYTES)?;
                gpu.backed(source, &shape, DType::F32)?
            }
            Origin::Memory => {
                let start = index * SIZE * SIZE;
                gpu.tensor(&numbers.weights[start..][..SIZE * SIZE], &shape)?
            }
        })
    }
}

/// The cost and the result of one run.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) result: Vec<f32>,
    pub(crate) time: Duration,
    /// Bytes of weights written out to the host's memory or to disk.
    pub(crate) out_bytes: u64,
    /// Bytes of weights restored to the device at a use.
    pub(crate) in_bytes: u64,
    pub(crate) peak_device_bytes: u64,
    pub(crate) on_disk: bool,
}

/// Makes the weights, sends `x` through them all `PASSES` times, and reads it. Calls `done` after
/// every pass.
pub(crate) fn run(
    gpu: &Gpu,
    numbers: &Numbers,
    origin: Origin<'_>,
    mut done: impl FnMut(),
) -> Result<Run, Box<dyn Error>> {
    gpu.memory().reset_peaks();
    let before = gpu.memory().stats();
    let start = Instant::now();
    let weights = (0..WEIGHTS).map(|index| origin.weight(gpu, numbers, index));
    let weights: Vec<Tensor> = weights.collect::<Result<_, _>>()?;
    let mut x = gpu.tensor(&numbers.x, &[ROWS, SIZE])?;
    for _ in 0..PASSES {
        for weight in &weights {
            x = x.matmul(weight)?.tanh()?;
        }
        gpu.flush()?;
        done();
    }
    let result = x.to_vec()?;
    let time = start.elapsed();
    let after = gpu.memory().stats();
    Ok(Run {
        result,
        time,
        out_bytes: after.evicted_bytes - before.evicted_bytes,
        in_bytes: after.restored_bytes - before.restored_bytes,
        peak_device_bytes: after.device_bytes.peak,
        on_disk: after.disk_bytes.now > 0,
    })
}
