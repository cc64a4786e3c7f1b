//! Tensors that are dropped under pressure and rematerialized.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use lapidary::sim::{
    Fault, FaultKind, FileFault, FileFaultKind, FileSite, Repeat, SimOptions, Site,
};
use lapidary::{Budget, DType, Error, Residency, Tensor};

use crate::engine::{ended, nothing_leaves, numbers, open, open_alone, options};

/// 2 x + 1, by two operations.
pub(crate) fn doubled(x: &Tensor) -> lapidary::Result<Tensor> {
    x.mul(2)?.add(1)
}

/// The same, with a rematerializer.
pub(crate) fn rematerialized(x: &Tensor) -> Tensor {
    let y = doubled(x).unwrap();
    y.recompute_with(&[x], |inputs| doubled(&inputs[0]))
        .unwrap();
    y
}

pub(crate) fn expected(start: usize) -> Vec<f32> {
    numbers(start, 64).iter().map(|n| 2.0 * n + 1.0).collect()
}

#[test]
fn commands_that_only_a_rematerializer_holds_are_dropped() {
    const LEN: usize = 2 << 20;
    let (gpu, sim) = open_alone(SimOptions {
        memory_bytes: 31 << 20,
        max_binding_bytes: 128 << 20,
        ..options()
    });
    nothing_leaves(&gpu);
    let other = gpu.zeros(&[LEN], DType::F32).unwrap();
    other.force().unwrap();
    let x = gpu.zeros(&[LEN], DType::F32).unwrap();
    let y = rematerialized(&x);
    y.evict().unwrap();
    // There is room for three of the four tensors.
    let z = y.add(1).unwrap();
    x.add_(&z).unwrap();
    assert!(matches!(z.force(), Err(Error::OutOfMemory(_))));
    // The commands hold y, which holds x to be computed from it, and x is what they would write.
    drop((x, y, z));
    gpu.finish().unwrap();
    let memory = gpu.memory().stats();
    assert_eq!(
        (memory.live_storages.now, memory.queued),
        (1, 0),
        "{memory}"
    );
    drop(other);
    ended(gpu, &sim);
}

#[test]
fn what_is_given_up_is_computed_again_when_somebody_uses_it() {
    let (gpu, sim) = open(options());
    let times = Arc::new(AtomicU32::new(0));
    let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
    let y = doubled(&x).unwrap();
    let counted = times.clone();
    y.recompute_with(&[&x], move |inputs| {
        counted.fetch_add(1, Ordering::Relaxed);
        doubled(&inputs[0])
    })
    .unwrap();
    for round in 1..4 {
        y.evict().unwrap();
        assert_eq!(y.residency(), Residency::Backed);
        // The input may be evicted too.
        x.evict().unwrap();
        let z = y.add(&y.flip(&[0]).unwrap()).unwrap();
        assert_eq!(z.to_vec::<f32>().unwrap(), vec![2.0 * 69.0 + 2.0; 64]);
        assert_eq!(y.to_vec::<f32>().unwrap(), expected(3));
        assert_eq!(times.load(Ordering::Relaxed), round);
    }
    let memory = gpu.memory().stats();
    assert!(memory.dropped_bytes >= 3 * 256, "{memory}");
    drop((x, y));
    ended(gpu, &sim);
}

#[test]
fn what_a_refused_submission_should_have_computed_again_is_not_there() {
    let (gpu, sim) = open(options());
    let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
    let y = rematerialized(&x);
    y.evict().unwrap();
    y.prefetch().unwrap();
    sim.arm(Fault::once(Site::Submit, 1, FaultKind::Invalid));
    gpu.flush().unwrap();
    assert_eq!(sim.counters().faults, 1);
    assert_eq!(y.residency(), Residency::Backed);
    assert_eq!(y.to_vec::<f32>().unwrap(), expected(3));
    drop((x, y));
    ended(gpu, &sim);
}

#[test]
fn one_rematerializer_may_need_another() {
    let (gpu, sim) = open(options());
    let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
    let y = rematerialized(&x);
    let z = rematerialized(&y);
    z.evict().unwrap();
    y.evict().unwrap();
    let twice: Vec<f32> = expected(3).iter().map(|n| 2.0 * n + 1.0).collect();
    assert_eq!(z.to_vec::<f32>().unwrap(), twice);
    drop((x, y, z));
    ended(gpu, &sim);
}

