//! Frames of a higher priority come amid backwards within little memory, also between the launches
//! that compute a value again. All get the values that they would get alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lapidary::shares::ShareOptions;
use lapidary::sim::Speed;
use lapidary::stats::MemoryStats;
use lapidary::{Budget, DType, Gpu, Tensor};

use super::{FAST_KERNELS, FAST_LINK, Network, end, executed, open, open_tight};

const BACKWARDS: usize = 12;

/// A parameter with this index is lent to the frames.
const LENT: usize = 4;

/// Ends the frames when it is dropped, also by a panic.
struct EndsFrames<'a>(&'a AtomicBool);

impl Drop for EndsFrames<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One frame: works with a buffer of its own, and with a loan from the training.
fn draw(frame: &Gpu, number: f32, loan: &Tensor, sum_of_loan: u32) {
    let own = frame.full(&[1024], number, DType::F32).unwrap();
    let next = (&own + 1.0).unwrap();
    let sum = loan.sum_all().unwrap();
    assert_eq!(next.to_vec::<f32>().unwrap(), [number + 1.0; 1024]);
    assert_eq!(sum.item::<f32>().unwrap().to_bits(), sum_of_loan);
}

/// Returns what happened.
fn train_beside_frames(speed: Speed) -> MemoryStats {
    let gradients_of = |network: &Network| {
        let gradients = network.loss().unwrap().backward().unwrap();
        let bits = network.bits_of(&gradients).into_iter();
        bits.map(|bits| bits.unwrap()).collect::<Vec<_>>()
    };
    let (expected, sum_of_loan) = {
        let alone = Network::new(&open(speed, Budget::default()).0, executed()).unwrap();
        let sum = alone.parameters[LENT].sum_all().unwrap();
        (gradients_of(&alone), sum.item::<f32>().unwrap().to_bits())
    };
    let (gpu, sim) = open_tight(speed);
    let share = |name: &str, priority| {
        let share = ShareOptions::guaranteed(0).with_priority(priority);
        gpu.share(name, share).unwrap()
    };
    let (frame, job) = (share("frame", 1), share("job", -1));
    let network = Network::new(&job, executed()).unwrap();
    let loan = network.parameters[LENT].lend_to(&frame).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0.0;
            while !is_over.load(Ordering::Relaxed) {
                draw(&frame, number, &loan, sum_of_loan);
                number += 1.0;
            }
        });
        let _ends = EndsFrames(&is_over);
        for _ in 0..BACKWARDS {
            assert!(gradients_of(&network) == expected, "other gradients");
        }
    });
    network.check("after the frames");
    network.check_saved("after the frames");
    let stats = gpu.memory().stats();
    drop((network, loan, frame, job));
    end("after all", gpu, &sim);
    stats
}

#[test]
fn frames_come_amid_a_backward_that_evicts() {
    let stats = train_beside_frames(FAST_LINK);
    assert!(stats.evicted_bytes > 0, "{stats}");
}

#[test]
fn frames_come_amid_a_backward_that_computes_again() {
    let stats = train_beside_frames(FAST_KERNELS);
    assert!(stats.recomputed_bytes > 0, "{stats}");
}
