//! Short memory: the error belongs to its tensor, order is kept behind it, and the work runs later.

use lapidary::sim::{Fault, FaultKind, SimMode, SimOptions, Site};
use lapidary::{Budget, DType, Error, Gpu};
use pollster::block_on;

use crate::engine::{ended, nothing_leaves, numbers, open_alone as open, options};

/// Memory for one tensor of 8 MiB, but not for two.
fn narrow() -> SimOptions {
    SimOptions {
        memory_bytes: 15 << 20,
        max_binding_bytes: 128 << 20,
        ..options()
    }
}

fn open_narrow() -> (Gpu, lapidary::sim::SimHandle) {
    let (gpu, sim) = open(narrow());
    nothing_leaves(&gpu);
    (gpu, sim)
}

const BIG: [usize; 1] = [2 << 20];

fn is_out_of_memory<T>(result: lapidary::Result<T>) -> bool {
    matches!(result, Err(Error::OutOfMemory(_)))
}

#[test]
fn what_finds_no_room_on_an_empty_device_is_not_told_to_drop_tensors() {
    let (gpu, sim) = open(SimOptions {
        memory_bytes: 1 << 20,
        max_buffer_bytes: 64 << 20,
        ..options()
    });
    let huge = gpu.zeros(&BIG, DType::F32).unwrap();
    let error = huge.force().unwrap_err().to_string();
    assert!(error.contains("more than the device has left"), "{error}");
    assert!(!error.contains("Drop tensors"), "{error}");
    drop(huge);
    ended(gpu, &sim);
}

#[test]
fn the_error_says_who_asked_and_who_holds() {
    let (gpu, sim) = open_narrow();
    let (weights, held) = (gpu.zeros(&BIG, DType::F32).unwrap(), line!());
    let weights = weights.named("weights");
    weights.force().unwrap();
    let (more, wanted) = (gpu.zeros(&BIG, DType::F32).unwrap(), line!());
    let error = more.force().unwrap_err();
    assert!(!error.is_final());
    let file = file!();
    assert_eq!(
        error.to_string(),
        format!(
            "out of memory: 8.00 MiB for the tensor made at {file}:{wanted} found no room: 8.00 MiB \
             live, 8.00 MiB reserved, 0 B retiring, largest hole 0 B; most is held by `weights` \
             ({file}:{held}) (8.00 MiB). Drop tensors and force again: the work is still queued"
        )
    );
    drop((weights, more));
    ended(gpu, &sim);
}

#[test]
fn work_that_found_no_room_runs_when_there_is() {
    let (gpu, sim) = open_narrow();
    let first = gpu.full(&BIG, 1, DType::F32).unwrap();
    first.force().unwrap();
    let second = gpu.full(&BIG, 2, DType::F32).unwrap();
    second.narrow(0, 5, 1).unwrap().fill_(7).unwrap();
    let piece = second.narrow(0, 4, 2).unwrap().copy().unwrap();
    assert!(is_out_of_memory(second.force()));
    assert!(is_out_of_memory(piece.to_vec::<f32>()));
    gpu.flush().unwrap();
    assert_eq!(gpu.memory().stats().queued, 3);
    // The tensor that has memory is read without an error.
    assert_eq!(
        first.narrow(0, 0, 2).unwrap().to_vec::<f32>().unwrap(),
        [1.0; 2]
    );
    drop(first);
    assert_eq!(piece.to_vec::<f32>().unwrap(), [2.0, 7.0]);
    second.force().unwrap();
    drop((second, piece));
    ended(gpu, &sim);
}

#[test]
fn what_is_left_behind_keeps_its_place_in_the_order() {
    let (gpu, sim) = open_narrow();
    let holder = gpu.zeros(&BIG, DType::F32).unwrap();
    holder.force().unwrap();
    let small = gpu.tensor(&numbers(0, 4), &[4]).unwrap();
    let before = small.to_vec_async::<f32>();
    // Reads the current value of `small`, and is refused.
    let big = small
        .view_as(&[4, 1])
        .unwrap()
        .broadcast_to(&[4, 1 << 19])
        .unwrap()
        .copy()
        .unwrap();
    small.write(&numbers(50, 4)).unwrap();
    let unrelated = gpu.tensor(&numbers(3, 4), &[4]).unwrap().add(1).unwrap();
    let after = small.to_vec_async::<f32>();
    assert_eq!(unrelated.to_vec::<f32>().unwrap(), numbers(4, 4));
    assert!(
        is_out_of_memory(block_on(after)),
        "it waits behind the write"
    );
    assert_eq!(block_on(before).unwrap(), numbers(0, 4));
    drop(holder);
    assert_eq!(
        big.select(1, 9)
            .unwrap()
            .copy()
            .unwrap()
            .to_vec::<f32>()
            .unwrap(),
        numbers(0, 4)
    );
    assert_eq!(small.to_vec::<f32>().unwrap(), numbers(50, 4));
    drop((small, big, unrelated));
    ended(gpu, &sim);
}