#[test]
fn a_rematerializer_whose_input_has_changed_is_none() {
    let (gpu, sim) = open(options());
    let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
    let y = rematerialized(&x);
    x.write(&numbers(100, 64)).unwrap();
    // It is still on the device, so it is evicted like any other.
    y.evict().unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), expected(3));

    let z = rematerialized(&x);
    z.evict().unwrap();
    x.write(&numbers(0, 64)).unwrap();
    let error = z.to_vec::<f32>().unwrap_err();
    assert!(error.to_string().contains("written to since"), "{error}");
    drop((x, y, z));
    ended(gpu, &sim);
}

#[test]
fn rematerializers_that_fail_concern_their_tensor_and_nothing_else() {
    let (gpu, sim) = open(options());
    let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
    let kept = gpu.zeros(&[64], DType::F32).unwrap();
    let held = kept.clone();
    type Rematerializer = Box<dyn Fn(&[Tensor]) -> lapidary::Result<Tensor> + Send + Sync>;
    let rematerializers: Vec<Rematerializer> = vec![
        Box::new(|_| panic!("a rematerializer's own affair")),
        Box::new(|inputs| inputs[0].narrow(0, 0, 8)),
        Box::new(|inputs| inputs[0].narrow(0, 0, 8)?.copy()),
        Box::new(|inputs| inputs[0].cast(DType::I32)),
        Box::new(|inputs| Ok(inputs[0].clone())),
        Box::new(|inputs| inputs[0].to_vec::<f32>().map(|_| inputs[0].clone())),
        Box::new(move |_| Ok(held.clone())),
    ];
    for rematerializer in rematerializers {
        let y = doubled(&x).unwrap();
        y.recompute_with(&[&x], rematerializer).unwrap();
        y.evict().unwrap();
        let error = y.to_vec::<f32>().unwrap_err();
        assert!(!matches!(error, Error::DeviceLost { .. }), "{error}");
        assert_eq!(x.to_vec::<f32>().unwrap(), numbers(3, 64));
        y.write(&numbers(9, 64)).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), numbers(9, 64));
    }
    assert_eq!(kept.to_vec::<f32>().unwrap(), vec![0.0; 64]);
    drop((x, kept));
    ended(gpu, &sim);
}

#[test]
fn what_a_refused_batch_left_half_done_is_no_value() {
    let (gpu, sim) = open_alone(options());
    let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
    let y = rematerialized(&x);
    y.evict().unwrap();
    let junk = gpu.full(&[64], 99, DType::F32).unwrap();
    junk.force().unwrap();
    drop(junk);
    gpu.finish().unwrap();
    // It is rematerialized and then its input is changed, in the same batch.
    y.prefetch().unwrap();
    x.add_(&gpu.scalar(1.0_f32).unwrap()).unwrap();
    sim.arm(Fault::once(Site::Submit, 1, FaultKind::Invalid));
    gpu.flush().unwrap();
    assert_eq!(sim.counters().faults, 1);
    for tensor in [&x, &y] {
        let error = tensor.to_vec::<f32>().unwrap_err();
        assert!(matches!(error, Error::Poisoned { .. }), "{error}");
    }
    drop((x, y));
    ended(gpu, &sim);
}

#[test]
fn an_input_that_was_lost_and_written_anew_is_another() {
    let (gpu, sim) = open_alone(options());
    let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
    let y = rematerialized(&x);
    let z = rematerialized(&y);
    let kept = gpu.tensor(&numbers(5, 64), &[64]).unwrap();
    let computed = doubled(&kept).unwrap();
    computed
        .recompute_with(&[&kept], |inputs| doubled(&inputs[0]))
        .unwrap();
    for tensor in [&z, &y, &kept, &computed] {
        tensor.evict().unwrap();
    }
    sim.lose("pulled out");
    assert!(gpu.flush().is_err());
    let recovered = gpu.reopen().unwrap();
    // `y` is lost with `x`, and `z` with `y`.
    assert_eq!((recovered.kept, recovered.kept_bytes), (2, 2 * 256));
    assert_eq!(recovered.gone.len(), 3, "{recovered:?}");
    x.write(&numbers(100, 64)).unwrap();
    for tensor in [&y, &z] {
        let error = tensor.to_vec::<f32>().unwrap_err();
        assert!(matches!(error, Error::Poisoned { .. }), "{error}");
    }
    assert_eq!(computed.to_vec::<f32>().unwrap(), expected(5));
    drop((x, y, z, kept, computed));
    ended(gpu, &sim);
}

