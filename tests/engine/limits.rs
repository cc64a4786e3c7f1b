//! Limits: what is evicted, down to which level, and what the library promises.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use lapidary::sim::SimOptions;
use lapidary::{Budget, DType, Error, Gpu, Options, Result, Tensor};
use pollster::block_on;

use crate::engine::ended;

const MIB: u64 = 1 << 20;

fn options() -> SimOptions {
    SimOptions {
        memory_bytes: 256 * MIB,
        max_buffer_bytes: 64 * MIB,
        max_binding_bytes: 64 * MIB,
        lag_submissions: 3,
        dirty: true,
        ..SimOptions::default()
    }
}

fn open(sim: SimOptions, budget: Budget) -> (Gpu, lapidary::sim::SimHandle) {
    let options = Options {
        budget: Some(budget),
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(sim, options).unwrap()
}

/// Placed tensors with values, of `size_bytes` each.
fn fill(gpu: &Gpu, count: usize, size_bytes: u64) -> Vec<Tensor> {
    let make = |number: usize| {
        let len = (size_bytes / 4) as usize;
        let tensor = gpu.full(&[len], number as f32, DType::F32).unwrap();
        tensor.force().unwrap();
        tensor
    };
    (0..count).map(make).collect()
}

fn check(tensors: &[Tensor]) {
    for (number, tensor) in tensors.iter().enumerate() {
        let first = tensor.narrow(0, 0, 1).unwrap();
        assert_eq!(first.item::<f32>().unwrap(), number as f32);
    }
}

#[test]
fn small_ones_leave_where_the_host_has_no_room_for_large_ones() {
    for large in 2..7_u64 {
        let slab_bytes = (2 * large + 2) * MIB;
        let budget = Budget {
            host_bytes: Some(MIB),
            disk_bytes: Some(0),
            ..Budget::device(slab_bytes * 33 / 32 + (64 << 10))
        };
        let (gpu, sim) = open(options(), budget);
        let big = fill(&gpu, large as usize, 2 * MIB);
        let small = fill(&gpu, 8, MIB / 4);
        gpu.finish().unwrap();
        // Only four of the small ones fit on the host, and they are just enough.
        let one = gpu.full(&[MIB as usize / 4], 1, DType::F32).unwrap();
        one.force().unwrap();
        check(&big);
        drop((one, big, small));
        ended(gpu, &sim);
    }
}

#[test]
fn many_small_ones_leave_together() {
    let (gpu, sim) = open(options(), Budget::device(4 * MIB));
    let tensors = fill(&gpu, 6000, 1024);
    gpu.finish().unwrap();
    let memory = gpu.memory().stats();
    let left = memory.evicted_bytes / 1024;
    let submissions = sim.counters().submissions;
    assert!(left >= 2000, "{memory}");
    // Each force submits once; evictions add few submissions.
    assert!(submissions < 6000 + left / 6, "{submissions} for {left}");
    check(&tensors);
    drop(tensors);
    ended(gpu, &sim);
}

#[test]
fn polls_alone_give_back_what_the_system_wants() {
    let sim = SimOptions {
        os_budget_bytes: Some(128 * MIB),
        ..options()
    };
    let (gpu, sim) = Gpu::simulated(sim).unwrap();
    let tensors = fill(&gpu, 32, MIB);
    gpu.finish().unwrap();
    // A sixteenth stays free for what the driver hides.
    assert_eq!(gpu.memory().stats().budget_bytes, Some(120 * MIB));
    sim.set_os_budget(Some(16 * MIB), 0);
    for _ in 0..64 {
        gpu.poll().unwrap();
    }
    let memory = gpu.memory().stats();
    assert!(memory.device_bytes.now <= 16 * MIB, "{memory}");
    assert_eq!(memory.budget_bytes, Some(15 * MIB));
    check(&tensors);

    // Another program's use may end, so requests are not refused for good.
    sim.set_os_budget(Some(MIB), 0);
    for _ in 0..64 {
        gpu.poll().unwrap();
    }
    let sum = tensors[0].add(&tensors[1]).unwrap();
    let error = sum.force().unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    assert!(!error.is_final());
    sim.set_os_budget(Some(128 * MIB), 0);
    for _ in 0..64 {
        gpu.poll().unwrap();
    }
    assert_eq!(sum.narrow(0, 0, 1).unwrap().item::<f32>().unwrap(), 1.0);
    drop((tensors, sum));
    ended(gpu, &sim);
}

#[test]
fn what_is_reserved_ahead_is_what_was_asked_for_or_the_soft_budget() {
    for budget_bytes in [4 * MIB, 8 * MIB, 20 * MIB, 40 * MIB] {
        let (gpu, sim) = open(options(), Budget::device(budget_bytes));
        let reserved_bytes = gpu.memory().reserve(budget_bytes).unwrap();
        assert!(reserved_bytes <= budget_bytes);
        assert!(
            reserved_bytes >= budget_bytes / 32 * 31 - (64 << 10),
            "{reserved_bytes}"
        );
        gpu.memory().trim(0).unwrap();
        let soft = Budget {
            soft_device_bytes: Some(budget_bytes / 2),
            ..Budget::device(budget_bytes)
        };
        gpu.memory().set_budget(soft).unwrap();
        let reserved_bytes = gpu.memory().reserve(u64::MAX).unwrap();
        assert_eq!(reserved_bytes, budget_bytes / 2);
        gpu.memory().trim(0).unwrap();
        assert_eq!(gpu.memory().reserve(MIB).unwrap(), MIB);
        ended(gpu, &sim);
    }
}

#[test]
fn getting_down_to_a_lowered_limit_takes_only_what_reading_back_takes() {
    let (gpu, sim) = open(options(), Budget::default());
    let tensors = fill(&gpu, 32, MIB);
    gpu.finish().unwrap();
    gpu.memory().trim(0).unwrap();
    gpu.memory().reset_peaks();
    let before = gpu.memory().stats();
    assert_eq!(gpu.memory().set_budget(Budget::device(8 * MIB)).unwrap(), 0);
    let after = gpu.memory().stats();
    assert!(after.device_bytes.now <= 8 * MIB, "{after}");
    let above_bytes = after.device_bytes.peak - before.device_bytes.now;
    assert!(above_bytes <= 8 * MIB / 256, "{above_bytes}");
    check(&tensors);
    drop(tensors);
    ended(gpu, &sim);
}

#[test]
fn getting_down_succeeds_with_one_least_buffer_for_reading_back() {
    for size_bytes in [1 << 10, 8 << 10, 12 << 10, 32 << 10] {
        let (gpu, sim) = open(options(), Budget::default());
        let (small, large) = (fill(&gpu, 8, 1 << 10), fill(&gpu, 8, size_bytes));
        // One slab, which is released only once all have left.
        assert_eq!(gpu.memory().stats().slabs.len(), 1);
        let budget = Budget {
            staging_bytes: Some(48 << 10),
            ..Budget::device(128 << 10)
        };
        // A dry run begins without buffers for reading back.
        let run = gpu.dry_run(|gpu| {
            let excess_bytes = gpu.memory().set_budget(budget)?;
            assert_eq!(excess_bytes, 0, "{}", gpu.memory().stats());
            Ok(())
        });
        run.unwrap();
        drop((small, large));
        ended(gpu, &sim);
    }
}

#[test]
fn a_small_tensor_has_room_in_a_small_budget_that_nothing_can_leave() {
    for budget_bytes in [64 << 10, 256 << 10, MIB, 3 * MIB] {
        let budget = Budget {
            host_bytes: Some(0),
            disk_bytes: Some(0),
            ..Budget::device(budget_bytes)
        };
        let (gpu, sim) = open(crate::engine::options(), budget);
        let tensor = gpu.full(&[64], 7, DType::F32).unwrap();
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [7.0; 64]);
        let other = gpu.tensor(&[8.0_f32; 64], &[64]).unwrap();
        let sum = tensor.add(&other).unwrap();
        assert_eq!(sum.to_vec::<f32>().unwrap(), [15.0; 64]);
        drop((tensor, other, sum));
        ended(gpu, &sim);
    }
}

