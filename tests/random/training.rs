//! Random networks are trained while the budget moves and tensors are evicted and moved about. The
//! losses, the parameters and the optimizer's state are to the bit those of the same training with
//! all memory. Nothing exceeds the budget, and no step leaves anything behind.

mod layers;

use std::cell::Cell;

use fastrand::Rng;
use lapidary::grad::Gradients;
use lapidary::operations::Reduction;
use lapidary::optim::{AdamW, AdamWOptions, LossScaler, Sgd, SgdOptions};
use lapidary::sim::{SimHandle, SimOptions};
use lapidary::{Budget, DType, Error, Gpu, Options, Result, Tensor};

use crate::programs;
use layers::{Layer, Maker};

/// Most bytes of staging, which the budget has beside the share of the peak.
const STAGING_BYTES: u64 = 48 << 10;

const CLASSES: usize = 5;

enum Optimizer {
    AdamW(AdamW),
    Sgd(Sgd),
}

/// A training of a random network.
struct Training {
    gpu: Gpu,
    sim: SimHandle,
    rows: usize,
    width: usize,
    layers: Vec<Layer>,
    parameters: Vec<Tensor>,
    optimizer: Optimizer,
    /// A batch is computed in this many parts.
    parts: usize,
    max_norm: Option<f64>,
    scaler: Option<LossScaler>,
}

