//! Few buffers, few submissions, and reuse of free memory.

use lapidary::sim::{Fault, FaultKind, SimMode, SimOptions, Site};
use lapidary::{Budget, DType, Error, adapter::AdapterKind};
use pollster::block_on;

use crate::engine::{ended, numbers, open_alone as open, open_apart, options};

#[test]
fn many_calls_make_few_submissions() {
    let (gpu, sim) = open_apart(options());
    let mut x = gpu.tensor(&numbers(0, 64), &[64]).unwrap();
    for _ in 0..256 {
        x = x.add(1).unwrap();
    }
    assert_eq!(x.to_vec::<f32>().unwrap(), numbers(256, 64));
    let counters = sim.counters();
    assert_eq!(counters.dispatches, 256);
    // The upload, the first work for the idle device, and larger and larger batches.
    assert!(counters.submissions <= 5, "{counters:?}");
    // In place, and not in place where the execution pass came while the operand was still held.
    assert!(counters.pipelines_created <= 2);
    drop(x);
    ended(gpu, &sim);
}

#[test]
fn a_steady_loop_makes_nothing_after_three_rounds() {
    for maps_slabs in [false, true] {
        let (gpu, sim) = open(SimOptions {
            maps_slabs,
            ..options()
        });
        let weights = gpu.tensor(&numbers(0, 30_000), &[300, 100]).unwrap();
        let mut made = Vec::new();
        for round in 0..10 {
            let x = gpu.tensor(&numbers(round, 100), &[100]).unwrap();
            let y = weights.add(&x).unwrap().maximum(3).unwrap();
            let sums = y.sum(&[1]).unwrap();
            let (late, sums) = (y.to_vec_async::<f32>(), sums.to_vec::<f32>().unwrap());
            assert_eq!(sums.len(), 300);
            assert_eq!(block_on(late).unwrap().len(), 30_000);
            let counters = sim.counters();
            made.push((
                counters.buffers_created,
                counters.bind_groups_created,
                counters.pipelines_created,
            ));
        }
        assert!(made[3..].iter().all(|&later| later == made[3]), "{made:?}");
        drop(weights);
        ended(gpu, &sim);
    }
}

#[test]
fn reads_that_nobody_awaits_cost_no_buffer_each() {
    let (gpu, sim) = open(options());
    let x = gpu.zeros(&[1000], DType::F32).unwrap();
    for _ in 0..200 {
        drop(x.to_vec_async::<f32>());
        let mut read = Box::pin(x.to_vec_async::<f32>());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        // Submitted and then dropped.
        let _ = read.as_mut().poll(&mut context);
        gpu.poll().unwrap();
    }
    let readback_bytes = gpu.memory().stats().readback_bytes.now;
    // One of 64 KiB is kept for times of short memory.
    assert!(readback_bytes <= (64 << 10) + 15 * 4096, "{readback_bytes}");
    drop(x);
    ended(gpu, &sim);
}

#[test]
fn a_chain_of_temporaries_takes_the_room_of_two() {
    let (gpu, sim) = open(options());
    let bytes = 64 << 10;
    let x = gpu.zeros(&[128, 128], DType::F32).unwrap();
    gpu.finish().unwrap();
    gpu.memory().reset_peaks();
    let mut y = x.t().unwrap().copy().unwrap();
    for _ in 0..100 {
        // A transposition cannot run in place.
        y = y.t().unwrap().add(&x).unwrap();
    }
    assert_eq!(y.to_vec::<f32>().unwrap(), [0.0; 128 * 128]);
    let peak_bytes = gpu.memory().stats().live_bytes.peak;
    assert!(peak_bytes <= 3 * bytes, "{peak_bytes}");
    assert_eq!(gpu.memory().stats().slabs_created, 1);
    drop((x, y));
    ended(gpu, &sim);
}

