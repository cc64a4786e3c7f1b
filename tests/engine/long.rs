//! Work that would occupy the device for too long is split into several submissions.

use lapidary::sim::{SimHandle, SimOptions};
use lapidary::{
    DType, Gpu, Result, Tensor,
    operations::{Conv, Pool},
};

use crate::engine::{numbers, open_apart, options};

fn open(most_work: u64) -> (Gpu, SimHandle) {
    open_apart(SimOptions {
        most_work,
        ..options()
    })
}

fn tensor(gpu: &Gpu, shape: &[usize]) -> Tensor {
    let len = shape.iter().product();
    let elements: Vec<f32> = numbers(0, len).iter().map(|x| (x * 0.37) % 1.0).collect();
    gpu.tensor(&elements, shape).unwrap()
}

/// Compares the call with one whose submissions have at most `most_work` each. There must be at
/// least `least` of those.
fn check(most_work: u64, least: u64, call: impl Fn(&Gpu) -> Result<Tensor>) {
    let (whole, _) = open(u64::MAX);
    let (parted, sim) = open(most_work);
    let got = call(&parted).unwrap();
    let (before, dispatches) = (sim.counters().submissions, sim.counters().dispatches);
    parted.finish().unwrap();
    let submissions = sim.counters().submissions - before;
    assert!(submissions >= least, "{submissions} for {least}");
    assert!(sim.counters().dispatches - dispatches >= least);
    let expected = call(&whole).unwrap();
    assert_eq!(got.shape(), expected.shape());
    match got.dtype() {
        DType::I32 => assert_eq!(
            got.to_vec::<i32>().unwrap(),
            expected.to_vec::<i32>().unwrap()
        ),
        _ => assert_eq!(
            got.to_vec::<f32>().unwrap(),
            expected.to_vec::<f32>().unwrap()
        ),
    }
    assert_eq!(sim.complaints(), [""; 0]);
}

#[test]
fn a_large_product_is_made_in_parts() {
    let product = |a: &'static [usize], b: &'static [usize]| {
        move |gpu: &Gpu| tensor(gpu, a).matmul(&tensor(gpu, b))
    };
    check(300 * 40 * 50 / 5, 6, product(&[300, 40], &[40, 50]));
    check(6 * 20 * 10 * 20 / 6, 6, product(&[6, 20, 10], &[6, 10, 20]));
    check(20 * 1000, 6, product(&[20, 100], &[6, 100, 10]));
    check(8 * 40 * 30 * 20 / 4, 4, |gpu| {
        let integers = |shape| tensor(gpu, shape).mul(9.0)?.cast(DType::I32);
        integers(&[40, 30])?.matmul(&integers(&[30, 20])?)
    });
}

#[test]
fn attention_and_convolutions_are_made_in_parts() {
    for (mask, is_causal) in [(false, false), (false, true), (true, true)] {
        check(3 * 40 * 50 * 24 / 5, 6, |gpu| {
            let [q, k, v] = [[3, 40, 16], [3, 50, 16], [3, 50, 8]].map(|shape| tensor(gpu, &shape));
            let mask = mask.then(|| tensor(gpu, &[40, 50]));
            q.scaled_dot_product_attention(&k, &v, mask.as_ref(), is_causal, None)
        });
    }
    for samples in [6, 1] {
        check(samples as u64 * 6 * 64 * 27 / 3, 3, |gpu| {
            let (x, weight) = (tensor(gpu, &[samples, 3, 8, 8]), tensor(gpu, &[6, 3, 3, 3]));
            let options = Conv {
                padding: [1, 1],
                ..Conv::default()
            };
            x.conv2d(&weight, Some(&tensor(gpu, &[6])), &options)
        });
    }
}

#[test]
fn gradients_of_pooling_are_made_in_parts() {
    let pool = Pool {
        stride: [2, 2],
        padding: [1, 1],
        ..Pool::new([3, 3])
    };
    // An element is in at most four windows. The gradient of a maximum goes by its positions.
    let rounds = 3 * 2 * 9 * 7 * 4;
    check(rounds / 6, 6, |gpu| {
        let (x, grad) = (tensor(gpu, &[3, 2, 9, 7]), tensor(gpu, &[3, 2, 5, 4]));
        grad.max_pool2d_backward(&x, &pool)
    });
    check(rounds / 3, 3, |gpu| {
        let (x, grad) = (tensor(gpu, &[3, 2, 9, 7]), tensor(gpu, &[3, 2, 5, 4]));
        grad.avg_pool2d_backward(&x, &pool)
    });
    // A single plane cannot be split, and each gradient has the most work, so each goes alone.
    let (gpu, sim) = open(9 * 7 * 4);
    let (x, grad) = (tensor(&gpu, &[1, 1, 9, 7]), tensor(&gpu, &[1, 1, 5, 4]));
    gpu.finish().unwrap();
    let before = sim.counters().submissions;
    let made: Vec<Tensor> = (0..4)
        .map(|_| grad.avg_pool2d_backward(&x, &pool).unwrap())
        .collect();
    gpu.finish().unwrap();
    assert_eq!(sim.counters().submissions - before, made.len() as u64);
}

#[test]
fn many_calls_that_are_short_are_submitted_when_they_are_long_together() {
    let count = |most_work| {
        let (gpu, sim) = open(most_work);
        let mut x = tensor(&gpu, &[32, 32]);
        gpu.finish().unwrap();
        let before = sim.counters().submissions;
        for _ in 0..12 {
            x = x.matmul(&x).unwrap();
        }
        gpu.finish().unwrap();
        sim.counters().submissions - before
    };
    assert_eq!(count(u64::MAX), 1);
    assert_eq!(count(4 << 15), 3);
    // One that cannot be split goes alone.
    assert_eq!(count(1 << 15), 12);
}

#[test]
fn a_device_that_waits_is_given_little_at_first_and_early() {
    let (gpu, sim) = open(u64::MAX);
    let x = tensor(&gpu, &[64]);
    gpu.finish().unwrap();
    let begin = sim.counters();
    let mut sums = Vec::new();
    for round in 0..31 {
        sums.push((&x + round as f32).unwrap());
    }
    assert_eq!(sim.counters().submissions, begin.submissions);
    sums.push((&x + 31.0).unwrap());
    assert_eq!(sim.counters().submissions, begin.submissions + 1);
    // The device is busy now, so the rest goes in larger and larger batches.
    for round in 32..232 {
        sums.push((&x + round as f32).unwrap());
    }
    assert_eq!(sim.counters().submissions, begin.submissions + 1);
    gpu.finish().unwrap();
    let end = sim.counters();
    assert_eq!(end.dispatches - begin.dispatches, 232);
    assert_eq!(end.submissions - begin.submissions, 1 + 3);
    for (round, sum) in sums.iter().enumerate() {
        assert_eq!(sum.to_vec::<f32>().unwrap()[0], round as f32);
    }
}
