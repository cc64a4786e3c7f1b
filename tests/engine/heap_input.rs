//! Budgets, shares and reads that are hard on the heap in the host's memory.

use std::sync::atomic::{AtomicBool, Ordering};

use lapidary::shares::ShareOptions;
use lapidary::sim::{Fault, FaultKind, SimOptions, Site};
use lapidary::stats::{Snapshot, Topic};
use lapidary::{Budget, DType, Gpu, Residency, Tensor};

use super::heap::{LEN, open};
use crate::engine::{ended, options};

const MIB: u64 = 1 << 20;

fn filled(gpu: &Gpu, number: u16) -> Tensor {
    let tensor = gpu.full(&[LEN], f32::from(number), DType::F32).unwrap();
    tensor.force().unwrap();
    tensor
}

#[track_caller]
fn check(tensor: &Tensor, number: u16) {
    let found = tensor.to_vec::<f32>().unwrap();
    assert!(found == vec![f32::from(number); LEN], "{tensor}: {number}");
}

/// The driver has refused the moves, so they wait to be submitted again.
#[test]
fn a_budget_that_falls_while_moves_wait_for_the_driver_loses_nothing() {
    let lower = [
        (None, Some(0)),
        (Some(MIB / 2), None),
        (Some(MIB / 2), Some(MIB / 4)),
    ];
    for (device_bytes, host_bytes) in lower {
        for times in 1..=4 {
            for lag_submissions in [0, u32::MAX] {
                let device = SimOptions {
                    lag_submissions,
                    ..options()
                };
                let (gpu, sim) = open(Budget::device(2 * MIB), device);
                let tensors: Vec<Tensor> = (1..=20).map(|number| filled(&gpu, number)).collect();
                gpu.flush().unwrap();
                for (at, tensor) in tensors.iter().enumerate().take(8) {
                    sim.arm(Fault::once(Site::Submit, 1, FaultKind::OutOfMemory));
                    let _ = tensor.evict();
                    // Some of them are wanted again at once, some of them are written.
                    match at % 3 {
                        0 => drop((tensor + 1).unwrap().force()),
                        1 => drop(gpu.flush()),
                        _ => {}
                    }
                }
                for nth in 1..times {
                    sim.arm(Fault::once(Site::Submit, nth, FaultKind::OutOfMemory));
                }
                let budget = Budget {
                    device_bytes: device_bytes.or(Some(2 * MIB)),
                    host_bytes,
                    ..Budget::default()
                };
                let _ = gpu.memory().set_budget(budget);
                sim.disarm();
                gpu.memory().set_budget(budget).unwrap();
                let stats = gpu.memory().stats();
                let most = host_bytes.unwrap_or(u64::MAX);
                assert!(stats.host_slab_bytes.now <= most, "{stats}");
                for (tensor, number) in tensors.iter().zip(1..) {
                    check(tensor, number);
                }
                drop(tensors);
                ended(gpu, &sim);
            }
        }
    }
}

#[test]
fn budgets_rise_and_fall_while_another_thread_moves_tensors() {
    let (gpu, sim) = open(Budget::device(2 * MIB), options());
    let tensors: Vec<Tensor> = (1..=40).map(|number| filled(&gpu, number)).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(5);
            for _ in 0..150 {
                let at = random.usize(..tensors.len());
                match random.u8(..4) {
                    0 => tensors[at].evict().unwrap(),
                    1 => tensors[at].prefetch().unwrap(),
                    2 => check(&tensors[at], at as u16 + 1),
                    _ => (&tensors[at] + 1).unwrap().force().unwrap(),
                }
            }
            is_over.store(true, Ordering::Release);
        });
        let mut random = fastrand::Rng::with_seed(6);
        while !is_over.load(Ordering::Acquire) {
            let budget = Budget {
                host_bytes: Some(random.u64(0..3 * MIB)),
                ..Budget::device(random.u64(MIB..3 * MIB))
            };
            gpu.memory().set_budget(budget).unwrap();
        }
    });
    for (tensor, number) in tensors.iter().zip(1..) {
        check(tensor, number);
    }
    drop(tensors);
    ended(gpu, &sim);
}

