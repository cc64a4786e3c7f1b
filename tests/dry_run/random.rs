//! Random programs: what a dry run finds is what then happens.

use fastrand::Rng;
use lapidary::stats::DryRun;
use lapidary::{Budget, DType, Gpu, Result, Tensor};

use super::{Timing, check_timed, gpu, gpu_with};

/// Calls of a program, and tensors that it holds.
const CALLS: usize = 200;
const HELD: usize = 16;

type Call = fn(&mut Program<'_>) -> Result<Option<Tensor>>;

struct Program<'a> {
    gpu: &'a Gpu,
    rng: Rng,
    held: Vec<Tensor>,
}

impl Program<'_> {
    fn pick(&mut self) -> Tensor {
        let index = self.rng.usize(..self.held.len());
        self.held[index].clone()
    }

    /// A matrix of some KiB to some MiB.
    fn fresh(&mut self) -> Result<Tensor> {
        let [rows, columns] = [(); 2].map(|()| 8_usize << self.rng.u32(0..8));
        let seed = self.rng.u64(..);
        self.gpu
            .rand_uniform(&[rows, columns], -1.0, 1.0, seed, DType::F32)
    }

    fn hold(&mut self, tensor: Tensor) {
        if self.held.len() == HELD {
            let index = self.rng.usize(..HELD);
            self.held.swap_remove(index);
        }
        self.held.push(tensor);
    }
}

const ALL: &[(&str, Call)] = &[
    ("fresh", |p| p.fresh().map(Some)),
    ("upload", |p| {
        let len = 1 << p.rng.u32(4..18);
        p.gpu.tensor(&vec![0.5_f32; len], &[len / 8, 8]).map(Some)
    }),
    ("chain", |p| ((p.pick() * 2.0)? + 1.0)?.relu().map(Some)),
    ("exp", |p| p.pick().exp().map(Some)),
    ("add a row", |p| {
        let x = p.pick();
        let row = x.mean(&[0])?;
        (x + row).map(Some)
    }),
    ("products", |p| {
        let x = p.pick();
        x.t()?.matmul(&x).map(Some)
    }),
    ("softmax", |p| p.pick().softmax(-1).map(Some)),
    ("norm", |p| {
        let x = p.pick();
        x.layer_norm(&[x.shape()[1]], None, None, 1e-5).map(Some)
    }),
    ("copy of a view", |p| p.pick().t()?.contiguous().map(Some)),
    ("concat", |p| {
        let x = p.pick();
        Tensor::concat(&[&x, &x], 0)?.narrow(0, 0, 1).map(Some)
    }),
    ("cumsum", |p| p.pick().cumsum(0).map(Some)),
    ("cast", |p| {
        let x = p.pick();
        x.cast(DType::F16)?.cast(DType::F32).map(Some)
    }),
    ("in place", |p| {
        p.pick().mul_(&p.gpu.scalar(0.5_f32)?).map(|()| None)
    }),
    ("fill", |p| p.pick().select(0, 0)?.fill_(1.0).map(|()| None)),
    ("gradient", |p| {
        let w = p.pick().copy()?.requires_grad()?;
        let loss = w.square()?.sum_all()?;
        Ok(loss.backward()?.get(&w))
    }),
    ("checkpoint", |p| {
        let w = p.pick().copy()?.requires_grad()?;
        let made = p.gpu.checkpoint(&[&w], |x| x[0].exp()?.square()?.tanh())?;
        Ok(made.sum_all()?.backward()?.get(&w))
    }),
    ("drop", |p| {
        if p.held.len() > 2 {
            let index = p.rng.usize(..p.held.len());
            p.held.swap_remove(index);
        }
        Ok(None)
    }),
    ("flush", |p| p.gpu.flush().map(|()| None)),
    ("force", |p| p.pick().force().map(|()| None)),
    ("evict", |p| p.pick().evict().map(|()| None)),
    ("trim", |p| p.gpu.memory().trim(0).map(|_| None)),
];

/// The program of a seed, with some tensors that it finds.
fn run(gpu: &Gpu, seed: u64, found: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut program = Program {
        gpu,
        rng: Rng::with_seed(seed),
        held: found.to_vec(),
    };
    let first = program.fresh()?;
    program.hold(first);
    for _ in 0..CALLS {
        let (_, call) = ALL[program.rng.usize(..ALL.len())];
        if let Some(made) = call(&mut program)? {
            // Small, so that products of products do not grow without end.
            let rows = made.shape()[0].min(1024);
            let columns = made.shape()[1].min(1024);
            let made = made.narrow(0, 0, rows)?.narrow(1, 0, columns)?;
            program.hold(made);
        }
    }
    Ok(program.held)
}

#[track_caller]
fn check_random<T>(gpu: &Gpu, seed: u64, program: impl Fn(&Gpu) -> Result<T>) -> DryRun {
    check_timed(gpu, &format!("seed {seed}"), Timing::Matters, program)
}

#[test]
fn random_programs_take_what_their_dry_runs_found() {
    for seed in 0..6 {
        let gpu = gpu();
        check_random(&gpu, seed, |gpu| run(gpu, seed, &[]));
    }
}

#[test]
fn random_programs_on_tensors_of_the_device_take_what_their_dry_runs_found() {
    for seed in 100..103 {
        let gpu = gpu();
        let found = run(&gpu, seed, &[]).unwrap();
        check_random(&gpu, seed, |gpu| run(gpu, seed + 1000, &found));
    }
}

#[test]
fn random_programs_within_a_budget_evict_what_their_dry_runs_found() {
    let (mut evicted_bytes, mut slab_bytes, mut has_heap) = (0, 0, false);
    for seed in 200..204 {
        // To a heap in the host's memory, where the device can address one, and as usual.
        let gpu = gpu_with((seed % 2 == 1).then_some(true));
        gpu.memory().set_budget(Budget::device(24 << 20)).unwrap();
        let dry = check_random(&gpu, seed, |gpu| run(gpu, seed, &[]));
        evicted_bytes += dry.evicted_bytes;
        slab_bytes += dry.peak_host_slab_bytes;
        has_heap |= gpu.caps().host_heap;
    }
    assert!(evicted_bytes > 0);
    assert_eq!(slab_bytes > 0, has_heap);
}
