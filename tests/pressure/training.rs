//! A training within little memory. Every call of the driver fails in every way, and functions of
//! the app fail and panic. There are no partial gradients, what existed keeps its elements, nothing
//! stays saved, and the next backward gives the same to the bit.

mod backward;
mod frames;
mod hooks;
mod step;

use std::sync::Arc;

use lapidary::grad::Gradients;
use lapidary::operations::Reduction;
use lapidary::sim::{SimHandle, SimOptions, Speed};
use lapidary::{Budget, DType, Error, Gpu, Options, Result, Source, Tensor};

use crate::random::orders::folder;

const ROWS: usize = 128;
const CLASSES: usize = 4;

/// Results of this width take 64 KiB. So those that are cheap to compute are computed again.
const WIDE: usize = 128;

/// Results of this width are kept.
const NARROW: usize = 64;

const BUDGET_BYTES: u64 = 320 << 10;

/// Two blocks of four, what scales their results in place, and the last layer.
const SHAPES: [&[usize]; 10] = [
    &[CLASSES, WIDE],
    &[WIDE],
    &[WIDE],
    &[WIDE, CLASSES],
    &[CLASSES, NARROW],
    &[NARROW],
    &[NARROW],
    &[NARROW, CLASSES],
    &[2],
    &[CLASSES, CLASSES],
];

/// Evicting costs less here than computing again.
const FAST_LINK: Speed = Speed {
    upload_bytes_per_s: 1 << 40,
    download_bytes_per_s: 1 << 40,
    memory_bytes_per_s: 1 << 20,
    multiply_adds_per_s: 1 << 20,
    copy_ns: 0,
    submission_ns: 0,
};

/// Computing again costs less here than evicting.
const FAST_KERNELS: Speed = Speed {
    upload_bytes_per_s: 1 << 20,
    download_bytes_per_s: 1 << 20,
    memory_bytes_per_s: 1 << 40,
    multiply_adds_per_s: 1 << 44,
    copy_ns: 0,
    submission_ns: 0,
};

