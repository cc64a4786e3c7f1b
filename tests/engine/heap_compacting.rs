//! Compaction of the heap in the host's memory: a fragmented heap takes what its holes together
//! have room for, and no byte is lost on the way.

use fastrand::Rng;
use lapidary::sim::{Fault, FaultKind, Repeat, SimHandle, SimOptions, Site};
use lapidary::{Budget, DType, Error, Gpu, Options, Residency, Tensor};

use super::heap::waits;
use crate::engine::{ended, options};

const MIB: u64 = 1 << 20;

const KIB: u64 = 1 << 10;

/// Elements of 16 KiB.
const LEN: usize = 1 << 12;

/// The bytes that slabs of the heap take at most.
const SLABS_BYTES: u64 = MIB;

/// A heap of so much, and nothing below it.
fn open(device: SimOptions, never_move: bool) -> (Gpu, SimHandle) {
    let device = SimOptions {
        compact_always: Some(false),
        ..device
    };
    let budget = Budget {
        host_bytes: Some(SLABS_BYTES),
        disk_bytes: Some(0),
        ..Budget::device(4 * MIB)
    };
    let options = Options {
        budget: Some(budget),
        host_heap: Some(true),
        never_move,
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(device, options).expect("the options go together")
}

/// A tensor that the device fills with a number.
fn filled(gpu: &Gpu, len: usize, number: u16) -> Tensor {
    let tensor = gpu.full(&[len], f32::from(number), DType::F32).unwrap();
    tensor.force().unwrap();
    tensor
}

/// Fills the heap with tensors of 16 KiB, and drops every second one.
fn fragmented(gpu: &Gpu) -> Vec<(Tensor, u16)> {
    let fill = |number| (filled(gpu, LEN, number), number);
    let mut all: Vec<(Tensor, u16)> = (0..64).map(fill).collect();
    for (tensor, _) in &all {
        tensor.evict().unwrap();
    }
    assert_eq!(gpu.memory().stats().host_slab_bytes.now, SLABS_BYTES);
    all.retain(|(_, number)| number % 2 == 0);
    all
}

#[track_caller]
fn check(tensor: &Tensor, number: u16) {
    let found = tensor.to_vec::<f32>().unwrap();
    assert!(
        found == vec![f32::from(number); tensor.len()],
        "{tensor}: {number}"
    );
}

#[track_caller]
fn check_all(tensors: &[(Tensor, u16)]) {
    for (tensor, number) in tensors {
        check(tensor, *number);
    }
}

#[test]
fn a_fragmented_heap_takes_a_large_tensor() {
    // Slabs have 64 KiB: 4 of the small tensors. A larger one needs another slab.
    for parts in [2, 3, 4, 5, 8, 16, 32] {
        for lag_submissions in [0, u32::MAX] {
            let device = SimOptions {
                lag_submissions,
                ..options()
            };
            let (gpu, sim) = open(device, false);
            let small = fragmented(&gpu);
            let large = filled(&gpu, parts * LEN, 1000);
            gpu.flush().unwrap();
            let (before, waits_before) = (gpu.memory().stats(), waits(&sim));
            large.evict().unwrap();
            let after = gpu.memory().stats();
            assert_eq!(large.residency(), Residency::Host, "{parts}: {after}");
            let moved_bytes = after.host_moved_bytes - before.host_moved_bytes;
            let most_bytes = (16 * KIB * parts as u64).next_multiple_of(64 * KIB);
            assert!((1..=most_bytes).contains(&moved_bytes), "{parts}: {after}");
            assert!(after.host_slab_bytes.peak <= SLABS_BYTES, "{after}");
            assert_eq!(after.moved_bytes, 0, "{after}");
            if parts <= 4 {
                assert_eq!(waits(&sim), waits_before, "{parts}");
            }
            check(&large, 1000);
            check_all(&small);
            drop((small, large));
            ended(gpu, &sim);
        }
    }
}

#[test]
fn a_lower_limit_moves_blocks_together_before_any_has_to_leave() {
    for lag_submissions in [0, u32::MAX] {
        let device = SimOptions {
            lag_submissions,
            ..options()
        };
        let (gpu, sim) = open(device, false);
        let small = fragmented(&gpu);
        // As many bytes as the tensors have, which nothing below the heap would take.
        let budget = Budget {
            host_bytes: Some(SLABS_BYTES / 2),
            ..gpu.memory().budget()
        };
        gpu.memory().set_budget(budget).unwrap();
        let stats = gpu.memory().stats();
        assert!(stats.host_bytes.now <= SLABS_BYTES / 2, "{stats}");
        assert!(stats.host_moved_bytes > 0, "{stats}");
        for (tensor, _) in &small {
            assert_eq!(tensor.residency(), Residency::Host, "{stats}");
        }
        check_all(&small);
        drop(small);
        ended(gpu, &sim);
    }
}

#[test]
fn a_heap_is_not_compacted_in_vain_nor_where_nothing_may_move() {
    let (gpu, sim) = open(options(), false);
    let small = fragmented(&gpu);
    // The holes together have 32 times 16 KiB.
    let too_large = filled(&gpu, 33 * LEN, 1000);
    too_large.evict().unwrap_err();
    assert_eq!(gpu.memory().stats().host_moved_bytes, 0);
    check(&too_large, 1000);
    check_all(&small);
    drop((small, too_large));
    ended(gpu, &sim);

    let (gpu, sim) = open(options(), true);
    let small = fragmented(&gpu);
    let large = filled(&gpu, 2 * LEN, 1000);
    large.evict().unwrap_err();
    assert_eq!(gpu.memory().stats().host_moved_bytes, 0);
    drop((small, large));
    ended(gpu, &sim);
}

#[test]
fn what_a_refused_batch_moves_in_the_heap_is_not_lost() {
    for parts in [3, 8] {
        for nth in 1..=4 {
            for repeat in [Repeat::Once, Repeat::EverySecond, Repeat::ForEver] {
                let (gpu, sim) = open(options(), false);
                let small = fragmented(&gpu);
                let large = filled(&gpu, parts * LEN, 1000);
                gpu.flush().unwrap();
                sim.arm(Fault {
                    site: Site::Submit,
                    nth,
                    repeat,
                    kind: FaultKind::OutOfMemory,
                });
                let _ = large.evict();
                // What was moved is read, written, restored and evicted again meanwhile.
                let _ = small[1].0.to_vec::<f32>();
                let sum = (&small[2].0 + &small[3].0).unwrap();
                let _ = (sum.force(), small[4].0.add_(1), gpu.flush());
                let _ = (sum.evict(), small[2].0.evict(), gpu.flush());
                sim.disarm();
                eprintln!("{parts} {nth} {repeat:?}");
                for (tensor, number) in &small {
                    match *number {
                        // The refused batch would have written it.
                        8 => _ = tensor.to_vec::<f32>(),
                        number => check(tensor, number),
                    }
                }
                check(&large, 1000);
                drop((small, large, sum));
                ended(gpu, &sim);
            }
        }
    }
}

#[test]
fn a_device_that_is_lost_amid_moves_of_the_heap_leaves_an_empty_heap() {
    for parts in [3, 8] {
        for nth in 1..=3 {
            let (gpu, sim) = open(options(), false);
            let small = fragmented(&gpu);
            let large = filled(&gpu, parts * LEN, 1000);
            gpu.flush().unwrap();
            sim.arm(Fault::once(Site::Submit, nth, FaultKind::Lost));
            let _ = (large.evict(), gpu.flush(), small[0].0.to_vec::<f32>());
            let _ = (small[1].0.to_vec::<f32>(), gpu.flush());
            gpu.reopen().unwrap();
            assert_eq!(gpu.memory().stats().host_slab_bytes.now, 0);
            for (tensor, _) in &small {
                let error = tensor.to_vec::<f32>().unwrap_err();
                assert!(matches!(error, Error::Poisoned { .. }), "{error}");
            }
            drop((small, large));
            let small = fragmented(&gpu);
            let large = filled(&gpu, parts * LEN, 1000);
            large.evict().unwrap();
            check(&large, 1000);
            check_all(&small);
            drop((small, large));
            ended(gpu, &sim);
        }
    }
}

/// Random programs. Whatever is in the heap, it takes a tensor for which there is clearly room.
#[test]
fn a_heap_takes_what_has_room_whatever_was_in_it() {
    let (mut moved_bytes, mut clearly) = (0, 0);
    for seed in 0..8 {
        let mut rng = Rng::with_seed(seed);
        let device = SimOptions {
            lag_submissions: rng.u32(..4),
            ..options()
        };
        let (gpu, sim) = open(device, false);
        let mut held: Vec<(Tensor, u16)> = Vec::new();
        for step in 0..300 {
            let index = rng.usize(..held.len().max(1));
            match (rng.u32(..10), held.get_mut(index)) {
                (0, Some((tensor, number))) => {
                    tensor.add_(1).unwrap();
                    *number += 1;
                }
                (1, Some((tensor, number))) => check(tensor, *number),
                (2, Some((tensor, _))) => tensor.prefetch().unwrap(),
                (3, Some(_)) => drop(held.swap_remove(index)),
                (4, _) if rng.u32(..4) == 0 => {
                    // Whatever becomes of this batch, the moves in it are kept.
                    let kind = FaultKind::OutOfMemory;
                    gpu.flush().unwrap();
                    sim.arm(Fault::once(Site::Submit, 1, kind));
                    for (tensor, _) in held.iter().skip(index).take(3) {
                        let _ = tensor.evict();
                    }
                    let _ = gpu.flush();
                    sim.disarm();
                }
                (5..9, Some((tensor, number))) => {
                    let is_there = |one: &&(Tensor, u16)| one.0.residency() == Residency::Host;
                    let size_bytes = 4 * tensor.len() as u64;
                    let (tensor, number) = (tensor.clone(), *number);
                    let taken = held.iter().filter(is_there);
                    let taken_bytes: u64 = taken.map(|(one, _)| 4 * one.len() as u64).sum();
                    let evicted = tensor.evict();
                    if taken_bytes + size_bytes <= SLABS_BYTES * 3 / 4 {
                        evicted.unwrap();
                        clearly += 1;
                        let stats = gpu.memory().stats();
                        assert_eq!(
                            tensor.residency(),
                            Residency::Host,
                            "{seed}, {step}: {stats}"
                        );
                    }
                    check(&tensor, number);
                }
                _ => {
                    let len = match rng.u32(..4) {
                        0 => rng.usize(1..1000),
                        1 | 2 => rng.usize(1..=4 * LEN),
                        _ => rng.usize(1..=16 * LEN),
                    };
                    held.push((filled(&gpu, len, step), step));
                }
            }
            if held.len() > 32 {
                held.swap_remove(rng.usize(..held.len()));
            }
            let stats = gpu.memory().stats();
            assert!(stats.host_slab_bytes.now <= SLABS_BYTES, "{stats}");
        }
        check_all(&held);
        moved_bytes += gpu.memory().stats().host_moved_bytes;
        drop(held);
        ended(gpu, &sim);
    }
    assert!(moved_bytes > 128 * KIB, "{moved_bytes}, {clearly}");
    assert!(clearly > 300, "{clearly}");
}
