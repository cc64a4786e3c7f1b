//! Bytes of evicted tensors are read from sources and from the disk before a command needs them.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use lapidary::sim::{Fault, FaultKind, SimHandle, SimOptions, Site};
use lapidary::{Budget, DType, Error, Gpu, Options, Source, Tensor};

use crate::engine::{ended, open_alone, options};

const MIB: u64 = 1 << 20;

/// Elements of a tensor of 1 MiB.
const LEN: usize = 256 << 10;

/// Long enough for a busy machine, and an end for a test that fails.
const PATIENT: Duration = Duration::from_secs(60);

/// A device with room for tensors of so many bytes, of which 1/8 may be read ahead.
fn open(slab_bytes: u64, host_bytes: Option<u64>) -> (Gpu, SimHandle) {
    let (gpu, sim) = open_alone(SimOptions {
        memory_bytes: 256 * MIB,
        max_binding_bytes: 16 * MIB,
        ..options()
    });
    let budget = Budget {
        staging_bytes: Some(24 * MIB),
        host_bytes,
        ..Budget::device(slab_bytes + 24 * MIB)
    };
    gpu.memory().set_budget(budget).unwrap();
    (gpu, sim)
}

/// A tensor of 1 MiB that is full of a number, as a function gives it after `look`.
fn weight(gpu: &Gpu, value: usize, look: impl Fn(u64) + Send + Sync + 'static) -> Tensor {
    let source = Source::reader(move |offset, bytes| {
        look(offset);
        bytes.copy_from_slice(&(value as f32).to_le_bytes().repeat(bytes.len() / 4));
        Ok(())
    });
    gpu.backed(source, &[LEN], DType::F32).unwrap()
}

/// The sum of tensors, as one queue of commands.
fn sum(gpu: &Gpu, weights: &[Tensor]) -> Tensor {
    let mut sum = gpu.zeros(&[LEN], DType::F32).unwrap();
    for weight in weights {
        sum = (&sum + weight).unwrap();
    }
    sum
}

fn read(gpu: &Gpu) -> (u64, u64) {
    let stats = gpu.memory().stats();
    (stats.read_ahead_bytes, stats.wasted_read_bytes)
}

#[test]
fn the_next_tensors_are_read_while_the_pass_restores_one() {
    let (gpu, sim) = open(64 * MIB, None);
    let (tell, told) = channel();
    let (tell, told) = (Mutex::new(tell), Mutex::new(told));
    let threads = Arc::new(Mutex::new(Vec::<(usize, ThreadId)>::new()));
    let weights: Vec<Tensor> = (0..6)
        .map(|number| {
            let threads = threads.clone();
            let tell = tell.lock().unwrap().clone();
            weight(&gpu, number, move |_| {
                threads
                    .lock()
                    .unwrap()
                    .push((number, thread::current().id()));
                if number > 0 {
                    tell.send(number).unwrap();
                }
            })
        })
        .collect();
    // The first one gives its bytes once the others were asked for theirs.
    let source = Source::reader(move |_, bytes| {
        for number in 1..6 {
            assert_eq!(told.lock().unwrap().recv_timeout(PATIENT), Ok(number));
        }
        bytes.fill(0);
        Ok(())
    });
    weights[0].backed_by(source).unwrap();
    let all = sum(&gpu, &weights).to_vec::<f32>().unwrap();
    assert!(all == vec![15.0; LEN]);
    let threads = threads.lock().unwrap().clone();
    assert_eq!(threads.len(), 5);
    assert!(threads.iter().all(|(_, id)| *id == threads[0].1));
    assert_ne!(threads[0].1, thread::current().id());
    assert_eq!(read(&gpu), (5 * MIB, 0));
    drop(weights);
    ended(gpu, &sim);
}

#[test]
fn a_large_tensor_is_read_piece_by_piece_while_the_pass_stages() {
    let (gpu, sim) = open(64 * MIB, None);
    let offsets = Arc::new(Mutex::new(Vec::new()));
    let noted = offsets.clone();
    let value = |at: usize| (at / 1024) as f32;
    let source = Source::reader(move |offset, bytes| {
        noted.lock().unwrap().push(offset);
        for (index, element) in bytes.chunks_exact_mut(4).enumerate() {
            element.copy_from_slice(&value(offset as usize / 4 + index).to_le_bytes());
        }
        Ok(())
    });
    let len = 5 * LEN + 16;
    let large = gpu.backed(source, &[len], DType::F32).unwrap();
    large.sum_all().unwrap().force().unwrap();
    // In order, and no byte twice.
    let offsets = offsets.lock().unwrap().clone();
    assert_eq!(offsets, Vec::from_iter((0..6).map(|piece| piece * MIB)));
    assert_eq!(read(&gpu), (5 * MIB + 64, 0));
    let expected: Vec<f32> = (0..len).map(value).collect();
    assert!(large.to_vec::<f32>().unwrap() == expected);
    drop(large);
    ended(gpu, &sim);
}

