//! A lost and replaced device, callbacks for short memory, a limit that follows the system's, and
//! the release of unused memory.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use lapidary::sim::{Fault, FaultKind, SimOptions, Site};
use lapidary::{Budget, DType, Error, Residency, Source, Tensor};

use crate::engine::{ended, numbers, open, open_alone, options};

fn ramp() -> Source {
    let bytes: Vec<u8> = numbers(7, 64)
        .iter()
        .flat_map(|number| number.to_ne_bytes())
        .collect();
    Source::bytes(bytes.into())
}

#[test]
fn totals_go_on_after_a_lost_device() {
    let (gpu, sim) = open_alone(options());
    let all: Vec<_> = (0..64)
        .map(|n| gpu.tensor(&numbers(n, 1 << 14), &[1 << 14]).unwrap())
        .collect();
    all.iter().for_each(|one| one.force().unwrap());
    let kept: Vec<_> = all.into_iter().step_by(3).collect();
    gpu.finish().unwrap();
    let moved_bytes = gpu.memory().compact(u64::MAX).unwrap().moved_bytes;
    assert!(moved_bytes > 0);
    let before = gpu.memory().stats();
    let measure = gpu.memory().measure("around the loss").unwrap();
    sim.lose("a test");
    gpu.reopen().unwrap();
    let again = gpu.tensor(&numbers(0, 64), &[64]).unwrap();
    again.force().unwrap();
    assert_eq!(measure.end().unwrap().moved_bytes, 0);
    let after = gpu.memory().stats();
    assert_eq!(after.moved_bytes, before.moved_bytes);
    // The slabs of the lost device are released.
    assert_eq!(after.slabs_released, before.slabs_created);
    assert_eq!(after.slabs_created, before.slabs_created + 1);
    drop((kept, again));
    ended(gpu, &sim);
}

#[test]
fn what_is_elsewhere_survives_a_lost_device_and_the_rest_is_listed() {
    for maps_slabs in [false, true] {
        let (gpu, sim) = open_alone(SimOptions {
            maps_slabs,
            ..options()
        });
        let kept = gpu.tensor(&numbers(0, 64), &[64]).unwrap();
        kept.evict().unwrap();
        let back_again = gpu.tensor(&numbers(5, 64), &[64]).unwrap();
        back_again.evict().unwrap();
        let sum = kept.add(&back_again).unwrap().named("sum");
        sum.force().unwrap();
        let backed = gpu.backed(ramp(), &[64], DType::F32).unwrap();
        // Its submission finds the device lost.
        let early = backed.add(1).unwrap().named("early");
        sim.arm(Fault::once(Site::Submit, 1, FaultKind::Lost));
        assert!(matches!(early.force(), Err(Error::DeviceLost { .. })));
        assert!(matches!(gpu.flush(), Err(Error::DeviceLost { .. })));
        let late = kept.add(2);
        assert!(matches!(late, Err(Error::DeviceLost { .. })));

        let recovered = gpu.reopen().unwrap();
        assert_eq!(recovered.kept, 3);
        for name in ["sum", "early"] {
            assert!(recovered.gone.iter().any(|(tag, _)| tag.contains(name)));
        }
        assert_eq!(kept.to_vec::<f32>().unwrap(), numbers(0, 64));
        assert_eq!(back_again.to_vec::<f32>().unwrap(), numbers(5, 64));
        assert_eq!(backed.to_vec::<f32>().unwrap(), numbers(7, 64));
        assert!(matches!(sum.to_vec::<f32>(), Err(Error::Poisoned { .. })));
        let again = kept.add(&backed).unwrap();
        let expected: Vec<f32> = (0..64).map(|n| (2 * n + 7) as f32).collect();
        assert_eq!(again.to_vec::<f32>().unwrap(), expected);
        sum.write(&numbers(1, 64)).unwrap();
        assert_eq!(sum.to_vec::<f32>().unwrap(), numbers(1, 64));
        assert!(gpu.reopen().is_err(), "it is not lost");
        drop((kept, back_again, sum, backed, early, again));
        ended(gpu, &sim);
    }
}