fn open(speed: Speed, budget: Budget) -> (Gpu, SimHandle) {
    let device = SimOptions {
        max_buffer_bytes: 256 << 10,
        offset_alignment_bytes: 32,
        dirty: true,
        checks_shaders: false,
        speed: Some(speed),
        ..SimOptions::default()
    };
    let options = Options {
        budget: Some(budget),
        spill_folder: Some(folder()),
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(device, options).expect("a device")
}

fn open_tight(speed: Speed) -> (Gpu, SimHandle) {
    open(
        speed,
        Budget {
            host_bytes: Some(128 << 10),
            ..Budget::device(BUDGET_BYTES)
        },
    )
}

/// The elements of a tensor, as they are.
fn bits(tensor: &Tensor) -> Result<Vec<u32>> {
    match tensor.dtype() {
        DType::U32 => tensor.to_vec::<u32>(),
        _ => {
            let floats = tensor.to_vec::<f32>()?;
            Ok(floats.into_iter().map(f32::to_bits).collect())
        }
    }
}

/// A function of the app that sees tensors amid a training.
type Hook = Arc<dyn Fn(&Tensor) -> Result<Tensor> + Send + Sync>;

/// Executes what was recorded so far, so that an error of the driver ends the backward.
fn executed() -> Hook {
    Arc::new(|gradient| {
        gradient.force()?;
        Ok(gradient.clone())
    })
}

/// A network whose tensors have a source, so that they outlive their device.
struct Network {
    gpu: Gpu,
    x: Tensor,
    targets: Tensor,
    parameters: Vec<Tensor>,
    /// The elements of all of them.
    known: Vec<Vec<u32>>,
    hook: Hook,
}

impl Network {
    fn new(gpu: &Gpu, hook: Hook) -> Result<Self> {
        let mut known = Vec::new();
        let mut backed = |words: Vec<u32>, shape: &[usize], dtype: DType| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            known.push(words);
            gpu.backed(Source::bytes(bytes.into()), shape, dtype)
        };
        let mut rng = fastrand::Rng::with_seed(7);
        let mut floats = |shape: &[usize]| -> Vec<u32> {
            let count = shape.iter().product();
            let float = |_| (rng.f32() - 0.5).to_bits();
            (0..count).map(float).collect()
        };
        let x = backed(floats(&[ROWS, CLASSES]), &[ROWS, CLASSES], DType::F32)?;
        let targets = (0..ROWS as u32).map(|row| row * row % CLASSES as u32);
        let targets = backed(targets.collect(), &[ROWS], DType::U32)?;
        let parameter = |shape: &&[usize]| backed(floats(shape), shape, DType::F32);
        let parameters = SHAPES.iter().map(parameter);
        let parameters = parameters.map(|made| made?.requires_grad());
        Ok(Network {
            gpu: gpu.clone(),
            x,
            targets,
            parameters: parameters.collect::<Result<_>>()?,
            known,
            hook,
        })
    }

    fn loss(&self) -> Result<Tensor> {
        let [blocks @ .., scale, last] = &self.parameters[..] else {
            unreachable!("there are ten");
        };
        let mut y = self.x.clone();
        for block in blocks.chunks(4) {
            let h = (y.matmul(&block[0])? + &block[1])?.silu()?;
            let h = h.rms_norm(block[2].shape(), Some(&block[2]), 1e-5)?;
            self.watch(&h)?;
            y = h.matmul(&block[3])?.gelu()?;
            self.watch(&y)?;
            y.narrow(1, 0, 2)?.mul_(scale)?;
        }
        let (last, hook) = (last.clone(), Arc::clone(&self.hook));
        let logits = self.gpu.checkpoint(&[&y], move |y| {
            hook(&y[0].softmax(-1)?)?.linear(&last, None)
        })?;
        logits.cross_entropy(&self.targets, None, Reduction::Mean)
    }

    fn watch(&self, tensor: &Tensor) -> Result<()> {
        let hook = Arc::clone(&self.hook);
        tensor.on_gradient(move |gradient| hook(gradient))
    }

    /// The gradients of all parameters.
    fn bits_of(&self, gradients: &Gradients) -> Vec<Result<Vec<u32>>> {
        let of = |parameter: &Tensor| {
            let gradient = gradients.get(parameter);
            bits(&gradient.expect("the loss depends on it"))
        };
        self.parameters.iter().map(of).collect()
    }

    /// All tensors from before have their elements.
    fn check(&self, name: &str) {
        let all = [&self.x, &self.targets].into_iter().chain(&self.parameters);
        for (tensor, known) in all.zip(&self.known) {
            match bits(tensor) {
                Ok(got) => assert!(got == *known, "{name}: wrong bytes in {tensor}"),
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }

    /// A backward from the beginning gives these gradients. With `may_fail`, or errors.
    fn check_backward(&self, name: &str, expected: &[Vec<u32>], may_fail: bool) {
        let gradients = self.loss().and_then(|loss| loss.backward());
        match gradients {
            Ok(gradients) => check_all(name, self.bits_of(&gradients), expected, may_fail),
            Err(error) => assert!(may_fail, "{name}: {error}"),
        }
        self.check_saved(name);
    }

    /// No backward is to come, so nothing is saved for one.
    fn check_saved(&self, name: &str) {
        let finished = self.gpu.finish();
        finished.unwrap_or_else(|error| panic!("{name}: {error}"));
        let stats = self.gpu.memory().stats();
        assert_eq!(stats.saved_bytes, 0, "{name}: {stats}");
    }
}

/// These are the expected elements. With `may_fail`, or errors.
fn check_all(name: &str, got: Vec<Result<Vec<u32>>>, expected: &[Vec<u32>], may_fail: bool) {
    assert_eq!(got.len(), expected.len(), "{name}");
    for (number, (got, expected)) in got.into_iter().zip(expected).enumerate() {
        match got {
            Ok(got) => assert!(got == *expected, "{name}: wrong bytes in number {number}"),
            Err(error) => assert!(may_fail, "{name}: {error}"),
        }
    }
}

fn is_lost(gpu: &Gpu) -> bool {
    matches!(gpu.flush(), Err(Error::DeviceLost { .. }))
}

/// Nothing is alive any more, nothing exceeded the budget, and no rule was broken.
fn end(name: &str, gpu: Gpu, sim: &SimHandle) {
    let finished = gpu.finish();
    finished.unwrap_or_else(|error| panic!("{name}: {error}"));
    let stats = gpu.memory().stats();
    assert_eq!(
        (stats.live_bytes.now, stats.queued),
        (0, 0),
        "{name}: {stats}"
    );
    let elsewhere = (stats.host_bytes.now, stats.spilled_bytes.now);
    assert_eq!(elsewhere, (0, 0), "{name}: {stats}");
    drop(gpu);
    let counters = sim.counters();
    assert!(counters.peak_bytes <= BUDGET_BYTES, "{name}");
    assert_eq!(counters.buffers_live, 0, "{name}");
    assert_eq!(sim.complaints(), [""; 0], "{name}");
}