#[test]
fn a_source_is_never_called_twice_at_once() {
    let (gpu, sim) = open(64 * MIB, None);
    let (busy, calls) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let (is_busy, counted) = (busy.clone(), calls.clone());
    let source = Source::reader(move |_, bytes| {
        assert!(!is_busy.swap(true, Ordering::SeqCst));
        counted.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(1));
        bytes.fill(0);
        is_busy.store(false, Ordering::SeqCst);
        Ok(())
    });
    // They share the source, and the pass reads the first piece of some.
    let weights: Vec<Tensor> = (0..12)
        .map(|_| gpu.backed(source.clone(), &[LEN], DType::F32).unwrap())
        .collect();
    for _ in 0..3 {
        let all = sum(&gpu, &weights).to_vec::<f32>().unwrap();
        assert!(all == vec![0.0; LEN]);
    }
    assert!(calls.load(Ordering::SeqCst) >= 12);
    assert!(!busy.load(Ordering::SeqCst));
    drop(weights);
    ended(gpu, &sim);
}

#[test]
fn a_failure_ahead_of_need_concerns_the_tensor_alone() {
    let (gpu, sim) = open(64 * MIB, None);
    let fails = Arc::new(AtomicBool::new(true));
    let weights: Vec<Tensor> = (0..4)
        .map(|number| {
            let fails = fails.clone();
            let source = Source::reader(move |_, bytes| {
                if number == 2 && fails.load(Ordering::SeqCst) {
                    return Err(io::Error::other("the disk is gone"));
                }
                bytes.fill(0);
                Ok(())
            });
            gpu.backed(source, &[LEN], DType::F32).unwrap()
        })
        .collect();
    let sums: Vec<Tensor> = weights.iter().map(|w| w.add(1).unwrap()).collect();
    for (number, sum) in sums.iter().enumerate() {
        match sum.to_vec::<f32>() {
            Ok(values) => assert!(number != 2 && values == vec![1.0; LEN], "{number}"),
            Err(error) => {
                assert_eq!(number, 2);
                assert!(error.to_string().contains("the disk is gone"), "{error}");
            }
        }
    }
    fails.store(false, Ordering::SeqCst);
    assert!(weights[2].to_vec::<f32>().unwrap() == vec![0.0; LEN]);
    drop((weights, sums));
    ended(gpu, &sim);
}

#[test]
fn what_is_read_in_vain_is_counted_and_its_source_goes() {
    let (gpu, sim) = open(64 * MIB, None);
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let held = Arc::new(());
    let holds = held.clone();
    let second = weight(&gpu, 1, move |_| {
        let _ = &holds;
        tell.lock().unwrap().send(()).unwrap();
    });
    let told = Mutex::new(told);
    // Fails after the second was read, so the command that uses both fails.
    let source = Source::reader(move |_, _| {
        told.lock().unwrap().recv_timeout(PATIENT).unwrap();
        Err(io::Error::other("the disk is gone"))
    });
    let first = gpu.backed(source, &[LEN], DType::F32).unwrap();
    let both = (&first + &second).unwrap();
    assert!(matches!(
        both.to_vec::<f32>(),
        Err(Error::Poisoned { .. } | Error::Source { .. })
    ));
    assert_eq!(read(&gpu), (0, MIB));
    assert_eq!(gpu.memory().stats().host_bytes.now, 0);
    drop((first, second, both));
    gpu.finish().unwrap();
    // The thread may hold it for a moment.
    let begun = Instant::now();
    while Arc::strong_count(&held) > 1 {
        assert!(begun.elapsed() < PATIENT);
        thread::yield_now();
    }
    ended(gpu, &sim);
}

#[test]
fn what_is_overwritten_first_is_not_read() {
    let (gpu, sim) = open(64 * MIB, None);
    let calls = Arc::new(AtomicU64::new(0));
    let weights: Vec<Tensor> = (0..3)
        .map(|number| {
            let calls = calls.clone();
            weight(&gpu, number, move |_| {
                calls.fetch_add(1 << (8 * number), Ordering::SeqCst);
            })
        })
        .collect();
    let first = weights[0].add(1).unwrap();
    weights[1].write(&vec![5.0_f32; LEN]).unwrap();
    let all = sum(&gpu, &[first, weights[1].clone(), weights[2].clone()]);
    assert!(all.to_vec::<f32>().unwrap() == vec![8.0; LEN]);
    assert_eq!(calls.load(Ordering::SeqCst), 1 | 1 << 16);
    assert_eq!(read(&gpu), (MIB, 0));
    drop((weights, all));
    ended(gpu, &sim);
}

#[test]
fn what_is_read_ahead_makes_way_on_the_host() {
    // The host has room for two evicted tensors, or for what is read ahead.
    let (gpu, sim) = open(24 * MIB, Some(2 * MIB));
    let weights: Vec<Tensor> = (0..12).map(|number| weight(&gpu, number, |_| ())).collect();
    for _ in 0..3 {
        let kept: Vec<Tensor> = (0..20_u16)
            .map(|number| gpu.full(&[LEN], f32::from(number), DType::F32).unwrap())
            .collect();
        let all = sum(&gpu, &weights);
        for (kept, number) in kept.iter().zip(0_u16..) {
            assert!(kept.to_vec::<f32>().unwrap() == vec![f32::from(number); LEN]);
        }
        assert!(all.to_vec::<f32>().unwrap() == vec![66.0; LEN]);
        let stats = gpu.memory().stats();
        assert!(stats.host_bytes.peak <= 2 * MIB, "{stats}");
        assert!(stats.host_slab_bytes.peak <= 2 * MIB, "{stats}");
    }
    assert!(read(&gpu).0 > 0);
    drop(weights);
    ended(gpu, &sim);
}

