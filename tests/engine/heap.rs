//! Evictions to a heap in the host's memory. They and restores are copies in the batch, and nobody
//! waits for them.

use lapidary::sim::{
    Fault, FaultKind, FileFault, FileFaultKind, FileSite, Repeat, SimHandle, SimOptions, Site,
};
use lapidary::{Budget, DType, Error, Gpu, Options, Residency, Result, Tensor};

use crate::engine::{ended, options};

const MIB: u64 = 1 << 20;

/// Elements of 64 KiB.
pub(super) const LEN: usize = 1 << 14;

pub(super) fn open(budget: Budget, device: SimOptions) -> (Gpu, SimHandle) {
    open_as(Some(true), budget, device)
}

fn open_as(host_heap: Option<bool>, budget: Budget, device: SimOptions) -> (Gpu, SimHandle) {
    let device = SimOptions {
        compact_always: Some(false),
        ..device
    };
    let options = Options {
        budget: Some(budget),
        host_heap,
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(device, options).expect("the options go together")
}

/// Tensors of 64 KiB that the device fills with 1, 2, 3, …
fn filled(gpu: &Gpu, count: u16) -> Vec<Tensor> {
    filled_in_steps(gpu, count, || ())
}

/// The same, with a flush after each 8 of them.
fn filled_in_steps(gpu: &Gpu, count: u16, flush: impl Fn()) -> Vec<Tensor> {
    let one = |number: u16| {
        let full = gpu.full(&[LEN], f32::from(number), DType::F32).unwrap();
        if number.is_multiple_of(8) {
            flush();
        }
        full
    };
    (1..=count).map(one).collect()
}

/// Room for a few dozen of them on the device, staging to go on to the disk, and so much for the
/// heap.
fn beside_a_disk(host_bytes: u64) -> Budget {
    Budget {
        staging_bytes: Some(2 * MIB),
        host_bytes: Some(host_bytes),
        ..Budget::device(4 * MIB)
    }
}

#[track_caller]
pub(super) fn check(tensors: &[Tensor]) {
    for (tensor, number) in tensors.iter().zip(1_u16..) {
        let found = tensor.to_vec::<f32>().unwrap();
        assert!(found == vec![f32::from(number); LEN], "{number}");
    }
}

/// How often the driver was asked to wait for something, or to map it.
pub(super) fn waits(sim: &SimHandle) -> [u64; 3] {
    [Site::Wait, Site::Map, Site::MapDone].map(|site| sim.counters().calls(site))
}

#[test]
fn nobody_waits_for_what_leaves_and_comes_back() {
    // No work runs before somebody waits for it.
    let (gpu, sim) = open(
        Budget::device(2 * MIB),
        SimOptions {
            lag_submissions: u32::MAX,
            ..options()
        },
    );
    let tensors = filled(&gpu, 64);
    let mut sum = gpu.zeros(&[LEN], DType::F32).unwrap();
    for _ in 0..3 {
        for tensor in &tensors {
            sum = (&sum + tensor).unwrap();
        }
        gpu.flush().unwrap();
    }
    let stats = gpu.memory().stats();
    assert!(stats.evicted_bytes > 2 * MIB, "{stats}");
    assert!(stats.restored_bytes > 4 * MIB, "{stats}");
    assert!(stats.device_bytes.peak <= 2 * MIB, "{stats}");
    assert_eq!(waits(&sim), [0; 3], "{stats}");
    assert_eq!(stats.waits().total().times, 0, "{stats}");
    assert_eq!(sim.counters().submissions_pending, stats.submissions);
    // A tensor that was not written since leaves again without a copy.
    assert!(stats.evicted_bytes <= 6 * MIB, "{stats}");
    assert_eq!(sum.to_vec::<f32>().unwrap(), vec![3.0 * 2080.0; LEN]);
    check(&tensors);
    drop((tensors, sum));
    gpu.memory().trim(0).unwrap();
    let stats = gpu.memory().stats();
    assert_eq!((stats.host_bytes.now, stats.host_slab_bytes.now), (0, 0));
    ended(gpu, &sim);
}

#[test]
fn a_read_copies_from_the_heap_and_restores_nothing() {
    let (gpu, sim) = open(Budget::device(2 * MIB), options());
    let tensor = gpu.arange(0, LEN as u32, 1, DType::U32).unwrap();
    tensor.evict().unwrap();
    assert_eq!(tensor.residency(), Residency::Host);
    let all: Vec<u32> = (0..LEN as u32).collect();
    assert_eq!(tensor.to_vec::<u32>().unwrap(), all);
    let part = tensor.narrow(0, 1001, 3).unwrap();
    assert_eq!(part.to_vec::<u32>().unwrap(), [1001, 1002, 1003]);
    assert_eq!(tensor.residency(), Residency::Host);
    assert_eq!(gpu.memory().stats().restored_bytes, 0);
    // A write of a part needs the rest.
    part.write(&[7_u32, 8, 9]).unwrap();
    assert_eq!(part.to_vec::<u32>().unwrap(), [7, 8, 9]);
    assert_eq!(tensor.to_vec::<u32>().unwrap()[..1001], all[..1001]);
    drop((tensor, part));
    ended(gpu, &sim);
}

#[test]
fn what_has_not_changed_leaves_again_without_a_copy() {
    let (gpu, sim) = open(Budget::device(2 * MIB), options());
    let tensor = filled(&gpu, 1).remove(0);
    tensor.evict().unwrap();
    (&tensor + 1).unwrap().force().unwrap();
    assert_eq!(tensor.residency(), Residency::Device);
    let before = gpu.memory().stats();
    assert_eq!(
        (before.evicted_bytes, before.restored_bytes),
        (64 << 10, 64 << 10)
    );
    tensor.evict().unwrap();
    let after = gpu.memory().stats();
    assert_eq!(after.evicted_bytes, before.evicted_bytes);
    assert_eq!(tensor.residency(), Residency::Host);
    // After a write, the copy is of no use.
    tensor.fill_(5).unwrap();
    tensor.force().unwrap();
    assert_eq!(gpu.memory().stats().host_bytes.now, 0);
    assert_eq!(tensor.to_vec::<f32>().unwrap(), vec![5.0; LEN]);
    drop(tensor);
    ended(gpu, &sim);
}

#[test]
fn the_heap_stays_within_the_hosts_limit_and_the_rest_goes_on_to_the_disk() {
    let limits = [0, 4 << 10, 64 << 10, 100_000, MIB, 3 * MIB + 12];
    for host_bytes in limits {
        let budget = Budget {
            host_bytes: Some(host_bytes),
            ..Budget::device(MIB)
        };
        let (gpu, sim) = open(budget, options());
        let tensors = filled(&gpu, 64);
        for tensor in &tensors {
            (tensor + 1).unwrap().force().unwrap();
            let stats = gpu.memory().stats();
            assert!(stats.host_slab_bytes.peak <= host_bytes, "{stats}");
        }
        let stats = gpu.memory().stats();
        assert!(stats.spilled_bytes.now > 0, "{stats}");
        assert_eq!(
            stats.host_bytes.now >= 64 << 10,
            host_bytes >= 64 << 10,
            "{stats}"
        );
        check(&tensors);
        // What is in the heap has to leave it.
        for host_bytes in [host_bytes / 2, 0] {
            let budget = Budget {
                host_bytes: Some(host_bytes),
                ..budget
            };
            gpu.memory().set_budget(budget).unwrap();
            let stats = gpu.memory().stats();
            assert!(stats.host_slab_bytes.now <= host_bytes, "{stats}");
            assert!(
                tensors
                    .iter()
                    .all(|one| one.residency() != Residency::Poisoned)
            );
        }
        assert!(tensors.iter().all(|one| one.residency() != Residency::Host));
        check(&tensors);
        drop(tensors);
        ended(gpu, &sim);
    }
}

#[test]
fn a_driver_without_memory_for_the_heap_evicts_to_plain_memory() {
    let (gpu, sim) = open(Budget::device(2 * MIB), options());
    let tensors = filled(&gpu, 4);
    tensors[0].evict().unwrap();
    let slabs = gpu.memory().stats().host_slab_bytes.now;
    // Whatever else has no buffer of its size is not asked for here.
    let budget = gpu.memory().budget();
    sim.arm(Fault::for_ever(
        Site::CreateBuffer,
        1,
        FaultKind::OutOfMemory,
    ));
    let many = filled(&gpu, 16);
    for tensor in &many {
        let _ = tensor.evict();
    }
    sim.disarm();
    assert_eq!(gpu.memory().stats().host_slab_bytes.now, slabs);
    gpu.memory().set_budget(budget).unwrap();
    check(&many);
    check(&tensors);
    drop((many, tensors));
    ended(gpu, &sim);
}

/// A refused submission loses no byte of what its batch should have moved, whatever refuses it and
/// how often.
#[test]
fn what_a_refused_batch_moves_is_not_lost() {
    let kinds = [FaultKind::OutOfMemory, FaultKind::Invalid];
    for nth in 1..=12 {
        for kind in kinds {
            for fault in [
                Fault::once(Site::Submit, nth, kind),
                Fault::every_second(Site::Submit, nth, kind),
                Fault::for_ever(Site::Submit, nth, kind),
            ] {
                let (gpu, sim) = open(Budget::device(MIB), options());
                let tensors = filled(&gpu, 32);
                gpu.flush().unwrap();
                sim.arm(fault);
                for pair in tensors.windows(2) {
                    let sum = (&pair[0] + &pair[1]).unwrap();
                    let _ = (sum.force(), pair[0].evict(), gpu.flush());
                }
                sim.disarm();
                eprintln!("{fault:?}");
                check(&tensors);
                let sum = (&tensors[0] + &tensors[31]).unwrap();
                assert_eq!(sum.to_vec::<f32>().unwrap(), vec![33.0; LEN]);
                drop((tensors, sum));
                ended(gpu, &sim);
            }
        }
    }
}

#[test]
fn what_is_in_the_heap_is_lost_with_the_device_unless_the_app_forbids_the_heap() {
    for host_heap in [true, false] {
        let (gpu, sim) = open_as(Some(host_heap), Budget::device(2 * MIB), options());
        let tensor = filled(&gpu, 1).remove(0);
        tensor.evict().unwrap();
        let in_use = gpu.memory().stats().host_slab_bytes.now > 0;
        assert_eq!((in_use, gpu.caps().host_heap), (host_heap, host_heap));
        sim.lose("pulled out");
        assert!(gpu.flush().is_err());
        let recovered = gpu.reopen().unwrap();
        assert_eq!(recovered.kept, u64::from(!host_heap));
        let in_heap_bytes = if host_heap { 4 * LEN as u64 } else { 0 };
        assert_eq!(recovered.gone_with_heap_bytes, in_heap_bytes);
        assert_eq!(
            recovered.gone.len(),
            usize::from(host_heap),
            "{recovered:?}"
        );
        match host_heap {
            true => {
                let error = tensor.to_vec::<f32>().unwrap_err();
                assert!(matches!(error, Error::Poisoned { .. }), "{error}");
                tensor.write(&[1.0_f32; LEN]).unwrap();
            }
            false => check(std::slice::from_ref(&tensor)),
        }
        // The heap of the new device is empty, and works.
        tensor.evict().unwrap();
        check(std::slice::from_ref(&tensor));
        drop(tensor);
        ended(gpu, &sim);
    }
}

#[test]
fn rows_of_a_table_in_the_heap_are_read_there() {
    for (dtype, width) in [(DType::U32, 24), (DType::F16, 25), (DType::F32, 1)] {
        let (gpu, sim) = open(Budget::device(MIB), options());
        let rows = 128;
        let numbers = gpu.arange(0, (rows * width) as u32, 1, DType::U32).unwrap();
        let table = numbers
            .view_as(&[rows, width])
            .unwrap()
            .cast(dtype)
            .unwrap();
        let floats = |tensor: Tensor| {
            let floats = tensor.cast(DType::F32).unwrap();
            floats.to_vec::<f32>().unwrap()
        };
        let expected = floats(table.narrow(0, 77, 1).unwrap());
        table.evict().unwrap();
        let named = gpu.tensor(&[77_u32, 3, 500], &[3]).unwrap();
        let picked = floats(table.embedding(&named).unwrap());
        assert_eq!(picked[..width], expected);
        assert_eq!(picked[2 * width..], vec![0.0; width]);
        assert_eq!(table.residency(), Residency::Host, "{dtype:?}");
        drop((numbers, table, named));
        ended(gpu, &sim);
    }
}

/// What uses a tensor whose move was refused, and the numbers that come of it.
type Use = fn(Tensor) -> Result<Vec<f32>>;

/// Commands that are encoded while the move of their operand waits for the driver. Most of them are
/// the last to hold the tensor, or write to it.
const USES: [Use; 7] = [
    |tensor| {
        let sum = (&tensor + 1)?;
        drop(tensor);
        sum.to_vec()
    },
    |tensor| {
        tensor.add_(1)?;
        tensor.to_vec()
    },
    |tensor| {
        let last = LEN - 1;
        tensor.narrow(0, last, 1)?.write(&[41.0_f32])?;
        let sum = (&tensor + 1)?;
        drop(tensor);
        let mut found: Vec<f32> = sum.to_vec()?;
        assert_eq!(std::mem::replace(&mut found[last], 42.0), 42.0);
        Ok(found)
    },
    |tensor| {
        let bytes = tensor.to_vec_async::<f32>();
        drop(tensor);
        let read = pollster::block_on(bytes)?;
        Ok(read.iter().map(|one| one + 1.0).collect())
    },
    |tensor| {
        // The result takes over the storage of its operand.
        let sum = (tensor + 1)?;
        sum.to_vec()
    },
    |tensor| {
        tensor.force()?;
        tensor.evict()?;
        let sum = (tensor + 1)?;
        sum.to_vec()
    },
    |tensor| {
        let view = tensor.view_as(&[2, LEN / 2])?;
        drop(tensor);
        let sum = (view.t()? + 1)?.t()?.contiguous()?;
        sum.view_as(&[LEN])?.to_vec()
    },
];

#[test]
fn what_uses_a_tensor_after_its_move_was_refused_gets_its_bytes() {
    for (index, one) in USES.iter().enumerate() {
        for faults in 1..=3 {
            for kind in [FaultKind::OutOfMemory, FaultKind::Invalid] {
                let (gpu, sim) = open(Budget::device(2 * MIB), options());
                let tensor = gpu.full(&[LEN], 41.0_f32, DType::F32).unwrap();
                tensor.force().unwrap();
                gpu.flush().unwrap();
                tensor.evict().unwrap();
                // The move alone, once or more often, and what comes with it.
                sim.arm(Fault::once(Site::Submit, 1, kind));
                gpu.flush().unwrap();
                if faults > 1 {
                    sim.arm(Fault::once(Site::Submit, 1, kind));
                    gpu.flush().unwrap();
                }
                if faults > 2 {
                    // The move is taken, and what uses the tensor is refused.
                    sim.arm(Fault::once(Site::Submit, 2, kind));
                    let _ = (&tensor + 1).unwrap().force();
                }
                sim.disarm();
                let found = one(tensor).unwrap();
                assert!(found == vec![42.0; LEN], "use {index}, {faults}, {kind:?}");
                ended(gpu, &sim);
            }
        }
    }
}

#[test]
fn a_lower_limit_of_the_host_is_reached_while_the_device_works() {
    for lag_submissions in [0, 3, u32::MAX] {
        let device = SimOptions {
            lag_submissions,
            ..options()
        };
        let (gpu, sim) = open(Budget::device(8 * MIB), device);
        let tensors = filled(&gpu, 64);
        for tensor in &tensors {
            tensor.evict().unwrap();
        }
        // Most are on the device again, and their copies are spread over all slabs of the heap.
        for tensor in tensors
            .iter()
            .filter(|one| !std::ptr::eq(*one, &tensors[9]))
        {
            (tensor + 1).unwrap().force().unwrap();
        }
        let before = gpu.memory().stats().host_slab_bytes.now;
        assert!(before >= 4 * MIB, "{before}");
        for host_bytes in [before / 2, 100_000, 0] {
            let budget = Budget {
                host_bytes: Some(host_bytes),
                ..gpu.memory().budget()
            };
            gpu.memory().set_budget(budget).unwrap();
            let stats = gpu.memory().stats();
            assert!(stats.host_slab_bytes.now <= host_bytes, "{stats}");
            assert!(
                stats.spilled_bytes.now <= 128 << 10,
                "only what has to go on: {stats}"
            );
        }
        check(&tensors);
        drop(tensors);
        ended(gpu, &sim);
    }
}

#[test]
fn empty_slabs_of_the_heap_make_way_for_a_slab_of_another_class() {
    let budget = Budget {
        host_bytes: Some(2 * MIB),
        disk_bytes: Some(0),
        ..Budget::device(8 * MIB)
    };
    let (gpu, sim) = open(budget, options());
    let small = |number: u16| gpu.full(&[64], f32::from(number), DType::F32).unwrap();
    let many: Vec<Tensor> = (0..2000).map(small).collect();
    for tensor in &many {
        tensor.evict().unwrap();
    }
    assert!(gpu.memory().stats().host_slab_bytes.now > 256 << 10);
    drop(many);
    let large = gpu.full(&[31 << 14], 7.0_f32, DType::F32).unwrap();
    large.evict().unwrap();
    assert_eq!(large.residency(), Residency::Host);
    assert!(large.to_vec::<f32>().unwrap() == vec![7.0; 31 << 14]);
    drop(large);
    ended(gpu, &sim);
}

#[test]
fn cold_blocks_of_a_full_heap_go_on_to_the_disk_before_their_room_is_needed() {
    let budget = beside_a_disk(4 * MIB);
    let (gpu, sim) = open(budget, options());
    let tensors = filled_in_steps(&gpu, 300, || gpu.flush().unwrap());
    gpu.flush().unwrap();
    let stats = gpu.memory().stats();
    assert!(stats.host_slab_bytes.peak <= 4 * MIB, "{stats}");
    assert!(stats.spilled_bytes.now > 8 * MIB, "{stats}");
    // Nobody waited until bytes had come from the device or the heap.
    assert_eq!(stats.waits().host.times, 0, "{stats}");
    // The oldest are on the disk, and those that left last are in the heap: what the heap took
    // first has made way.
    let places: Vec<Residency> = tensors.iter().map(|tensor| tensor.residency()).collect();
    let count = |range: std::ops::Range<usize>, place: Residency| {
        places[range].iter().filter(|one| **one == place).count()
    };
    assert!(count(0..64, Residency::Disk) >= 60, "{places:?}");
    assert!(count(220..260, Residency::Host) >= 30, "{places:?}");
    check(&tensors);
    drop(tensors);
    ended(gpu, &sim);
}

#[test]
fn what_the_app_evicts_to_a_full_heap_pushes_older_blocks_on_behind_the_work() {
    let budget = beside_a_disk(4 * MIB);
    let (gpu, sim) = open(budget, options());
    let tensors: Vec<Tensor> = (1..=300_u32)
        .map(|number| {
            let tensor = gpu.full(&[LEN], number, DType::F32).unwrap();
            tensor.evict().unwrap();
            tensor
        })
        .collect();
    let stats = gpu.memory().stats();
    assert!(stats.spilled_bytes.now > 8 * MIB, "{stats}");
    let is_at = |range: std::ops::Range<usize>, place: Residency| {
        tensors[range].iter().all(|one| one.residency() == place)
    };
    assert!(
        is_at(0..200, Residency::Disk) && is_at(270..300, Residency::Host),
        "{stats}"
    );
    check(&tensors);
    drop(tensors);
    ended(gpu, &sim);
}

#[test]
fn blocks_go_on_to_the_disk_before_their_room_is_needed_beside_one_that_is_too_large_for_it() {
    let budget = Budget {
        // A read-back has at most half of it.
        staging_bytes: Some(MIB),
        ..beside_a_disk(4 * MIB)
    };
    let (gpu, sim) = open(budget, options());
    // What nobody will use again is copied on first.
    let large = gpu.full(&[24 * LEN], 7, DType::F32).unwrap();
    gpu.flush().unwrap();
    let tensors = filled_in_steps(&gpu, 300, || gpu.flush().unwrap());
    gpu.flush().unwrap();
    let stats = gpu.memory().stats();
    assert_eq!(large.residency(), Residency::Host);
    assert!(large.size_bytes() > MIB, "{stats}");
    assert!(stats.spilled_bytes.now > 8 * MIB, "{stats}");
    assert_eq!(stats.waits().host.times, 0, "{stats}");
    check(&tensors);
    assert_eq!(large.to_vec::<f32>().unwrap(), vec![7.0; 24 * LEN]);
    drop((tensors, large));
    ended(gpu, &sim);
}

#[test]
fn what_nobody_uses_makes_way_in_the_heap_however_large_it_is() {
    let budget = Budget {
        staging_bytes: Some(MIB),
        ..beside_a_disk(7 * MIB)
    };
    let (gpu, sim) = open(budget, options());
    // No read-back buffer is as large, so none of these goes on ahead of need.
    let large = 16 * LEN;
    let unused: Vec<Tensor> = (0..3)
        .map(|_| gpu.full(&[large], 7, DType::F32).unwrap())
        .collect();
    gpu.flush().unwrap();
    for tensor in &unused {
        tensor.evict().unwrap();
        assert_eq!(tensor.residency(), Residency::Host);
    }
    // These are read in a cycle. The device and the heap have room for them, but not for all.
    let used: Vec<Tensor> = (0..8)
        .map(|_| gpu.full(&[large], 1, DType::F32).unwrap())
        .collect();
    for _ in 0..6 {
        for tensor in &used {
            tensor.mul(2).unwrap().force().unwrap();
        }
    }
    let stats = gpu.memory().stats();
    assert!(stats.spilled_bytes.now >= MIB, "{stats}");
    for tensor in &used {
        assert_ne!(tensor.residency(), Residency::Disk, "{stats}");
    }
    for tensor in unused {
        assert_eq!(tensor.to_vec::<f32>().unwrap(), vec![7.0; large]);
    }
    drop(used);
    ended(gpu, &sim);
}

#[test]
fn what_is_in_two_places_makes_way_on_the_disk_for_what_the_heap_cannot_take() {
    let budget = Budget {
        staging_bytes: Some(2 * MIB),
        host_bytes: Some(2 * MIB),
        ..Budget::device(10 * MIB)
    };
    let (gpu, sim) = open(budget, options());
    let tensors = filled_in_steps(&gpu, 200, || gpu.flush().unwrap());
    let large = gpu.full(&[48 * LEN], 7, DType::F32).unwrap();
    gpu.flush().unwrap();
    gpu.poll().unwrap();
    // The disk lacks two tensors of room for it. More than two are in the heap, too.
    let before = gpu.memory().stats();
    let room_bytes = 46 * 4 * LEN as u64;
    let quota_bytes = before.spilled_bytes.now + room_bytes;
    let budget = Budget {
        disk_bytes: Some(quota_bytes),
        ..budget
    };
    gpu.memory().set_budget(budget).unwrap();
    large.evict().unwrap();
    assert_eq!(large.residency(), Residency::Disk);
    let stats = gpu.memory().stats();
    let more_bytes = stats.spilled_bytes.now - before.spilled_bytes.now;
    assert!(more_bytes <= room_bytes, "{stats}");
    check(&tensors);
    assert_eq!(large.to_vec::<f32>().unwrap(), vec![7.0; 48 * LEN]);
    drop((tensors, large));
    ended(gpu, &sim);
}

#[test]
fn blocks_that_are_used_while_they_go_on_to_the_disk_keep_their_bytes() {
    let budget = beside_a_disk(2 * MIB);
    for lag_submissions in [0, 3, u32::MAX] {
        let device = SimOptions {
            lag_submissions,
            ..options()
        };
        let (gpu, sim) = open(budget, device);
        let mut tensors = filled(&gpu, 96);
        let mut expected: Vec<f32> = (1..=96_u16).map(f32::from).collect();
        for round in 0..40_usize {
            // One is written, one is read, one is dropped, and a new one comes.
            let (written, read, dropped) = (7 * round % 96, 11 * round % 96, 13 * round % 96);
            tensors[written].add_(1).unwrap();
            expected[written] += 1.0;
            let found = tensors[read].to_vec::<f32>().unwrap();
            assert!(found == vec![expected[read]; LEN], "{round}");
            tensors[dropped] = gpu.full(&[LEN], 5, DType::F32).unwrap();
            expected[dropped] = 5.0;
            gpu.flush().unwrap();
        }
        for (tensor, expected) in tensors.iter().zip(expected) {
            assert!(tensor.to_vec::<f32>().unwrap() == vec![expected; LEN]);
        }
        drop(tensors);
        ended(gpu, &sim);
    }
}

#[test]
fn nothing_is_lost_when_something_fails_while_blocks_go_on_to_the_disk() {
    let budget = beside_a_disk(2 * MIB);
    let run = |arm: &dyn Fn(&SimHandle)| {
        let (gpu, sim) = open(budget, options());
        arm(&sim);
        // A refused submission may fail the flush.
        let tensors = filled_in_steps(&gpu, 160, || _ = gpu.flush());
        sim.disarm();
        sim.files().disarm();
        let mut without_value = 0;
        for (tensor, number) in tensors.iter().zip(1_u16..) {
            match tensor.to_vec::<f32>() {
                Ok(found) => assert!(found == vec![f32::from(number); LEN], "{number}"),
                // The refused batch would have made it.
                Err(error) => {
                    assert!(error.to_string().contains("a submission"), "{error}");
                    without_value += 1;
                }
            }
        }
        drop(tensors);
        ended(gpu, &sim);
        without_value
    };
    for nth in [1, 2, 3, 5, 8, 13, 21, 34] {
        let without_value = run(&|sim| {
            sim.arm(Fault::once(Site::Submit, nth, FaultKind::OutOfMemory));
        });
        assert!(without_value <= 8, "{without_value}");
        for kind in [FileFaultKind::DiskFull, FileFaultKind::Short] {
            let (site, repeat) = (FileSite::Write, Repeat::EverySecond);
            let without_value = run(&|sim| {
                sim.files().arm(FileFault {
                    site,
                    nth: 3 * nth,
                    repeat,
                    kind,
                });
            });
            assert_eq!(without_value, 0);
        }
    }
}

#[test]
fn what_has_gone_on_to_the_disk_outlives_the_device() {
    let budget = beside_a_disk(4 * MIB);
    let (gpu, sim) = open(budget, options());
    let tensors = filled_in_steps(&gpu, 300, || gpu.flush().unwrap());
    gpu.finish().unwrap();
    sim.arm(Fault::once(Site::Submit, 1, FaultKind::Lost));
    assert!(tensors[299].to_vec::<f32>().is_err());
    gpu.reopen().unwrap();
    let mut survived = 0;
    for (tensor, number) in tensors.iter().zip(1_u16..) {
        match tensor.to_vec::<f32>() {
            Ok(found) => {
                assert!(found == vec![f32::from(number); LEN], "{number}");
                survived += 1;
            }
            Err(error) => assert!(matches!(error, Error::Poisoned { .. }), "{error}"),
        }
    }
    // 16 MiB do not fit on the device and the host.
    assert!((160..240).contains(&survived), "{survived}");
    drop(tensors);
    ended(gpu, &sim);
}