#[test]
fn an_operand_that_nobody_else_holds_gives_its_room_to_the_result() {
    let donated = |call: &dyn Fn(&lapidary::Gpu) -> Vec<lapidary::Tensor>| {
        let (gpu, sim) = open_apart(options());
        let held = call(&gpu);
        gpu.finish().unwrap();
        let donated = gpu.memory().stats().donated;
        drop(held);
        ended(gpu, &sim);
        donated
    };
    let fresh = |gpu: &lapidary::Gpu| gpu.tensor(&numbers(0, 64), &[64]).unwrap();
    assert_eq!(donated(&|gpu| vec![fresh(gpu).neg().unwrap()]), 1);
    assert_eq!(
        donated(&|gpu| vec![fresh(gpu).add(&fresh(gpu)).unwrap()]),
        1
    );
    assert_eq!(
        donated(&|gpu| vec![fresh(gpu).neg().unwrap().neg().unwrap()]),
        2
    );
    let twice = |gpu: &lapidary::Gpu| {
        let x = fresh(gpu);
        vec![x.mul(&x).unwrap()]
    };
    assert_eq!(donated(&twice), 1);
    // Still held: by a variable, by a view, by a read.
    let held = |gpu: &lapidary::Gpu| {
        let x = fresh(gpu);
        vec![x.neg().unwrap(), x]
    };
    assert_eq!(donated(&held), 0);
    let viewed = |gpu: &lapidary::Gpu| {
        let x = fresh(gpu);
        vec![x.neg().unwrap(), x.narrow(0, 3, 1).unwrap()]
    };
    assert_eq!(donated(&viewed), 0);
    // Element i does not come from element i: another shape, another map, another element size.
    let flipped = |gpu: &lapidary::Gpu| {
        let x = fresh(gpu);
        vec![x.add(&x.flip(&[0]).unwrap()).unwrap()]
    };
    assert_eq!(donated(&flipped), 0);
    let column = |gpu: &lapidary::Gpu| {
        vec![
            fresh(gpu)
                .view_as(&[8, 8])
                .unwrap()
                .t()
                .unwrap()
                .neg()
                .unwrap(),
        ]
    };
    assert_eq!(donated(&column), 0);
    assert_eq!(
        donated(&|gpu| vec![fresh(gpu).cast(DType::F16).unwrap()]),
        0
    );
    assert_eq!(donated(&|gpu| vec![fresh(gpu).sum(&[0]).unwrap()]), 0);
}

#[test]
fn a_result_that_took_over_its_operand_can_be_read_and_the_operands_reads_too() {
    let (gpu, sim) = open(options());
    let x = gpu.tensor(&numbers(0, 64), &[64]).unwrap();
    let before = x.to_vec_async::<f32>();
    let y = x.add(1).unwrap();
    drop(x);
    assert_eq!(y.to_vec::<f32>().unwrap(), numbers(1, 64));
    assert_eq!(block_on(before).unwrap(), numbers(0, 64));
    drop(y);
    ended(gpu, &sim);
}

#[test]
fn empty_slabs_go_before_the_mark_rises() {
    let (gpu, sim) = open(options());
    for megabytes in [5, 6, 7, 8, 9, 10] {
        let x = gpu.zeros(&[megabytes << 20], DType::U8).unwrap();
        x.force().unwrap();
    }
    let memory = gpu.memory().stats();
    assert!(memory.reserved_bytes.now <= 11 << 20, "{memory}");
    assert!(memory.reserved_bytes.peak <= 11 << 20, "{memory}");
    ended(gpu, &sim);
}

#[test]
fn released_slabs_count_until_the_late_queue_has_done_with_them() {
    let (gpu, sim) = open(SimOptions {
        lag_submissions: u32::MAX,
        ..options()
    });
    let x = gpu.zeros(&[8 << 20], DType::U8).unwrap();
    x.force().unwrap();
    drop(x);
    assert_eq!(gpu.memory().trim(0).unwrap(), 8 << 20);
    let memory = gpu.memory().stats();
    assert_eq!(
        (memory.reserved_bytes.now, memory.retiring_bytes.now),
        (0, 8 << 20),
        "{memory}"
    );
    assert_eq!(sim.counters().retiring_bytes, 8 << 20);
    gpu.finish().unwrap();
    assert_eq!(gpu.memory().stats().retiring_bytes.now, 0);
    assert_eq!(sim.counters().retiring_bytes, 0);
    ended(gpu, &sim);
}

#[test]
fn dropping_costs_the_driver_nothing() {
    let (gpu, sim) = open(options());
    let held: Vec<_> = (0..100)
        .map(|_| gpu.zeros(&[256], DType::F32).unwrap())
        .collect();
    gpu.finish().unwrap();
    let before = sim.counters().calls(Site::AnyCall);
    std::thread::spawn(move || drop(held)).join().unwrap();
    assert_eq!(sim.counters().calls(Site::AnyCall), before);
    assert_eq!(gpu.memory().stats().live_bytes.now, 0);
    ended(gpu, &sim);
}

