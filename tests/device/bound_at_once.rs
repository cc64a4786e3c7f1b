//! Several threads bind the same tensors and their own ones at once, each in passes of its own.
//! Meanwhile they write in place, evict and compact.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use lapidary::interop::Access;
use lapidary::{Error, Gpu, Result, Tensor, wgpu};

use super::apart::{ADD, Listening, filled, holds};

const THREADS: u64 = 4;

/// What the threads share.
struct Common<'a> {
    listening: &'a Listening,
    gpu: &'a Gpu,
    pipeline: &'a wgpu::ComputePipeline,
    /// All threads read it, and nobody writes it.
    ones: &'a Tensor,
    /// All threads add to it.
    sum: &'a Tensor,
    added: AtomicU32,
}

impl Common<'_> {
    /// Adds 2 to a tensor in a pass of the app. Returns what was added: 0 if other threads held the
    /// operands so that they could not be set apart.
    fn pass_over(&self, sum: &Tensor) -> Result<u32> {
        let operands = [(self.ones, Access::Read), (sum, Access::Write)];
        let done = self.gpu.with_bound(&operands, |bound| {
            assert_ne!(bound[0].buffer, bound[1].buffer);
            vec![self.listening.app.pass(self.pipeline, bound.ranges(), 8)]
        });
        match done {
            Ok(()) => Ok(2),
            Err(Error::OutOfMemory(_) | Error::Buffer { .. }) => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn bind_to_read(&self, own: &Tensor) -> Result<()> {
        let operands = [(own, Access::Read), (self.sum, Access::Read)];
        match self.gpu.with_bound(&operands, |_| Vec::new()) {
            Err(Error::OutOfMemory(_)) => Ok(()),
            done => done,
        }
    }

    fn run(&self, seed: u64, own: &Tensor) -> Result<()> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut value = 0;
        for _ in 0..100 {
            let evicted = *rng.choice(&[self.ones, self.sum, own]).expect("three");
            match rng.u32(..8) {
                0 => {
                    own.add_(1.0)?;
                    value += 1;
                }
                1 => {
                    self.sum.add_(1.0)?;
                    self.added.fetch_add(1, Ordering::Relaxed);
                }
                2 => match evicted.evict() {
                    Ok(()) | Err(Error::Pinned { .. }) => {}
                    Err(error) => return Err(error),
                },
                3 => drop(self.gpu.memory().compact(1 << 20)?),
                4 => self.bind_to_read(own)?,
                5 => holds(own, value as f32),
                6 => value += self.pass_over(own)?,
                _ => {
                    let added = self.pass_over(self.sum)?;
                    self.added.fetch_add(added, Ordering::Relaxed);
                }
            }
        }
        holds(own, value as f32);
        Ok(())
    }
}

#[test]
fn threads_bind_the_same_tensors_while_others_write_and_evict_them() -> Result<()> {
    let listening = Listening::open();
    let pipeline = listening.app.compute(ADD);
    for (bytes, gpu) in [
        (16 << 10, listening.app.gpu()),
        // All fit together, but hardly in several slabs.
        (1 << 20, listening.with_budget(8 << 20)),
    ] {
        let (ones, sum) = (filled(&gpu, bytes, 1.0), filled(&gpu, bytes, 0.0));
        let own: Vec<Tensor> = (0..THREADS).map(|_| filled(&gpu, bytes, 0.0)).collect();
        let common = Common {
            listening: &listening,
            gpu: &gpu,
            pipeline: &pipeline,
            ones: &ones,
            sum: &sum,
            added: AtomicU32::new(0),
        };
        thread::scope(|scope| {
            let threads = (0..).zip(&own);
            let threads = threads.map(|(seed, own)| {
                scope.spawn({
                    let common = &common;
                    move || common.run(seed, own)
                })
            });
            let threads: Vec<_> = threads.collect();
            threads
                .into_iter()
                .try_for_each(|one| one.join().expect("no panic"))
        })?;
        let added = common.added.into_inner();
        assert!(added > 50, "{added}");
        holds(&sum, added as f32);
        holds(&ones, 1.0);
        // A thread that has nothing pinned any more leaves nothing behind.
        sum.evict()?;
        ones.evict()?;
    }
    Ok(())
}