/// The driver has no memory for the buffers of the first parts of a read, and then it has.
#[test]
fn the_parts_of_a_read_arrive_in_order() {
    let len = 40_000;
    let mut out_of_memory = 0;
    for refusals in 1..12 {
        let (gpu, sim) = open(options());
        nothing_leaves(&gpu);
        gpu.memory()
            .set_budget(Budget {
                host_bytes: Some(0),
                disk_bytes: Some(0),
                ..Budget::device(512 << 10)
            })
            .unwrap();
        let x = gpu.tensor(&numbers(0, len), &[len]).unwrap();
        x.force().unwrap();
        gpu.memory().trim(0).unwrap();
        for nth in 1..=refusals {
            sim.arm(Fault::once(Site::CreateBuffer, nth, FaultKind::OutOfMemory));
        }
        let early = x.to_vec_async::<f32>();
        gpu.flush().unwrap();
        let late = x.to_vec::<f32>();
        sim.disarm();
        for read in [late, block_on(early), x.to_vec()] {
            match read {
                Ok(values) => assert!(values == numbers(0, len), "{refusals} refusals"),
                Err(Error::OutOfMemory(_)) => out_of_memory += 1,
                Err(error) => panic!("{refusals} refusals: {error}"),
            }
        }
        drop(x);
        ended(gpu, &sim);
    }
    assert!(out_of_memory < 11, "{out_of_memory}");
}

#[test]
fn dropping_what_found_no_room_is_all_it_takes() {
    let (gpu, sim) = open_narrow();
    let holder = gpu.zeros(&BIG, DType::F32).unwrap();
    let wish = gpu.zeros(&BIG, DType::F32).unwrap();
    assert!(is_out_of_memory(wish.force()));
    drop(wish);
    holder.force().unwrap();
    drop(holder);
    ended(gpu, &sim);
}

#[test]
fn staging_finds_room_where_slabs_are_empty() {
    for megabytes in [12, 14, 15] {
        let (gpu, sim) = open_narrow();
        let big = gpu.zeros(&[megabytes << 20], DType::U8).unwrap();
        big.force().unwrap();
        drop(big);
        // Nearly all memory is in an empty slab.
        let x = gpu.tensor(&numbers(0, 600_000), &[600_000]).unwrap();
        assert!(x.to_vec::<f32>().unwrap() == numbers(0, 600_000));
        drop(x);
        ended(gpu, &sim);
    }
}

#[test]
fn slabs_find_room_where_staging_is_idle() {
    let (gpu, sim) = open_narrow();
    let x = gpu.tensor(&numbers(0, 1 << 20), &[1 << 20]).unwrap();
    assert!(x.to_vec::<f32>().unwrap() == numbers(0, 1 << 20));
    drop(x);
    let big = gpu.zeros(&[15 << 20], DType::U8).unwrap();
    big.force().unwrap();
    drop(big);
    ended(gpu, &sim);
}

#[test]
fn memory_comes_back_from_the_late_queue_before_anyone_is_refused() {
    let (gpu, sim) = open(SimOptions {
        lag_submissions: u32::MAX,
        ..narrow()
    });
    for round in 0..10 {
        let x = gpu.full(&[(8 << 20) + round * 4096], 1, DType::U8).unwrap();
        x.force().unwrap();
    }
    assert_eq!(gpu.memory().stats().refusals, 0);
    ended(gpu, &sim);
}

#[test]
fn work_that_found_no_room_runs_as_soon_as_work_behind_it_has_made_some() {
    let (gpu, sim) = open_narrow();
    let first = gpu.full(&BIG, 1, DType::F32).unwrap();
    let second = gpu.full(&BIG, 2, DType::F32).unwrap();
    let piece = first.narrow(0, 4, 2).unwrap().copy().unwrap();
    drop(first);
    // The second one comes before the last read of the first.
    second.force().unwrap();
    assert_eq!(piece.to_vec::<f32>().unwrap(), [1.0; 2]);
    drop((second, piece));
    ended(gpu, &sim);
}