#[test]
fn bind_groups_are_bounded_and_those_in_use_stay() {
    const MANY: usize = 5000;
    // Two generations of the cache.
    const MOST: u64 = 2 * 2048;
    let (gpu, sim) = open(options());
    let fresh = || gpu.zeros(&[4], DType::U32).unwrap();
    let tensors: Vec<_> = (0..MANY).map(|_| fresh()).collect();
    let hot = fresh();
    gpu.finish().unwrap();
    for (index, tensor) in tensors.iter().enumerate() {
        // One place needs one bind group.
        tensor.add_(index as u32).unwrap();
        if index % 500 == 0 {
            hot.add_(1).unwrap();
            gpu.flush().unwrap();
            assert!(gpu.memory().stats().bind_groups <= MOST);
            assert!(sim.counters().bind_groups_live <= MOST);
        }
    }
    gpu.finish().unwrap();
    assert!(gpu.memory().stats().bind_groups < MANY as u64);
    assert!(sim.counters().bind_groups_live <= MOST);
    let made = sim.counters().calls(Site::CreateBindGroup);
    assert_eq!(made, MANY as u64 + 1, "the one in use was made anew");
    // The first ones were dropped from the cache, the last ones not. All still compute.
    tensors[MANY - 1].add_(1).unwrap();
    gpu.flush().unwrap();
    assert_eq!(sim.counters().calls(Site::CreateBindGroup), made);
    tensors[0].add_(1).unwrap();
    gpu.flush().unwrap();
    assert_eq!(sim.counters().calls(Site::CreateBindGroup), made + 1);
    assert_eq!(hot.to_vec::<u32>().unwrap(), [MANY as u32 / 500; 4]);
    assert_eq!(tensors[0].to_vec::<u32>().unwrap(), [1; 4]);
    let last = tensors[MANY - 1].to_vec::<u32>().unwrap();
    assert_eq!(last, [MANY as u32; 4]);
    drop((tensors, hot));
    ended(gpu, &sim);
}

#[test]
fn what_found_no_room_has_taken_over_nothing() {
    let (gpu, sim) = open(options());
    let budget = Budget {
        host_bytes: Some(0),
        disk_bytes: Some(0),
        ..Budget::device(160 << 10)
    };
    gpu.memory().set_budget(budget).unwrap();
    let len = 1000;
    let [x, donor] = [0, 1].map(|start| gpu.tensor(&numbers(start, len), &[len]).unwrap());
    let holder = gpu.zeros(&[34_200], DType::F32).unwrap();
    for tensor in [&x, &donor, &holder] {
        tensor.force().unwrap();
    }
    // One kernel with two results, one of which could take over the block of `donor`.
    let tripled = x.mul(3).unwrap();
    let sum = donor.add(&tripled).unwrap();
    drop(donor);
    assert!(matches!(sum.force(), Err(Error::OutOfMemory(_))));
    drop(holder);
    let expected: Vec<f32> = (0..len).map(|n| (n + 1 + 3 * n) as f32).collect();
    assert_eq!(sum.to_vec::<f32>().unwrap(), expected);
    assert_eq!(tripled.to_vec::<f32>().unwrap()[7], 21.0);
    drop((x, tripled, sum));
    ended(gpu, &sim);
}

#[test]
fn what_could_not_be_compiled_has_taken_over_nothing() {
    let (gpu, sim) = open(options());
    let len = 1000;
    let [x, donor] = [0, 1].map(|start| gpu.tensor(&numbers(start, len), &[len]).unwrap());
    let tripled = x.mul(3).unwrap();
    let sum = donor.add(&tripled).unwrap();
    drop(donor);
    // The fused kernel of both.
    sim.arm(Fault::once(Site::CreatePipeline, 1, FaultKind::Invalid));
    let expected: Vec<f32> = (0..len).map(|n| (n + 1 + 3 * n) as f32).collect();
    assert_eq!(sum.to_vec::<f32>().unwrap(), expected);
    assert_eq!(sim.counters().faults, 1);
    assert_eq!(tripled.to_vec::<f32>().unwrap()[7], 21.0);
    drop((x, tripled, sum));
    ended(gpu, &sim);
}

#[test]
fn software_compiles_a_kernel_once_wherever_its_operands_lie() {
    let counted = |kind| {
        let (gpu, sim) = open(SimOptions {
            kind,
            mode: SimMode::SizesOnly,
            max_buffer_bytes: 1 << 20,
            ..SimOptions::default()
        });
        // Four for each slab, so a product shares its slab with both operands, one, or none.
        let mut values = vec![];
        values.resize_with(2, || gpu.zeros(&[256, 256], DType::F32).unwrap());
        for last in 1..=100_usize {
            let [left, right] = match last % 4 {
                0 => [last, last / 2],
                1 => [last / 2, last],
                2 => [last, last - 1],
                _ => [0, last / 2],
            };
            values.push(values[left].matmul(&values[right]).unwrap());
        }
        gpu.flush().unwrap();
        assert!(gpu.memory().stats().slabs.len() >= 20);
        assert_eq!(sim.counters().dispatches, 100);
        sim.counters().pipelines_created
    };
    // On a GPU, barriers are for written buffers, so each case needs its own kernel.
    assert_eq!(counted(AdapterKind::Discrete), 4);
    assert_eq!(counted(AdapterKind::Cpu), 1);
}