#[test]
fn what_only_a_lost_input_could_give_again_is_kept() {
    let (gpu, sim) = open(options());
    let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
    let y = rematerialized(&x);
    let z = rematerialized(&y);
    y.evict().unwrap();
    assert_eq!(y.residency(), Residency::Backed);
    sim.arm(Fault::once(Site::CreatePipeline, 1, FaultKind::Invalid));
    x.exp_().unwrap();
    assert!(x.force().is_err());
    // `y` is lost with `x`. `z` is on the device, and its rematerializer is useless.
    z.evict().unwrap();
    assert_ne!(z.residency(), Residency::Backed);
    let twice: Vec<f32> = expected(3).iter().map(|n| 2.0 * n + 1.0).collect();
    assert_eq!(z.to_vec::<f32>().unwrap(), twice);
    assert!(y.to_vec::<f32>().is_err());
    drop((x, y, z));
    ended(gpu, &sim);
}

/// Runs work that should end, and does not wait for ever.
pub(crate) fn in_time(work: impl FnOnce() + Send + 'static) {
    let (send, receive) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        work();
        let _ = send.send(());
    });
    match receive.recv_timeout(Duration::from_secs(60)) {
        Err(RecvTimeoutError::Timeout) => panic!("it does not end"),
        _ => thread.join().unwrap(),
    }
}

#[test]
fn no_tensor_is_computed_from_itself() {
    in_time(|| {
        let (gpu, sim) = open(options());
        let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
        let y = doubled(&x).unwrap();
        let z = doubled(&y).unwrap();
        let rematerializer = |inputs: &[Tensor]| doubled(&inputs[0]);
        y.recompute_with(&[&x], rematerializer).unwrap();
        z.recompute_with(&[&y], rematerializer).unwrap();
        for from in [&x, &y, &z] {
            let error = x.recompute_with(&[from], rematerializer).unwrap_err();
            assert!(matches!(error, Error::Recompute { .. }), "{error}");
        }
        // After `x` has changed, `z` cannot be computed from it any more. So `x` may be computed
        // from `z`.
        x.write(&numbers(7, 64)).unwrap();
        x.recompute_with(&[&z], |inputs| inputs[0].add(0)).unwrap();
        let twice: Vec<f32> = expected(3).iter().map(|n| 2.0 * n + 1.0).collect();
        assert_eq!(z.to_vec::<f32>().unwrap(), twice);
        drop((x, y, z));
        ended(gpu, &sim);
    });
}

#[test]
fn rematerializers_that_use_their_own_tensor_in_secret_fail() {
    in_time(|| {
        let (gpu, sim) = open(options());
        let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
        let y = doubled(&x).unwrap();
        let z = doubled(&x).unwrap();
        let (own_y, own_z) = (y.clone(), z.clone());
        y.recompute_with(&[&x], move |_| doubled(&own_z)).unwrap();
        z.recompute_with(&[&x], move |_| doubled(&own_y)).unwrap();
        y.evict().unwrap();
        z.evict().unwrap();
        let error = y.add(1).unwrap().to_vec::<f32>().unwrap_err();
        assert!(error.to_string().contains("computed again"), "{error}");
        assert_eq!(gpu.memory().stats().queued, 0);
        assert!(y.to_vec::<f32>().is_err());
        assert!(z.to_vec::<f32>().is_err());
        for tensor in [&y, &z] {
            tensor.write(&numbers(9, 64)).unwrap();
            assert_eq!(tensor.to_vec::<f32>().unwrap(), numbers(9, 64));
        }
        assert_eq!(x.to_vec::<f32>().unwrap(), numbers(3, 64));
        drop((x, y, z));
        ended(gpu, &sim);
    });
}