/// Lowers the limit after 0, 1, 2, … polls of `start`'s future on the first and last tensor, until
/// the future ends before that. Nothing may fail, and nothing may be lost.
fn lowered_wherever_it_waits<T>(start: impl AsyncFn(&Tensor, &Tensor) -> Result<T>) {
    const KIB: u64 = 1 << 10;
    for maps_slabs in [false, true] {
        for times in 0.. {
            let device = SimOptions {
                pauses: 2,
                maps_slabs,
                lag_submissions: 2,
                ..options()
            };
            let (gpu, sim) = open(device, Budget::device(96 * KIB));
            let held = fill(&gpu, 17, 4 * KIB);
            let lower = gpu.memory().set_budget_async(Budget::device(40 * KIB));
            let has_ended = goes_on(start(&held[0], &held[16]), times, lower);
            check(&held);
            drop(held);
            ended(gpu, &sim);
            if has_ended {
                assert!(times > 1, "it never waited");
                break;
            }
            assert!(times < 1000, "it never ends");
        }
    }
}

/// Whether the future ended before the limit was lowered.
fn goes_on<T>(
    future: impl Future<Output = Result<T>>,
    times: usize,
    lower: impl Future<Output = Result<u64>>,
) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    let (mut future, mut lower) = (pin!(future), pin!(lower));
    let mut has_ended = (0..times).any(|_| future.as_mut().poll(&mut context).is_ready());
    let (ended_before, mut has_got_down) = (has_ended, false);
    block_on(poll_fn(|context| {
        if !has_got_down {
            if let Poll::Ready(shortfall_bytes) = lower.as_mut().poll(context) {
                assert_eq!(shortfall_bytes.unwrap(), 0);
                has_got_down = true;
            }
        }
        if !has_ended {
            if let Poll::Ready(result) = future.as_mut().poll(context) {
                let error = result.err().map(|error| error.to_string());
                assert_eq!(error, None, "after {times} polls");
                has_ended = true;
            }
        }
        match has_ended && has_got_down {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }));
    ended_before
}