#[test]
fn evicted_tensors_come_from_the_disk_ahead_of_need() {
    let (gpu, sim) = open(64 * MIB, None);
    let kept: Vec<Tensor> = (0..8)
        .map(|number| gpu.full(&[LEN], number, DType::F32).unwrap())
        .collect();
    let no_host = Budget {
        staging_bytes: Some(24 * MIB),
        host_bytes: Some(0),
        ..Budget::device(88 * MIB)
    };
    gpu.memory().set_budget(no_host).unwrap();
    kept.iter().for_each(|one| one.evict().unwrap());
    gpu.memory()
        .set_budget(Budget {
            host_bytes: None,
            ..no_host
        })
        .unwrap();
    let all = sum(&gpu, &kept[..5]).to_vec::<f32>().unwrap();
    assert!(all == vec![10.0; LEN]);
    // The pass read the first one itself.
    assert_eq!(read(&gpu), (4 * MIB, 0));
    drop(kept);
    ended(gpu, &sim);
}

#[test]
fn what_is_written_after_it_was_read_ahead_gives_the_new_value() {
    // The host has room for reads, and the rest goes to the disk. Each operation is a command.
    let device = SimOptions {
        memory_bytes: 256 * MIB,
        max_binding_bytes: 16 * MIB,
        ..options()
    };
    let alone = Options {
        fuse: Some(false),
        host_heap: Some(false),
        budget: Some(Budget {
            staging_bytes: Some(24 * MIB),
            host_bytes: Some(7 * MIB + MIB / 2),
            ..Budget::device(88 * MIB)
        }),
        ..Options::from_env().unwrap()
    };
    let (gpu, sim) = Gpu::simulated_with(device, alone).unwrap();
    // A tensor without a value, because the driver refused what would have made it.
    sim.arm(Fault::once(Site::Submit, 1, FaultKind::OutOfMemory));
    let bad = gpu.full(&[1], 1, DType::F32).unwrap();
    assert!(bad.force().is_err());
    let large = 8 * LEN;
    let source = Source::reader(|_, bytes| {
        bytes.copy_from_slice(&1.0_f32.to_le_bytes().repeat(bytes.len() / 4));
        Ok(())
    });
    let written = gpu.backed(source, &[large], DType::F32).unwrap();
    let other = weight(&gpu, 1, |_| ());
    // In one queue: while `other` comes back, `written` is read ahead. The command that would use
    // it has no operand. Then it is written and evicted.
    let first = other.add(1).unwrap();
    let failed = (&bad.broadcast_to(&[large]).unwrap() + &written).unwrap();
    written.fill_(2).unwrap();
    let crowd: Vec<Tensor> = (0..8)
        .map(|number| gpu.full(&[large], number + 10, DType::F32).unwrap())
        .collect();
    let mut sum = crowd[0].add(1).unwrap();
    for one in &crowd[1..] {
        sum = (&sum + one).unwrap();
    }
    drop(crowd);
    let found = written.add(1).unwrap().to_vec::<f32>().unwrap();
    assert!(found.iter().all(|value| *value == 3.0));
    assert!(failed.to_vec::<f32>().is_err());
    drop((first, failed, sum, written, other, bad));
    ended(gpu, &sim);
}

#[test]
fn a_full_heap_leaves_room_for_reads_of_the_disk() {
    let host = Options {
        host_heap: Some(true),
        budget: Some(Budget {
            staging_bytes: Some(24 * MIB),
            host_bytes: Some(32 * MIB),
            ..Budget::device(16 * MIB + 24 * MIB)
        }),
        ..Options::from_env().unwrap()
    };
    let device = SimOptions {
        memory_bytes: 256 * MIB,
        max_binding_bytes: 16 * MIB,
        ..options()
    };
    let (gpu, sim) = Gpu::simulated_with(device, host).unwrap();
    let kept: Vec<Tensor> = (0..80_u16)
        .map(|number| gpu.full(&[LEN], f32::from(number), DType::F32).unwrap())
        .collect();
    gpu.flush().unwrap();
    let before = gpu.memory().stats();
    assert!(before.host_slab_bytes.now > 24 * MIB, "{before}");
    assert!(before.spilled_bytes.now > 30 * MIB, "{before}");
    // The oldest are on the disk.
    let all = sum(&gpu, &kept[..12]).to_vec::<f32>().unwrap();
    assert!(all == vec![66.0; LEN]);
    assert!(read(&gpu).0 > 0, "{}", gpu.memory().stats());
    for (kept, number) in kept.iter().zip(0_u16..) {
        assert!(kept.to_vec::<f32>().unwrap() == vec![f32::from(number); LEN]);
    }
    drop(kept);
    ended(gpu, &sim);
}