#[test]
fn a_refusal_while_a_tensor_is_computed_again_fails_its_user_only() {
    for site in [Site::CreatePipeline, Site::Submit] {
        let (gpu, sim) = open(options());
        let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
        let y = x.mul(2).unwrap();
        // With another kernel than the first time.
        y.recompute_with(&[&x], |inputs| inputs[0].add(&inputs[0]))
            .unwrap();
        y.evict().unwrap();
        sim.arm(Fault::once(site, 1, FaultKind::Invalid));
        let user = y.sub(1).unwrap();
        assert!(user.to_vec::<f32>().is_err());
        assert_eq!(sim.counters().faults, 1);
        assert_eq!(y.residency(), Residency::Backed);
        if site == Site::Submit {
            let doubles: Vec<f32> = numbers(3, 64).iter().map(|n| 2.0 * n).collect();
            assert_eq!(y.to_vec::<f32>().unwrap(), doubles);
        }
        assert_eq!(x.to_vec::<f32>().unwrap(), numbers(3, 64));
        drop((x, y, user));
        ended(gpu, &sim);
    }
}

#[test]
fn a_damaged_copy_on_disk_is_no_loss_where_there_is_a_rematerializer() {
    for is_read in [false, true] {
        let (gpu, sim) = open(options());
        let budget = Budget {
            host_bytes: Some(0),
            ..Budget::default()
        };
        gpu.memory().set_budget(budget).unwrap();
        let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
        let y = doubled(&x).unwrap();
        y.evict().unwrap();
        assert_eq!(y.residency(), Residency::Disk);
        y.recompute_with(&[&x], |inputs| doubled(&inputs[0]))
            .unwrap();
        sim.files().arm(FileFault {
            site: FileSite::Read,
            nth: 1,
            repeat: Repeat::Once,
            kind: FileFaultKind::Flip,
        });
        let user = match is_read {
            true => y.clone(),
            false => y.add(0).unwrap(),
        };
        assert_eq!(user.to_vec::<f32>().unwrap(), expected(3));
        assert_eq!(y.to_vec::<f32>().unwrap(), expected(3));
        drop((x, y, user));
        ended(gpu, &sim);
    }
}

/// With memory for large operands.
fn roomy() -> SimOptions {
    SimOptions {
        memory_bytes: 256 << 20,
        max_buffer_bytes: 64 << 20,
        max_binding_bytes: 64 << 20,
        ..options()
    }
}

/// Elements of a tensor of 1 MiB.
const MIB: usize = 1 << 18;

#[test]
fn what_is_computed_again_in_vain_is_not_for_ever() {
    for leaves in [true, false] {
        in_time(move || {
            let (gpu, sim) = open(roomy());
            gpu.memory()
                .set_budget(Budget {
                    host_bytes: (!leaves).then_some(0),
                    disk_bytes: (!leaves).then_some(0),
                    ..Budget::device(16 << 20)
                })
                .unwrap();
            let times = Arc::new(AtomicU32::new(0));
            let counted = times.clone();
            let x = gpu.tensor(&[1.0_f32], &[1]).unwrap();
            let make = |x: &Tensor| x.broadcast_to(&[4 * MIB])?.add(1);
            let b = make(&x).unwrap();
            b.recompute_with(&[&x], move |inputs| {
                counted.fetch_add(1, Ordering::Relaxed);
                make(&inputs[0])
            })
            .unwrap();
            b.evict().unwrap();
            let pinned = gpu.zeros(&[8 * MIB], DType::F32).unwrap();
            let pin = pinned.pin().unwrap();
            let c = b.add(1).unwrap();
            let error = c.to_vec::<f32>().unwrap_err();
            assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
            assert!(times.load(Ordering::Relaxed) <= 32);
            drop((pin, pinned));
            assert_eq!(c.to_vec::<f32>().unwrap()[0], 3.0);
            drop((x, b, c));
            ended(gpu, &sim);
        });
    }
}

