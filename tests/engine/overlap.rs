//! Evicted and restored bytes are copied while the device computes, and reads overlap with copies.

use std::sync::{Arc, Mutex};

use lapidary::sim::{SimHandle, SimOptions};
use lapidary::{Budget, DType, Gpu, Source, Tensor};

use crate::engine::{ended, open_alone, options};

const MIB: u64 = 1 << 20;

/// Elements of a tensor of 1 MiB.
const LEN: usize = 256 << 10;

/// A device that only works while a thread waits for it.
fn open_idle(device_bytes: u64) -> (Gpu, SimHandle) {
    open_with(Budget::device(device_bytes))
}

/// The same, with other limits, too.
fn open_with(budget: Budget) -> (Gpu, SimHandle) {
    let (gpu, sim) = open_alone(SimOptions {
        lag_submissions: u32::MAX,
        memory_bytes: 256 * MIB,
        max_binding_bytes: 16 * MIB,
        ..options()
    });
    let budget = Budget {
        staging_bytes: Some(64 * MIB),
        device_bytes: budget.device_bytes.map(|bytes| bytes + 64 * MIB),
        ..budget
    };
    assert_eq!(gpu.memory().set_budget(budget).unwrap(), 0);
    (gpu, sim)
}

/// The state of the device when a tensor's bytes were requested: unfinished submissions, and
/// recorded dispatches, finished or not.
type Seen = Arc<Mutex<Vec<(u64, u64)>>>;

fn note(seen: &Seen, sim: &SimHandle) {
    let counters = sim.counters();
    let now = (counters.submissions_pending, counters.dispatches);
    seen.lock().unwrap().push(now);
}

/// Tensors whose bytes a function provides. The first is filled with 1.0, the next with 2.0.
fn weights(gpu: &Gpu, sim: &SimHandle, count: usize) -> (Vec<Tensor>, Seen) {
    let seen = Seen::default();
    let weight = |index: usize| {
        let (seen, sim) = (seen.clone(), sim.clone());
        let value = (index + 1) as f32;
        let source = Source::reader(move |offset, bytes| {
            if offset == 0 {
                note(&seen, &sim);
            }
            bytes.copy_from_slice(&value.to_le_bytes().repeat(bytes.len() / 4));
            Ok(())
        });
        gpu.backed(source, &[LEN], DType::F32).unwrap()
    };
    ((0..count).map(weight).collect(), seen)
}

/// Tensors of one element that are computed again when a command uses them, by a function that the
/// pass calls. Their elements are 1.0, 2.0 and so on.
fn recomputed(gpu: &Gpu, sim: &SimHandle, count: usize) -> (Vec<Tensor>, Seen) {
    let seen = Seen::default();
    let zero = gpu.zeros(&[1], DType::F32).unwrap();
    let one = |index: usize| {
        let (seen, sim) = (seen.clone(), sim.clone());
        let value = (index + 1) as f32;
        let tensor = zero.add(value).unwrap();
        let compute = move |inputs: &[Tensor]| {
            note(&seen, &sim);
            inputs[0].add(value)
        };
        tensor.recompute_with(&[&zero], compute).unwrap();
        tensor.evict().unwrap();
        tensor
    };
    ((0..count).map(one).collect(), seen)
}

#[test]
fn what_comes_back_is_staged_while_the_device_computes() {
    // Without memory of the host for them, no bytes are read ahead of need.
    let (gpu, sim) = open_with(Budget {
        host_bytes: Some(0),
        ..Budget::device(4 * MIB)
    });
    let (weights, seen) = weights(&gpu, &sim, 8);
    let mut sum = gpu.zeros(&[LEN], DType::F32).unwrap();
    for weight in &weights {
        sum = (&sum + weight).unwrap();
    }
    gpu.flush().unwrap();
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 8);
    for (index, &(pending, dispatches)) in seen.iter().enumerate().skip(1) {
        // All earlier work was submitted, and nothing waited for it.
        assert_eq!(dispatches, index as u64, "{seen:?}");
        assert!(pending >= index as u64, "{seen:?}");
    }
    assert_eq!(sum.to_vec::<f32>().unwrap(), vec![36.0; LEN]);
    drop((sum, weights));
    ended(gpu, &sim);
}