/// A device of this seed without a budget.
fn open(seed: u64) -> (Gpu, SimHandle) {
    let mut rng = Rng::with_seed(seed);
    let device = SimOptions {
        memory_bytes: 64 << 20,
        max_buffer_bytes: (256 << 10) << rng.u32(0..3),
        max_binding_bytes: 64 << 10 << rng.u32(0..3),
        offset_alignment_bytes: *rng.choice(&[32, 256]).expect("two"),
        max_immediate_bytes: *rng.choice(&[0, 128]).expect("two"),
        maps_slabs: rng.u32(..4) == 0,
        host_heap: seed % 2 == 1,
        lag_submissions: rng.u32(0..5),
        jitter: rng.bool(),
        pauses: rng.u32(0..2),
        dirty: true,
        checks_shaders: false,
        seed,
        ..SimOptions::default()
    };
    let options = Options {
        budget: Some(Budget::default()),
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(device, options).expect("a device")
}

impl Training {
    /// The training of this seed.
    fn new(seed: u64) -> Result<Self> {
        let (gpu, sim) = open(seed);
        let mut rng = Rng::with_seed(seed);
        // Now and then results take 64 KiB, from which on some are computed again.
        let (rows, width) = match rng.u32(..5) {
            0 => (1024, 16),
            _ => (16 * rng.usize(2..6), 8 * rng.usize(1..4)),
        };
        let depth = if rows > 256 { 1..3 } else { 5..10 };
        let (parts, max_norm) = (rng.usize(1..3), rng.bool().then_some(0.5));
        let (is_scaled, depth) = (rng.u32(..3) == 0, rng.usize(depth));
        let mut maker = Maker::new(&gpu, rng, width);
        let mut layers = Vec::new();
        for _ in 0..depth {
            layers.push(maker.layer()?);
        }
        layers.push(maker.last(CLASSES)?);
        let (mut rng, parameters) = maker.done();
        let options = LossScaler::new(&gpu, Default::default());
        Ok(Training {
            rows,
            width,
            layers,
            optimizer: optimizer(&mut rng, &parameters)?,
            parameters,
            parts,
            max_norm,
            scaler: is_scaled.then_some(options).transpose()?,
            gpu,
            sim,
        })
    }

    fn loss(&self, step: u64, part: usize) -> Result<Tensor> {
        let seed = step << 8 | part as u64;
        let shape = [self.rows, self.width];
        let mut x = (self.gpu).rand_normal(&shape, 0.0, 1.0, seed, DType::F32)?;
        let targets = x.narrow(1, 0, CLASSES)?.argmax(1)?;
        for layer in &self.layers {
            x = layer(&x)?;
        }
        let loss = x.cross_entropy(&targets, None, Reduction::Mean)?;
        loss / self.parts as f64
    }

    /// A step, with this between its calls. Returns the loss of its last part.
    fn step(
        &mut self,
        step: u64,
        mut between: impl FnMut(&Training) -> Result<()>,
    ) -> Result<Tensor> {
        let mut gradients = Gradients::default();
        let mut last = self.gpu.zeros(&[], DType::F32)?;
        for part in 0..self.parts {
            let loss = self.loss(step, part)?;
            last = loss.detach();
            between(self)?;
            let scaled = match &self.scaler {
                Some(scaler) => scaler.scale(&loss)?,
                None => loss,
            };
            scaled.backprop().add_to(&mut gradients)?;
            between(self)?;
        }
        if let Some(scaler) = &mut self.scaler {
            scaler.unscale(&mut gradients)?;
        }
        if let Some(max_norm) = self.max_norm {
            gradients.clip_global_norm(max_norm)?;
        }
        match (&mut self.optimizer, &mut self.scaler) {
            (Optimizer::AdamW(adam), Some(scaler)) => adam.step_scaled(&gradients, scaler)?,
            (Optimizer::AdamW(adam), None) => adam.step(&gradients)?,
            (Optimizer::Sgd(sgd), Some(scaler)) => sgd.step_scaled(&gradients, scaler)?,
            (Optimizer::Sgd(sgd), None) => sgd.step(&gradients)?,
        }
        if let Some(scaler) = &mut self.scaler {
            scaler.update()?;
        }
        between(self)?;
        Ok(last)
    }

    /// The parameters, and the state of the optimizer.
    fn tensors(&self) -> Vec<Tensor> {
        let state = match &self.optimizer {
            Optimizer::AdamW(adam) => adam.state("adam"),
            Optimizer::Sgd(sgd) => sgd.state("sgd"),
        };
        let state = state.into_iter().map(|(_, tensor)| tensor);
        self.parameters.iter().cloned().chain(state).collect()
    }

    fn bits(&self) -> Result<Vec<Vec<u32>>> {
        let bits = |tensor: Tensor| match tensor.dtype() {
            DType::U32 => tensor.to_vec::<u32>(),
            _ => {
                let floats = tensor.detach().cast(DType::F32)?.to_vec::<f32>()?;
                Ok(floats.into_iter().map(f32::to_bits).collect())
            }
        };
        self.tensors().into_iter().map(bits).collect()
    }

    /// Checks that nothing stays alive.
    fn end(self) {
        let Training { gpu, sim, .. } = self;
        drop((self.layers, self.parameters, self.optimizer, self.scaler));
        gpu.finish().expect("a device");
        let stats = gpu.memory().stats();
        let left = [stats.live_bytes, stats.host_bytes, stats.spilled_bytes];
        assert_eq!(left.map(|level| level.now), [0; 3], "{stats}");
        drop(gpu);
        assert_eq!(sim.counters().buffers_live, 0);
        assert_eq!(sim.complaints(), [""; 0]);
    }
}

fn optimizer(rng: &mut Rng, parameters: &[Tensor]) -> Result<Optimizer> {
    let parameters: Vec<&Tensor> = parameters.iter().collect();
    let state_dtype = *rng.choice(&[DType::F32, DType::Bf16]).expect("two");
    Ok(match rng.u32(..4) {
        0 => Optimizer::Sgd(Sgd::new(
            &parameters,
            SgdOptions {
                lr: 0.05,
                ..SgdOptions::default()
            },
        )?),
        1 => Optimizer::Sgd(Sgd::new(
            &parameters,
            SgdOptions {
                lr: 0.02,
                momentum: 0.9,
                nesterov: rng.bool(),
                state_dtype,
                ..SgdOptions::default()
            },
        )?),
        _ => Optimizer::AdamW(AdamW::new(
            &parameters,
            AdamWOptions {
                lr: 0.01,
                betas: (0.9, 0.99),
                state_dtype,
                ..AdamWOptions::default()
            },
        )?),
    })
}

/// What a training with all memory gives, and what it takes.
struct Known {
    losses: Vec<u32>,
    bits: Vec<Vec<u32>>,
    /// Between two steps.
    live_bytes: u64,
    peak_bytes: u64,
}

fn known(seed: u64, steps: u64) -> Result<Known> {
    let mut training = Training::new(seed)?;
    let (mut losses, mut live_bytes) = (Vec::new(), None);
    for step in 0..steps {
        let loss = training.step(step, |_| Ok(()))?.item::<f32>()?;
        assert!(loss.is_finite(), "step {step}: {loss}");
        losses.push(loss.to_bits());
        training.gpu.finish()?;
        let stats = training.gpu.memory().stats();
        let before = *live_bytes.get_or_insert(stats.live_bytes.now);
        assert_eq!(stats.live_bytes.now, before, "after step {step}: {stats}");
        assert_eq!(stats.saved_bytes, 0, "after step {step}: {stats}");
    }
    let peak_bytes = training.gpu.memory().stats().live_bytes.peak;
    let bits = training.bits()?;
    training.end();
    Ok(Known {
        losses,
        bits,
        live_bytes: live_bytes.expect("some steps"),
        peak_bytes,
    })
}

/// What happens to the memory between two calls of a training.
struct Disturbance {
    rng: Rng,
    peak_bytes: u64,
    /// The least share of the peak, in percent, in which each command finds room.
    least_share: u64,
    limit_bytes: u64,
}

impl Disturbance {
    fn new(seed: u64, peak_bytes: u64) -> Result<Self> {
        let mut disturbance = Disturbance {
            rng: Rng::with_seed(seed),
            peak_bytes,
            least_share: 30,
            limit_bytes: 0,
        };
        while !disturbance.has_room(seed)? {
            disturbance.least_share += 10;
            assert!(disturbance.least_share <= 100, "it has run in the peak");
        }
        Ok(disturbance)
    }

    /// Does each command find room in the least share?
    fn has_room(&self, seed: u64) -> Result<bool> {
        let mut training = Training::new(seed)?;
        let gpu = training.gpu.clone();
        let found = gpu.dry_run(|gpu| {
            gpu.memory().set_budget(self.budget(self.least_share))?;
            training.step(0, |_| Ok(()))
        });
        match found {
            Ok(_) => Ok(true),
            Err(Error::OutOfMemory(_) | Error::NeverFits { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn budget(&self, share: u64) -> Budget {
        Budget {
            staging_bytes: Some(STAGING_BYTES),
            ..Budget::device(self.peak_bytes * share / 100 + STAGING_BYTES)
        }
    }

    fn happen(&mut self, training: &Training) -> Result<()> {
        let memory = training.gpu.memory();
        match self.rng.u32(..10) {
            0..3 => self.move_budget(training)?,
            3 | 4 => {
                let tensors = training.tensors();
                let tensor = &tensors[self.rng.usize(..tensors.len())];
                tensor.evict()?;
            }
            5 => {
                let tensors = training.tensors();
                tensors[self.rng.usize(..tensors.len())].prefetch()?;
            }
            6 => {
                let limit_bytes = *self.rng.choice(&[1 << 10, 1 << 14, u64::MAX]).expect("3");
                memory.compact(limit_bytes)?;
            }
            7 => drop(memory.trim(self.rng.u64(..self.peak_bytes))?),
            8 => training.gpu.finish()?,
            _ => {}
        }
        Ok(())
    }

    /// The budget becomes at most 120 % of the peak, and at least 30 % if that is possible.
    fn move_budget(&mut self, training: &Training) -> Result<()> {
        let share = self.rng.u64(self.least_share..=120);
        let budget = self.budget(share);
        self.limit_bytes = budget.device_bytes.expect("it has a limit");
        let memory = training.gpu.memory();
        let shortfall_bytes = memory.set_budget(budget)?;
        assert_eq!(shortfall_bytes, 0, "{share} %: {}", memory.stats());
        memory.reset_peaks();
        Ok(())
    }

    fn check(&self, training: &Training, live_bytes: u64) -> Result<()> {
        training.gpu.finish()?;
        let stats = training.gpu.memory().stats();
        assert_eq!(stats.queued, 0, "{stats}");
        assert!(stats.device_bytes.peak <= self.limit_bytes, "{stats}");
        assert_eq!(stats.saved_bytes, 0, "{stats}");
        assert!(stats.live_bytes.now <= live_bytes, "{stats}");
        assert!(stats.host_bytes.now <= live_bytes, "{stats}");
        Ok(())
    }
}

/// Trains with all memory and within a budget that moves. Returns the bytes that left the device.
fn run(seed: u64) -> Result<u64> {
    let steps = 3 + seed % 3;
    let known = known(seed, steps)?;
    let mut training = Training::new(seed)?;
    let mut disturbance = Disturbance::new(seed, known.peak_bytes)?;
    disturbance.move_budget(&training)?;
    for (step, expected) in (0..).zip(&known.losses) {
        let loss = training.step(step, |training| disturbance.happen(training));
        let loss = loss?.item::<f32>()?;
        assert_eq!(loss.to_bits(), *expected, "the loss of step {step}: {loss}");
        disturbance.check(&training, known.live_bytes)?;
    }
    assert!(training.bits()? == known.bits, "other parameters or state");
    let stats = training.gpu.memory().stats();
    training.end();
    Ok(stats.evicted_bytes + stats.dropped_bytes + stats.recomputed_bytes)
}

#[test]
fn random_trainings_are_the_same_to_the_bit_under_a_budget_that_moves() {
    let left_bytes = Cell::new(0);
    programs::check(5, 0, |program| {
        let bytes = run(program.seed).unwrap_or_else(|error| panic!("{error}"));
        left_bytes.set(left_bytes.get() + bytes);
    });
    assert!(left_bytes.get() > 0);
}