#[test]
fn what_is_evicted_while_the_limit_is_lowered_leaves() {
    lowered_wherever_it_waits(async |first: &Tensor, last: &Tensor| {
        let sum = first.add(last)?;
        last.evict_async().await?;
        sum.evict_async().await
    });
}

#[test]
fn what_is_read_while_the_limit_is_lowered_is_read() {
    lowered_wherever_it_waits(async |first: &Tensor, last: &Tensor| {
        let sum = first.add(last)?;
        let read = last.to_vec_async::<f32>();
        sum.to_vec_async::<f32>().await?;
        read.await
    });
}

#[test]
fn what_is_computed_while_the_limit_is_lowered_finds_room() {
    lowered_wherever_it_waits(async |first: &Tensor, last: &Tensor| {
        let part = |tensor: &Tensor, len| tensor.narrow(0, 0, len);
        let sums = [1024, 1000, 500, 400];
        let sums = sums.map(|len| part(first, len)?.add(&part(last, len)?));
        for sum in sums.into_iter().collect::<Result<Vec<_>>>()? {
            sum.force_async().await?;
        }
        Ok(())
    });
}

#[test]
fn staged_bytes_that_take_what_a_lowered_limit_keeps_for_reading_back_hold_up_nobody() {
    const KIB: u64 = 1 << 10;
    for device_bytes in (20 * KIB..48 * KIB).step_by(512) {
        let (gpu, sim) = open(options(), Budget::device(160 * KIB));
        let held = fill(&gpu, 4, 4 * KIB);
        let values: Vec<u32> = (0..2048).collect();
        let staged = gpu.tensor(&values, &[2048]).unwrap();
        let shortfall_bytes = gpu
            .memory()
            .set_budget(Budget::device(device_bytes))
            .unwrap();
        assert_eq!(shortfall_bytes, 0, "{device_bytes}");
        let read = staged.to_vec::<u32>();
        let error = read.as_ref().err().map(|error| error.to_string());
        assert_eq!(error, None, "{device_bytes}");
        assert_eq!(read.unwrap(), values);
        check(&held);
        drop((held, staged));
        ended(gpu, &sim);
    }
}