/// Tensors of two shares take the places of each other, on the device and in the heap, in one batch
/// and in several. The driver refuses some of these.
#[test]
fn two_shares_move_blocks_past_each_other() {
    for lag_submissions in [0, 2, u32::MAX] {
        for nth in 0..=12 {
            let device = SimOptions {
                lag_submissions,
                ..options()
            };
            let budget = Budget {
                host_bytes: Some(MIB),
                ..Budget::device(MIB)
            };
            let (gpu, sim) = open(budget, device);
            let share = |name: &str| gpu.share(name, ShareOptions::guaranteed(0)).unwrap();
            let [a, b] = ["a", "b"].map(share);
            let of = |gpu: &Gpu, first: u16| -> Vec<Tensor> {
                (first..first + 8)
                    .map(|number| filled(gpu, number))
                    .collect()
            };
            let (of_a, of_b) = (of(&a, 100), of(&b, 200));
            if nth > 0 {
                let fault = Fault::every_second(Site::Submit, nth, FaultKind::OutOfMemory);
                sim.arm(fault);
            }
            for round in 0..3 {
                for at in 0..8 {
                    let (one, other) = (&of_a[at], &of_b[(at + round) % 8]);
                    let _ = (one.evict(), other.prefetch(), other.evict(), one.prefetch());
                    let _ = (one + 1).unwrap().force();
                }
            }
            sim.disarm();
            for (tensors, first) in [(&of_a, 100), (&of_b, 200)] {
                for (tensor, number) in tensors.iter().zip(first..) {
                    check(tensor, number);
                }
            }
            // Nobody wrote these: they have nothing of the other share.
            for (gpu, foreign) in [(&a, 200.0..=208.0), (&b, 100.0..=108.0)] {
                let fresh = gpu.buffer(4 * LEN as u64).unwrap();
                let words = fresh.to_vec::<f32>().unwrap();
                assert!(!words.iter().any(|word| foreign.contains(word)), "{nth}");
            }
            assert!(gpu.memory().stats().restores > 16);
            drop((of_a, of_b, a, b));
            ended(gpu, &sim);
        }
    }
}

/// The driver gives memory without a cache, which the host reads slowly. That is told, with the
/// figure and with what to do.
#[test]
fn a_heap_that_the_host_reads_slowly_is_told() {
    for host_read_bytes_per_s in [Some(50_000_000), None] {
        let device = SimOptions {
            host_read_bytes_per_s,
            ..options()
        };
        let (gpu, sim) = open(Budget::device(8 * MIB), device);
        let tensors: Vec<Tensor> = (1..=24).map(|number| filled(&gpu, number)).collect();
        let few = gpu.zeros(&[100], DType::F32).unwrap();
        for tensor in tensors.iter().chain([&few]) {
            tensor.evict().unwrap();
        }
        assert_eq!(gpu.memory().stats().host_read_bytes, 0);
        let budget = Budget {
            host_bytes: Some(0),
            ..gpu.memory().budget()
        };
        gpu.memory().set_budget(budget).unwrap();
        assert!(tensors.iter().all(|one| one.residency() == Residency::Disk));
        let mut snapshot = gpu.memory().snapshot();
        // A small read says nothing about the memory.
        assert_eq!(snapshot.stats.host_read_bytes, (24 * 64) << 10);
        let is_timed = host_read_bytes_per_s.is_some();
        assert_eq!(snapshot.stats.host_read_ns > 0, is_timed);
        let told = |snapshot: &Snapshot| {
            let advice = snapshot.advice().into_iter();
            let mut texts = advice.filter(|one| one.topic == Topic::SlowReads);
            texts.next().map(|one| one.text)
        };
        let text = told(&snapshot);
        assert_eq!(text.is_some(), is_timed);
        if let Some(text) = text {
            for words in ["MB/s: 1.50 MiB took ", "`Options::host_heap: Some(false)`"] {
                assert!(text.contains(words), "{text}");
            }
            let mb_per_s = text.split(" MB/s").next().unwrap();
            let mb_per_s = mb_per_s.rsplit(' ').next().unwrap();
            assert!(mb_per_s.parse::<u32>().unwrap() <= 50, "{text}");
        }
        snapshot.stats.host_read_ns = 1_500_000;
        assert_eq!(told(&snapshot), None, "1 GB/s");
        snapshot.stats.host_read_ns = 1_700_000;
        assert!(told(&snapshot).is_some());
        for (tensor, number) in tensors.iter().zip(1..) {
            check(tensor, number);
        }
        drop((tensors, few));
        ended(gpu, &sim);
    }
}