#[test]
fn what_leaves_is_copied_out_while_the_device_computes() {
    let (gpu, sim) = open_idle(8 * MIB);
    let ones = gpu.full(&[LEN], 1, DType::F32).unwrap();
    // Small enough to stay, and each computation of them records the state of the device.
    let (small, seen) = recomputed(&gpu, &sim, 24);
    let before = gpu.memory().stats();
    let results = small
        .iter()
        .map(|one| (&ones + &one.broadcast_to(&[LEN]).unwrap()).unwrap());
    let results: Vec<Tensor> = results.collect();
    gpu.flush().unwrap();
    let memory = gpu.memory().stats();
    assert!(memory.device_bytes.peak <= 72 * MIB, "{memory}");
    // Of 25 MiB, 7 fit. At most one more was copied out, ahead of need.
    let evicted_bytes = memory.evicted_bytes - before.evicted_bytes;
    assert!((18 * MIB..=19 * MIB).contains(&evicted_bytes), "{memory}");
    // The beginning, before memory was short, is not checked. From then on the device always has
    // submitted work that nothing has waited for.
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 24);
    let late = &seen[8..];
    assert!(late.iter().all(|(pending, _)| *pending > 0), "{seen:?}");
    for (result, number) in results.iter().zip(1_u16..) {
        let expected = vec![f32::from(number) + 1.0; LEN];
        assert!(result.to_vec::<f32>().unwrap() == expected, "{number}");
    }
    drop((results, small, ones));
    ended(gpu, &sim);
}

#[test]
fn a_copy_ahead_of_need_is_forgotten_when_its_tensor_is_written_or_dies() {
    let (gpu, sim) = open_idle(8 * MIB);
    let mut kept: Vec<(Tensor, f32)> = Vec::new();
    let make = |kept: &mut Vec<(Tensor, f32)>, value: u16| {
        let tensor = gpu.full(&[LEN], f32::from(value), DType::F32).unwrap();
        kept.push((tensor, value.into()));
    };
    (0..7).for_each(|value| make(&mut kept, value));
    gpu.flush().unwrap();
    for round in 1..7_u16 {
        // More than fits. Then one is changed whose copy may be under way, and another is dropped.
        (0..4).for_each(|index| make(&mut kept, 100 * round + index));
        gpu.flush().unwrap();
        let count = kept.len();
        for index in [0, 3, 5, 8].map(|step| (usize::from(round) + step) % count) {
            let (tensor, value) = &mut kept[index];
            *value += 1000.0;
            tensor.fill_(*value).unwrap();
        }
        drop(kept.remove(7 * usize::from(round) % count));
        make(&mut kept, 99);
        gpu.flush().unwrap();
    }
    for (tensor, value) in &kept {
        assert!(tensor.to_vec::<f32>().unwrap() == vec![*value; LEN]);
    }
    drop(kept);
    ended(gpu, &sim);
}

#[test]
fn what_a_reader_waits_for_is_taken_in_while_the_device_copies_the_rest() {
    // A submission is finished when the next one was made.
    let (gpu, sim) = open_alone(SimOptions {
        lag_submissions: 1,
        memory_bytes: 256 * MIB,
        max_buffer_bytes: 64 * MIB,
        ..options()
    });
    let values: Vec<f32> = (0..8 * 1024 * 1024).map(|at| at as f32).collect();
    let x = gpu.tensor(&values, &[values.len()]).unwrap();
    gpu.finish().unwrap();
    let created = || sim.counters().buffers_created;

    // Eight pieces, of which two are under way at a time.
    let before = created();
    assert!(x.to_vec::<f32>().unwrap() == values);
    assert_eq!(created() - before, 2);

    // An executor that does not wait for the bytes leaves them to the reader.
    let later = x.to_vec_async::<f32>();
    gpu.finish().unwrap();
    assert_eq!(created() - before, 8);
    assert!(pollster::block_on(later).unwrap() == values);
    drop(x);
    ended(gpu, &sim);
}
