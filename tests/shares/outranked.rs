//! Threads of different priorities on one small device: whatever passes what, every value stays.

use std::thread;

use fastrand::Rng;
use lapidary::shares::Share;
use lapidary::sim::SimOptions;
use lapidary::{Budget, DType, Gpu, Options, Tensor};

use super::MIB;
use crate::pressure::number;

/// Elements of the smallest tensor, of 16 KiB. The others have up to 64 times as many.
const LEN: usize = 4096;

/// A tensor whose elements all have this value.
struct Held {
    tensor: Tensor,
    value: f32,
}

impl Held {
    fn check(&self) {
        let elements = self.tensor.to_vec::<f32>().unwrap();
        assert!(elements.iter().all(|one| *one == self.value));
    }
}

/// What one thread does: a random program over tensors of its own share.
fn program(gpu: &Gpu, seed: u64, steps: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut held: Vec<Held> = Vec::new();
    for step in 0..steps {
        if held.len() > 24 {
            held.swap_remove(rng.usize(..held.len()));
        }
        let at = rng.usize(..held.len().max(1));
        let one = held.get(at);
        match (rng.u32(..12), one) {
            (0 | 1, _) | (_, None) => {
                let (value, len) = (step as f32, LEN << rng.u32(..7));
                let tensor = gpu.full(&[len], value, DType::F32).unwrap();
                held.push(Held { tensor, value });
            }
            (2 | 3, Some(one)) => {
                let (tensor, value) = ((&one.tensor + 1.0).unwrap(), one.value + 1.0);
                held.push(Held { tensor, value });
            }
            (4, Some(_)) => {
                // The operand has no other holder, so its memory may become the result's.
                let one = held.swap_remove(at);
                let tensor = (one.tensor * 2.0).unwrap();
                let value = one.value * 2.0;
                held.push(Held { tensor, value });
            }
            (5, Some(one)) => {
                let other = &held[rng.usize(..held.len())];
                if other.tensor.shape() == one.tensor.shape() {
                    let tensor = (&one.tensor + &other.tensor).unwrap();
                    let value = one.value + other.value;
                    held.push(Held { tensor, value });
                }
            }
            (6, Some(one)) => {
                let (tensor, value) = ((&one.tensor + 3.0).unwrap(), one.value + 3.0);
                let inputs = &[&one.tensor];
                tensor
                    .recompute_with(inputs, |inputs| &inputs[0] + 3.0)
                    .unwrap();
                held.push(Held { tensor, value });
            }
            (7, Some(one)) => one.tensor.evict().unwrap(),
            (8, Some(one)) => one.tensor.prefetch().unwrap(),
            (9, Some(one)) => one.check(),
            (10, Some(_)) => drop(held.swap_remove(at)),
            (_, Some(_)) => gpu.flush().unwrap(),
        }
    }
    held.iter().for_each(Held::check);
}

/// Three threads, each with a share of another priority. Together they want more than there is.
fn run(seed: u64, steps: u64, maps_slabs: bool) {
    let device = SimOptions {
        dirty: true,
        jitter: true,
        lag_submissions: (seed % 3) as u32,
        maps_slabs,
        seed,
        ..SimOptions::default()
    };
    let budget = Budget {
        host_bytes: Some(8 * MIB),
        staging_bytes: Some(MIB),
        ..Budget::device(7 * MIB)
    };
    let options = Options {
        budget: Some(budget),
        ..Options::default()
    };
    let (gpu, _) = Gpu::simulated_with(device, options).unwrap();
    let shares = [-1, 0, 1].map(|priority| {
        let share = Share::guaranteed(MIB).with_priority(priority);
        gpu.share(&format!("of {priority}"), share).unwrap()
    });
    thread::scope(|scope| {
        for (share, thread) in shares.iter().zip(0..) {
            scope.spawn(move || program(share, seed.wrapping_mul(3) + thread, steps));
        }
    });
    drop(shares);
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
