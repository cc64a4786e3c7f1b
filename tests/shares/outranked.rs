//! Threads of different priorities on one small device: whatever passes what, every value stays.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fastrand::Rng;
use lapidary::shares::{Share, ShareOptions};
use lapidary::sim::SimOptions;
use lapidary::{Budget, DType, Gpu, Options, Tensor};

use super::MIB;
use crate::programs::number;

/// Elements of the smallest tensor, of 16 KiB. The others have up to 64 times as many.
const LEN: usize = 4096;

/// A tensor whose elements all have this value.
struct Held {
    tensor: Tensor,
    value: f32,
    /// Others may read it, or some may be computed from it again, so it keeps this value.
    is_final: bool,
}

impl Held {
    fn new(tensor: Tensor, value: f32) -> Held {
        Held {
            tensor,
            value,
            is_final: false,
        }
    }

    fn check(&self) {
        let elements = self.tensor.to_vec::<f32>().unwrap();
        assert!(elements.iter().all(|one| *one == self.value));
    }
}

/// A share, and what others have lent to it.
struct Party {
    gpu: Share,
    lent: Mutex<Vec<Held>>,
}

/// What one thread does: a random program over tensors of its own share, and over loans.
fn program(parties: &[Party], own: usize, seed: u64, steps: u64) {
    let gpu = &parties[own].gpu;
    let mut rng = Rng::with_seed(seed);
    let mut held: Vec<Held> = Vec::new();
    for step in 0..steps {
        if held.len() > 24 {
            held.swap_remove(rng.usize(..held.len()));
        }
        let at = rng.usize(..held.len().max(1));
        let one = held.get(at);
        match (rng.u32(..16), one) {
            (0 | 1, _) | (_, None) => {
                let (value, len) = (step as f32, LEN << rng.u32(..8));
                let tensor = gpu.full(&[len], value, DType::F32).unwrap();
                held.push(Held::new(tensor, value));
            }
            (2 | 3, Some(one)) => {
                let (tensor, value) = ((&one.tensor + 1.0).unwrap(), one.value + 1.0);
                held.push(Held::new(tensor, value));
            }
            (4, Some(_)) => {
                // The operand has no other holder, so its memory may become the result's.
                let one = held.swap_remove(at);
                let tensor = (one.tensor * 2.0).unwrap();
                let value = one.value * 2.0;
                held.push(Held::new(tensor, value));
            }
            (5, Some(one)) => {
                let other = &held[rng.usize(..held.len())];
                if other.tensor.shape() == one.tensor.shape() {
                    let tensor = (&one.tensor + &other.tensor).unwrap();
                    let value = one.value + other.value;
                    held.push(Held::new(tensor, value));
                }
            }
            (6, Some(one)) => {
                let (tensor, value) = ((&one.tensor + 3.0).unwrap(), one.value + 3.0);
                let inputs = &[&one.tensor];
                tensor
                    .recompute_with(inputs, |inputs| &inputs[0] + 3.0)
                    .unwrap();
                held[at].is_final = true;
                held.push(Held::new(tensor, value));
            }
            (7, Some(one)) => one.tensor.evict().unwrap(),
            (8, Some(one)) => one.tensor.prefetch().unwrap(),
            (9, Some(one)) => one.check(),
            (11, Some(one)) if !one.is_final => {
                one.tensor.add_(2.0).unwrap();
                held[at].value += 2.0;
            }
            (12 | 13, Some(one)) => {
                let party = &parties[rng.usize(..parties.len())];
                let tensor = one.tensor.lend_to(&party.gpu).unwrap();
                let value = one.value;
                held[at].is_final = true;
                let mut lent = party.lent.lock().unwrap();
                if lent.len() < 8 {
                    lent.push(Held::new(tensor, value));
                }
            }
            (14, Some(_)) => {
                let loan = parties[own].lent.lock().unwrap().pop();
                let Some(Held {
                    tensor: loan,
                    value,
                    ..
                }) = loan
                else {
                    continue;
                };
                let (tensor, value) = ((&loan + 5.0).unwrap(), value + 5.0);
                if rng.bool() {
                    tensor
                        .recompute_with(&[&loan], |inputs| &inputs[0] + 5.0)
                        .unwrap();
                }
                held.push(Held::new(tensor, value));
            }
            (10, Some(_)) => drop(held.swap_remove(at)),
            (_, Some(_)) => gpu.flush().unwrap(),
        }
    }
    held.iter().for_each(Held::check);
}

/// The budget while the programs run, or a lower one.
fn budget(device_bytes: u64) -> Budget {
    Budget {
        host_bytes: Some(8 * MIB),
        staging_bytes: Some(MIB),
        ..Budget::device(device_bytes)
    }
}

/// Lowers and raises ceilings and the budget while the programs run. Each limit leaves room for the
/// largest command.
fn limits(gpu: &Gpu, parties: &[Party], seed: u64, is_over: &AtomicBool) {
    let mut rng = Rng::with_seed(seed);
    while !is_over.load(Ordering::Relaxed) {
        match rng.usize(..4) {
            3 => {
                let lower = budget(rng.u64(8..=9) * MIB);
                gpu.memory().set_budget(lower).unwrap();
            }
            at => {
                let share = ShareOptions::guaranteed(MIB).with_ceiling(rng.u64(6..=7) * MIB);
                parties[at].gpu.resize(share).unwrap();
            }
        }
        thread::yield_now();
    }
}

/// Three threads, each with a share of another priority. Together they want more than there is. A
/// fourth one changes limits.
fn run(seed: u64, steps: u64, maps_slabs: bool) {
    let device = SimOptions {
        dirty: true,
        jitter: true,
        lag_submissions: (seed % 3) as u32,
        maps_slabs,
        host_heap: seed % 2 == 1,
        seed,
        ..SimOptions::default()
    };
    let options = Options {
        budget: Some(budget(9 * MIB)),
        ..Options::from_env().unwrap()
    };
    let (gpu, _) = Gpu::simulated_with(device, options).unwrap();
    let parties = [-1, 0, 1].map(|priority| {
        let share = ShareOptions::guaranteed(MIB).with_priority(priority);
        Party {
            gpu: gpu.share(&format!("of {priority}"), share).unwrap(),
            lent: Mutex::default(),
        }
    });
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| limits(&gpu, &parties, seed, &is_over));
        let running = (0..parties.len()).map(|own| {
            let (parties, seed) = (&parties, seed.wrapping_mul(3) + own as u64);
            scope.spawn(move || program(parties, own, seed, steps))
        });
        let running: Vec<_> = running.collect();
        let ended = running.into_iter().map(|one| one.join());
        let ended: Vec<_> = ended.collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a program has failed");
    });
    for party in &parties {
        party.lent.lock().unwrap().iter().for_each(Held::check);
    }
    drop(parties);
    gpu.finish().unwrap();
    assert_eq!(gpu.memory().stats().live_bytes.now, 0);
}

#[test]
fn whatever_is_outranked_keeps_its_values() {
    let seed = number("LAPIDARY_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    let steps = number("LAPIDARY_STEPS").unwrap_or(200);
    eprintln!("LAPIDARY_SEED={seed} LAPIDARY_STEPS={steps}");
    for (part, maps_slabs) in [(0, false), (1, true)] {
        run(seed + part, steps / 2, maps_slabs);
    }
}