/// A program with the values that it must give.
fn odd_program(gpu: &Gpu) -> Result<()> {
    let values: Vec<f32> = (0..600).map(|i| (i % 7) as f32).collect();
    let x = gpu.tensor(&values, &[20, 30])?;
    let y = x.add(1.0)?.matmul(&x.t()?)?;
    let at = |row: usize, column: usize| values[row * 30 + column];
    let dot = |i, j| (0..30).map(|k| (at(i, k) + 1.0) * at(j, k)).sum::<f32>();
    let expected: Vec<f32> = (0..400).map(|i| dot(i / 20, i % 20)).collect();
    assert_eq!(y.to_vec::<f32>()?, expected);
    assert_eq!(x.sum_all()?.item::<f32>()?, values.iter().sum::<f32>());
    assert_eq!(x.cumsum(1)?.narrow(1, 29, 1)?.shape(), [20, 1]);
    assert_eq!(x.to_vec::<f32>()?, values);
    Ok(())
}

#[test]
fn odd_numbers_of_a_device_are_refused_at_once_or_work() {
    type Spoil = (&'static str, fn(&mut SimOptions, u64), &'static [u64]);
    const CASES: &[Spoil] = &[
        (
            "max_binding_bytes",
            |o, n| o.max_binding_bytes = n,
            &[
                0,
                4,
                12,
                100,
                255,
                256,
                260,
                511,
                768,
                16380,
                16384,
                16388,
                u64::MAX,
                u64::MAX - 255,
            ],
        ),
        (
            "max_buffer_bytes",
            |o, n| o.max_buffer_bytes = n,
            &[0, 5, 100, 255, 65_537, u64::MAX],
        ),
        (
            "offset_alignment_bytes",
            |o, n| o.offset_alignment_bytes = n,
            &[
                0,
                1,
                2,
                4,
                8,
                16,
                48,
                512,
                1 << 16,
                1 << 17,
                1 << 27,
                1 << 63,
            ],
        ),
        (
            "max_storage_bindings",
            |o, n| o.max_storage_bindings = n as u32,
            &[0, 1, 2, 3, 4, 7, u32::MAX as u64],
        ),
        (
            "max_immediate_bytes",
            |o, n| o.max_immediate_bytes = n as u32,
            &[0, 1, 3, 4, 63, 126, 127, u32::MAX as u64],
        ),
        (
            "max_groups",
            |o, n| o.max_groups = n as u32,
            &[0, 1, 2, 3, u32::MAX as u64],
        ),
        (
            "max_invocations",
            |o, n| o.max_invocations = n as u32,
            &[0, 1, 3, 63, 64, 100, 255, 257, u32::MAX as u64],
        ),
        (
            "max_workgroup_bytes",
            |o, n| o.max_workgroup_bytes = n as u32,
            &[0, 1, 3, 1000, 8191, u32::MAX as u64],
        ),
        ("most_work", |o, n| o.most_work = n, &[0, 1, u64::MAX]),
        (
            "memory_bytes",
            |o, n| o.memory_bytes = n,
            &[0, 1, 100, 4096, 65536, u64::MAX],
        ),
        (
            "os_budget_bytes",
            |o, n| o.os_budget_bytes = Some(n),
            &[0, 1, 4097, u64::MAX],
        ),
        (
            "speed",
            |o, n| {
                o.speed = Some(lapidary::sim::Speed {
                    upload_bytes_per_s: n,
                    download_bytes_per_s: n,
                    memory_bytes_per_s: n,
                    multiply_adds_per_s: n,
                    copy_ns: n as u32,
                    submission_ns: n as u32,
                })
            },
            &[0, 1, u64::MAX],
        ),
        (
            "subgroup_lanes",
            |o, n| o.subgroup_lanes = Some((n as u32, n as u32)),
            &[0, 1, 2, 4, 5, 128, 256],
        ),
    ];
    let mut wrong = Vec::new();
    for (name, spoil, numbers) in CASES {
        for &number in *numbers {
            let mut sim = SimOptions {
                memory_bytes: 64 * MIB,
                ..SimOptions::default()
            };
            spoil(&mut sim, number);
            let run = move || {
                let (gpu, sim) = Gpu::simulated(sim)?;
                odd_program(&gpu)?;
                assert_eq!(sim.complaints(), [""; 0]);
                Ok::<(), Error>(())
            };
            match std::panic::catch_unwind(run) {
                Ok(Ok(())) => {}
                Ok(Err(Error::NeverFits { .. } | Error::OutOfMemory(_))) => {}
                Ok(Err(Error::Option { .. })) => {}
                Ok(Err(error)) => wrong.push(format!("{name} {number}: {error}")),
                Err(_) => wrong.push(format!("{name} {number}: it panicked")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