#[test]
fn what_fits_with_a_tensor_kept_fits_with_one_computed_again() {
    for seed in 0..12 {
        in_time(move || {
            let outcomes = [false, true].map(|has_rematerializer| {
                let mut random = fastrand::Rng::with_seed(seed);
                let (len_a, len_b) = (random.usize(1..5) * MIB / 4, random.usize(1..5) * MIB / 4);
                let needed_bytes = 4 * 2 * (len_a + len_b) as u64;
                let (gpu, sim) = open(roomy());
                let budget_bytes = needed_bytes * 33 / 32 + (random.u64(1..64) << 13);
                gpu.memory()
                    .set_budget(Budget::device(budget_bytes))
                    .unwrap();
                let x = gpu.tensor(&[1.0_f32], &[1]).unwrap();
                let mut held = Vec::new();
                for _ in 0..random.usize(0..12) {
                    let tensor = gpu.zeros(&[random.usize(1..MIB / 2)], DType::F32).unwrap();
                    let _ = tensor.force();
                    held.push(tensor);
                    if random.bool() {
                        held.swap_remove(random.usize(..held.len()));
                    }
                }
                let make = move |x: &Tensor| x.broadcast_to(&[len_b])?.add(1);
                let b = make(&x).unwrap();
                if has_rematerializer {
                    b.recompute_with(&[&x], move |inputs| make(&inputs[0]))
                        .unwrap();
                }
                let a = gpu.full(&[len_a], 3, DType::F32).unwrap();
                a.force().unwrap();
                let c = Tensor::concat(&[&a, &b], 0).unwrap();
                let outcome = c.narrow(0, len_a, 1).unwrap().to_vec::<f32>();
                drop((x, a, b, c, held));
                ended(gpu, &sim);
                outcome.map_err(|error| error.to_string())
            });
            match &outcomes {
                [Ok(kept), Ok(computed)] => assert_eq!((kept[0], computed[0]), (2.0, 2.0)),
                [Err(_), _] => {}
                _ => panic!("seed {seed}: {outcomes:?}"),
            }
        });
    }
}

#[test]
fn two_that_need_each_others_room_are_evicted_in_turn() {
    for leaves in [true, false] {
        in_time(move || {
            let (gpu, sim) = open(roomy());
            gpu.memory()
                .set_budget(Budget {
                    host_bytes: (!leaves).then_some(0),
                    disk_bytes: (!leaves).then_some(0),
                    ..Budget::device(4 << 20)
                })
                .unwrap();
            let times = Arc::new(AtomicU32::new(0));
            let x = gpu.tensor(&[1.0_f32], &[1]).unwrap();
            // A result of 1 MiB with a temporary of 2 MiB.
            let make = |x: &Tensor| {
                let by_way_of = x.broadcast_to(&[2 * MIB])?.add(1)?;
                by_way_of.narrow(0, 0, MIB)?.add(1)
            };
            let pair = [0, 1].map(|_| {
                let tensor = make(&x).unwrap();
                let counted = times.clone();
                let rematerializer = move |inputs: &[Tensor]| {
                    counted.fetch_add(1, Ordering::Relaxed);
                    make(&inputs[0])
                };
                tensor.recompute_with(&[&x], rematerializer).unwrap();
                tensor.evict().unwrap();
                tensor
            });
            let sum = pair[0].add(&pair[1]).unwrap();
            match (leaves, sum.to_vec::<f32>()) {
                (true, Ok(sum)) => assert_eq!(sum[0], 6.0),
                (false, Err(Error::OutOfMemory(_))) => {}
                (_, other) => panic!("{other:?}"),
            }
            assert!((2..=8).contains(&times.load(Ordering::Relaxed)));
            drop((x, pair, sum));
            ended(gpu, &sim);
        });
    }
}

#[test]
fn rematerializers_end_where_every_submission_is_refused() {
    in_time(|| {
        for compact_always in [false, true] {
            let (gpu, sim) = open(SimOptions {
                compact_always: Some(compact_always),
                ..options()
            });
            let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
            let y = rematerialized(&x);
            y.evict().unwrap();
            sim.arm(Fault {
                repeat: Repeat::ForEver,
                ..Fault::once(Site::Submit, 1, FaultKind::Invalid)
            });
            let user = y.sub(1).unwrap();
            let error = user.to_vec::<f32>().unwrap_err();
            assert!(error.to_string().contains("submission"), "{error}");
            sim.disarm();
            assert_eq!(y.to_vec::<f32>().unwrap(), expected(3));
            drop((x, y, user));
            ended(gpu, &sim);
        }
    });
}