#[test]
fn what_nobody_wants_any_more_is_not_tried_again() {
    let (gpu, sim) = open_narrow();
    let holder = gpu.zeros(&BIG, DType::F32).unwrap();
    holder.force().unwrap();
    for _ in 0..10 {
        let wish = gpu.full(&BIG, 2, DType::F32).unwrap();
        wish.fill_(3).unwrap();
        let sum = wish.add(&wish).unwrap().sum_all().unwrap();
        wish.fill_(4).unwrap();
        assert!(is_out_of_memory(sum.to_vec::<f32>()));
    }
    gpu.flush().unwrap();
    assert_eq!(gpu.memory().stats().queued, 0);
    drop(holder);
    ended(gpu, &sim);
}

#[test]
fn a_hole_of_any_slab_will_do_when_no_slab_can_be_created() {
    let (gpu, sim) = open(SimOptions {
        memory_bytes: 4 << 20,
        ..SimOptions::default()
    });
    // All memory is one slab of 4 MiB. Small tensors usually get another slab.
    let large = gpu.zeros(&[3 << 20], DType::U8).unwrap();
    large.force().unwrap();
    let small = gpu.zeros(&[4], DType::U8).unwrap();
    small.force().unwrap();
    assert_eq!(gpu.memory().stats().slabs.len(), 1);
    let huge = gpu.zeros(&[7 << 19], DType::U8).unwrap();
    assert!(matches!(huge.force(), Err(Error::OutOfMemory(_))));
    drop(large);
    huge.force().unwrap_err();
    drop(small);
    huge.force().unwrap();
    assert_eq!(sim.complaints(), [""; 0]);
}

/// Slabs that fit in a new limit may still be in the way of staging.
#[test]
fn a_limit_that_was_lowered_is_never_passed_again() {
    for maps_slabs in [false, true] {
        let (gpu, sim) = open(SimOptions {
            maps_slabs,
            ..options()
        });
        let held = (0..12).map(|n| gpu.full(&[64 << 10], n, DType::F32));
        let held: Vec<_> = held.collect::<Result<_, _>>().unwrap();
        gpu.finish().unwrap();
        for spare_bytes in [0, 1 << 10, 64 << 10] {
            gpu.memory().trim(0).unwrap();
            let budget_bytes = gpu.memory().stats().device_bytes.now + spare_bytes;
            let shortfall_bytes = gpu
                .memory()
                .set_budget(Budget::device(budget_bytes))
                .unwrap();
            assert_eq!(shortfall_bytes, 0, "{}", gpu.memory().stats());
            gpu.memory().reset_peaks();
            for (n, tensor) in held.iter().enumerate() {
                tensor.evict().unwrap();
                let values = (tensor + 1).unwrap().to_vec::<f32>().unwrap();
                assert!(values.iter().all(|value| *value == (n + 1) as f32));
            }
            let memory = gpu.memory().stats();
            assert!(memory.device_bytes.peak <= budget_bytes, "{memory}");
        }
        drop(held);
        ended(gpu, &sim);
    }
}

#[test]
fn a_device_that_says_nothing_of_its_size_is_not_asked_for_more_at_each_request() {
    let (gpu, sim) = open(SimOptions {
        mode: SimMode::SizesOnly,
        ..options()
    });
    // Twice the device's memory, used in turns, so each use evicts others. Slabs take all memory
    // before the first refusal and leave nothing for staging.
    let tensors: Vec<_> = (0..16)
        .map(|_| gpu.zeros(&[8 << 20], DType::U8).unwrap())
        .collect();
    let refusals = || {
        let counters = sim.counters();
        counters.calls(Site::CreateBuffer) - counters.buffers_created
    };
    tensors.iter().for_each(|tensor| tensor.force().unwrap());
    let (before, uses) = (refusals(), 200);
    for tensor in tensors.iter().cycle().take(uses) {
        tensor.fill_(1).unwrap();
        tensor.force().unwrap();
    }
    let memory = gpu.memory().stats();
    assert!(memory.evicted_bytes > 100 * (8 << 20), "{memory}");
    let refused = refusals() - before;
    assert!(refused < uses as u64 / 4, "{refused} refusals");
    drop(tensors);
    ended(gpu, &sim);
}