#[test]
fn work_that_had_not_begun_runs_on_the_new_device() {
    let (gpu, sim) = open(options());
    let backed = gpu.backed(ramp(), &[64], DType::F32).unwrap();
    let later = backed.mul(2).unwrap();
    gpu.notify_lost("pulled out");
    assert!(later.force().is_err());
    gpu.reopen().unwrap();
    let expected: Vec<f32> = numbers(7, 64).iter().map(|n| n * 2.0).collect();
    assert_eq!(later.to_vec::<f32>().unwrap(), expected);
    drop((backed, later));
    ended(gpu, &sim);
}

#[test]
fn the_app_is_asked_before_anything_is_evicted() {
    let (gpu, sim) = open(options());
    let held = Arc::new(Mutex::new(Vec::<Tensor>::new()));
    let asked = Arc::new(AtomicU32::new(0));
    let refused = Arc::new(Mutex::new(None));
    let guard = {
        let (held, asked, gpu) = (held.clone(), asked.clone(), gpu.clone());
        let refused = refused.clone();
        gpu.clone().memory().on_pressure(move |pressure| {
            assert!(pressure.wanted_bytes > 0);
            asked.fetch_add(1, Ordering::Relaxed);
            *refused.lock().unwrap() = gpu.finish().err();
            held.lock().unwrap().clear();
        })
    };
    let panicking = gpu.memory().on_pressure(|_| panic!("the app's own affair"));
    gpu.memory().set_budget(Budget::device(8 << 20)).unwrap();
    for _ in 0..3 {
        let x = gpu.zeros(&[2 << 20], DType::U8).unwrap();
        x.force().unwrap();
        held.lock().unwrap().push(x);
    }
    let big = gpu.zeros(&[5 << 20], DType::U8).unwrap();
    big.force().unwrap();
    assert!(asked.load(Ordering::Relaxed) > 0);
    assert!(matches!(*refused.lock().unwrap(), Some(Error::Reentered)));
    assert!(held.lock().unwrap().is_empty());
    let memory = gpu.memory().stats();
    assert_eq!(memory.evicted_bytes, 0, "{memory}");
    drop((big, guard, panicking, refused));
    ended(gpu, &sim);
}

#[test]
fn the_limit_follows_what_the_system_leaves() {
    let (gpu, sim) = open_alone(SimOptions {
        os_budget_bytes: Some(32 << 20),
        ..options()
    });
    gpu.poll().unwrap();
    let tensors: Vec<Tensor> = (0..6)
        .map(|n| gpu.full(&[1 << 20], n, DType::F32).unwrap())
        .collect();
    gpu.finish().unwrap();
    assert!(gpu.memory().stats().device_bytes.now > 16 << 20);
    // Another program takes memory.
    sim.set_os_budget(Some(32 << 20), 18 << 20);
    for _ in 0..16 {
        gpu.poll().unwrap();
    }
    gpu.finish().unwrap();
    let memory = gpu.memory().stats();
    assert!(memory.device_bytes.now <= 14 << 20, "{memory}");
    for (n, tensor) in tensors.iter().enumerate() {
        assert_eq!(tensor.to_vec::<f32>().unwrap(), vec![n as f32; 1 << 20]);
    }
    drop(tensors);
    ended(gpu, &sim);
}

#[test]
fn what_nobody_uses_goes_after_a_while() {
    let (gpu, sim) = open(options());
    gpu.memory().release_idle_after(10);
    let x = gpu.tensor(&numbers(0, 100_000), &[100_000]).unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), numbers(0, 100_000));
    drop(x);
    gpu.finish().unwrap();
    gpu.poll().unwrap();
    assert!(gpu.memory().stats().reserved_bytes.now > 0);
    for _ in 0..40 {
        gpu.poll().unwrap();
    }
    let memory = gpu.memory().stats();
    assert_eq!(
        (
            memory.reserved_bytes.now,
            memory.upload_bytes.now,
            memory.readback_bytes.now
        ),
        (0, 0, 0),
        "{memory}"
    );
    ended(gpu, &sim);
}

