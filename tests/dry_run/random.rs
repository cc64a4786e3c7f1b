//! Random programs: what a dry run finds is what then happens.

use std::cell::Cell;

use lapidary::stats::DryRun;
use lapidary::{Budget, DType, Gpu, Result, Tensor};

use super::{Timing, check_timed, gpu, gpu_with};
use crate::programs::{self, Dice, Name, Program};

/// Calls of a program, and tensors that it holds.
const CALLS: u64 = 200;
const HELD: usize = 16;

type Call = fn(&mut World<'_>) -> Result<Option<Tensor>>;

struct World<'a> {
    gpu: &'a Gpu,
    program: &'a Program,
    rng: Dice,
    held: Vec<(Name, Tensor)>,
}

impl World<'_> {
    fn pick_at(&mut self) -> usize {
        let named = (0..).zip(&self.held).map(|(at, (name, _))| (*name, at));
        programs::pick(&mut self.rng, named).expect("it holds two at least")
    }

    fn pick(&mut self) -> Tensor {
        let at = self.pick_at();
        let ((step, number), tensor) = &self.held[at];
        self.program.say(format_args!(" t{step}.{number}"));
        tensor.clone()
    }

    /// A matrix of some KiB to some MiB.
    fn fresh(&mut self) -> Result<Tensor> {
        let [rows, columns] = [(); 2].map(|()| 8_usize << self.rng.u32(0..8));
        let seed = self.rng.u64(..);
        self.gpu
            .rand_uniform(&[rows, columns], -1.0, 1.0, seed, DType::F32)
    }

    fn hold(&mut self, name: Name, tensor: Tensor) {
        if self.held.len() == HELD {
            let at = self.pick_at();
            self.held.swap_remove(at);
        }
        let (step, number) = name;
        self.program
            .say(format_args!(" => t{step}.{number} {tensor}"));
        self.held.push((name, tensor));
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
            let at = p.pick_at();
            p.held.swap_remove(at);
        }
        Ok(None)
    }),
    ("flush", |p| p.gpu.flush().map(|()| None)),
    ("force", |p| p.pick().force().map(|()| None)),
    ("evict", |p| p.pick().evict().map(|()| None)),
    ("trim", |p| p.gpu.memory().trim(0).map(|_| None)),
];

/// Runs a program with some tensors that it finds.
fn run(gpu: &Gpu, program: &Program, found: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut world = World {
        gpu,
        program,
        rng: program.dice(0),
        held: (1..).map(|at| (0, at)).zip(found.iter().cloned()).collect(),
    };
    let first = world.fresh()?;
    world.hold((0, 0), first);
    for &step in &program.steps {
        world.rng = program.dice(step);
        let (name, call) = ALL[world.rng.usize(..ALL.len())];
        program.say(format_args!("\n{step:6} {name}"));
        if let Some(made) = call(&mut world)? {
            // Small, so that products of products do not grow without end.
            let rows = made.shape()[0].min(1024);
            let columns = made.shape()[1].min(1024);
            let made = made.narrow(0, 0, rows)?.narrow(1, 0, columns)?;
            world.hold((step, 0), made);
        }
    }
    program.say(format_args!("\n"));
    Ok(world.held.into_iter().map(|(_, tensor)| tensor).collect())
}

fn check(gpu: &Gpu, program: &Program, found: &[Tensor]) -> DryRun {
    let what = format!("seed {}", program.seed);
    check_timed(gpu, &what, Timing::Matters, |gpu| run(gpu, program, found))
}

#[test]
fn random_programs_take_what_their_dry_runs_found() {
    programs::check(6, CALLS, |program| {
        check(&gpu(), program, &[]);
    });
}

#[test]
fn random_programs_on_tensors_of_the_device_take_what_their_dry_runs_found() {
    programs::check_from(100, 3, CALLS, |program| {
        let gpu = gpu();
        let found: Vec<Tensor> = run(&gpu, program, &[]).unwrap();
        check(&gpu, program, &found);
    });
}

#[test]
fn random_programs_within_a_budget_evict_what_their_dry_runs_found() {
    let [evicted_bytes, slab_bytes] = [const { Cell::new(0) }; 2];
    let has_heap = Cell::new(false);
    programs::check_from(200, 4, CALLS, |program| {
        // To a heap in the host's memory, where the device can address one, and as usual.
        let gpu = gpu_with((program.seed % 2 == 1).then_some(true));
        gpu.memory().set_budget(Budget::device(24 << 20)).unwrap();
        let dry = check(&gpu, program, &[]);
        evicted_bytes.set(evicted_bytes.get() + dry.evicted_bytes);
        slab_bytes.set(slab_bytes.get() + dry.peak_host_slab_bytes);
        has_heap.set(has_heap.get() || gpu.caps().host_heap);
    });
    assert!(evicted_bytes.get() > 0);
    assert_eq!(slab_bytes.get() > 0, has_heap.get());
}