#[test]
fn a_source_that_fails_is_asked_again() {
    let (gpu, sim) = open(options());
    let fails = Arc::new(AtomicU32::new(2));
    let source = {
        let fails = fails.clone();
        Source::reader(move |at, bytes| {
            match fails.load(Ordering::Relaxed) {
                0 => {}
                left => {
                    fails.store(left - 1, Ordering::Relaxed);
                    assert!(left != 1, "a panic is an error");
                    return Err(io::Error::other("not now"));
                }
            }
            bytes.fill(at as u8 + 1);
            Ok(())
        })
    };
    let x = gpu.backed(source, &[8], DType::U8).unwrap();
    assert_eq!(x.residency(), Residency::Backed);
    let y = x.add(&x).unwrap();
    for _ in 0..2 {
        assert!(matches!(y.to_vec::<u8>(), Err(Error::Source { .. })));
    }
    assert_eq!(y.to_vec::<u8>().unwrap(), [2; 8]);
    drop((x, y));
    ended(gpu, &sim);
}

#[test]
fn uploads_on_other_threads_survive_that_the_device_is_replaced() {
    crate::engine::threads::watched(|| {
        let (gpu, sim) = open(options());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (gpu, over) = (&gpu, &over);
                scope.spawn(move || {
                    let mut round = thread;
                    while !over.load(Ordering::Relaxed) {
                        round += 2;
                        // Sometimes more than a chunk of staging holds.
                        let len = if round % 8 == 0 { 300_000 } else { 2000 };
                        let values = numbers(round, len);
                        let read = match gpu.tensor(&values, &[len]) {
                            Ok(tensor) => tensor.to_vec::<f32>(),
                            Err(error) => Err(error),
                        };
                        match read {
                            Ok(read) => assert!(read == values, "others' numbers"),
                            Err(Error::DeviceLost { .. }) => {}
                            Err(Error::Poisoned { cause, .. }) => {
                                assert!(matches!(*cause, Error::DeviceLost { .. }), "{cause}");
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            for _ in 0..300 {
                std::thread::yield_now();
                sim.lose("on purpose");
                while gpu.flush().is_ok() {}
                gpu.reopen().unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        gpu.finish().unwrap();
        let memory = gpu.memory().stats();
        let all_bytes =
            memory.reserved_bytes.now + memory.upload_bytes.now + memory.readback_bytes.now;
        assert_eq!(memory.device_bytes.now, all_bytes, "{memory}");
        drop(gpu);
        assert_eq!(sim.counters().buffers_live, 0);
        // A call that ran during the loss may still name an old buffer.
        let late = |complaint: &String| complaint == "the buffer does not exist (any more)";
        let complaints = sim.complaints();
        assert!(complaints.iter().all(late), "{complaints:?}");
    });
}

#[test]
fn limits_that_are_set_inside_a_callback_are_refused_and_stay_as_they_were() {
    let (gpu, sim) = open(options());
    let budget = Budget {
        host_bytes: Some(0),
        disk_bytes: Some(0),
        ..Budget::device(4 << 20)
    };
    gpu.memory().set_budget(budget).unwrap();
    let tried = Arc::new(AtomicU32::new(0));
    let (its_gpu, its_tried) = (gpu.clone(), tried.clone());
    let guard = gpu.memory().on_pressure(move |_| {
        let set = its_gpu.memory().set_budget(Budget::default());
        assert!(matches!(set, Err(Error::Reentered)), "{set:?}");
        its_tried.fetch_add(1, Ordering::Relaxed);
    });
    let held: Vec<Tensor> = (0..8)
        .map(|_| gpu.zeros(&[1 << 18], DType::F32).unwrap())
        .collect();
    assert!(held.iter().any(|tensor| tensor.force().is_err()));
    assert!(tried.load(Ordering::Relaxed) > 0);
    assert_eq!(gpu.memory().budget(), budget);
    drop((held, guard));
    ended(gpu, &sim);
}

#[test]
fn limits_that_one_thread_sets_are_not_undone_by_another_that_polls() {
    crate::engine::threads::watched(|| {
        let (gpu, sim) = open(SimOptions {
            os_budget_bytes: Some(48 << 20),
            ..options()
        });
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        gpu.poll().unwrap();
                    }
                });
            }
            for _ in 0..100 {
                gpu.memory().set_budget(Budget::device(32 << 20)).unwrap();
                gpu.memory().set_budget(Budget::device(8 << 20)).unwrap();
                let reserved_bytes = gpu.memory().reserve(64 << 20).unwrap();
                assert!(reserved_bytes <= 8 << 20, "{reserved_bytes}");
                gpu.memory().trim(0).unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        ended(gpu, &sim);
    });
}
