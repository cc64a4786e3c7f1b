//! The memory of another device as a tier: it is lent, and given back when its owner wants it.

use std::time::Duration;

use lapidary::sim::SimOptions;
use lapidary::stores::{DeviceStore, StoreFailure, StoreTier};
use lapidary::{Budget, Error, Gpu, Options, Residency, Tensor};

use super::{LEN, PATIENT, assert_holds, budget, eventually, numbers, open, tensor};

const BYTES: u64 = 4 * LEN as u64;

/// A device with room for 60 tensors.
fn second(host_bytes: u64) -> Gpu {
    second_with(host_bytes, false)
}

fn second_with(host_bytes: u64, host_heap: bool) -> Gpu {
    let options = Options {
        budget: Some(Budget {
            host_bytes: Some(host_bytes),
            disk_bytes: Some(0),
            staging_bytes: Some(64 << 10),
            ..Budget::device(304 << 10)
        }),
        host_heap: Some(host_heap),
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(SimOptions::default(), options)
        .unwrap()
        .0
}

/// A device without a host or a disk that borrows from another one.
fn first(second: &Gpu, timeout: Duration) -> Gpu {
    let store = DeviceStore::new(second).unwrap();
    let tier = StoreTier::new("second", store, 40 * BYTES).timeout(timeout);
    let none = Budget {
        disk_bytes: Some(0),
        ..budget()
    };
    open(vec![tier], none).0
}

fn count(held: &[Tensor], place: Residency) -> usize {
    held.iter().filter(|one| one.residency() == place).count()
}

#[test]
fn another_device_lends_its_memory_and_takes_it_back() {
    let second = second(1 << 20);
    let first = first(&second, PATIENT);
    let lent = || second.memory().stats().shares[0].bytes.now;
    let borrowed: Vec<_> = (0..40).map(|start| tensor(&first, start)).collect();
    borrowed.iter().for_each(|x| x.evict().unwrap());
    assert_eq!(count(&borrowed, Residency::Store), 40);
    assert_eq!(lent(), 40 * BYTES);
    // The owner gets all of its memory, and its own tensors stay there.
    let own: Vec<_> = (0..58).map(|start| tensor(&second, 100 + start)).collect();
    second.finish().unwrap();
    assert_eq!(count(&own, Residency::Device), 58);
    assert!(lent() <= 2 * BYTES);
    for (start, x) in borrowed.iter().enumerate() {
        assert_holds(x, start as u32);
        assert_holds(&x.add(1_u32).unwrap(), start as u32 + 1);
    }
    assert_eq!(count(&own, Residency::Device), 58);
    // What the first device drops is free.
    drop((borrowed, first));
    eventually("given back", || second.memory().stats().shares.is_empty());
    for (start, x) in own.iter().enumerate() {
        assert_holds(x, 100 + start as u32);
    }
}

/// The answer of the store, in the error of a read.
#[track_caller]
fn answer(x: &Tensor) -> (StoreFailure, String) {
    let error = x.to_vec::<u32>().unwrap_err();
    let text = error.to_string();
    let cause = match error {
        Error::Poisoned { cause, .. } => (*cause).clone(),
        error => error,
    };
    let Error::Store(error) = cause else {
        panic!("{cause}");
    };
    (error.failure.clone(), text)
}

#[test]
fn a_lost_second_device_loses_only_what_it_had() {
    for reopens in [false, true] {
        let second = second(1 << 20);
        let first = first(&second, PATIENT);
        let held: Vec<_> = (0..6).map(|start| tensor(&first, start)).collect();
        held[..3].iter().for_each(|x| x.evict().unwrap());
        second.notify_lost("as a test");
        if reopens {
            second.reopen().unwrap();
        }
        for (start, x) in held[3..].iter().enumerate() {
            assert_holds(x, start as u32 + 3);
        }
        for x in &held[..3] {
            let (failure, text) = answer(x);
            assert!(matches!(failure, StoreFailure::Lost(_)), "{text}");
            for part in [
                "`second`",
                "`simulated device` was lost: as a test",
                "again",
            ] {
                assert!(text.contains(part), "{text}");
            }
            assert!(!text.contains("keeps its bytes"), "{text}");
            assert_eq!(x.residency(), Residency::Poisoned);
        }
        assert_eq!(first.memory().stats().stores[0].lost, 3);
        assert_holds(&tensor(&first, 50), 50);
        // A new value makes it whole.
        held[0].write(&numbers(8)).unwrap();
        assert_holds(&held[0], 8);
    }
}

#[test]
fn what_a_lost_second_device_had_evicted_comes_back_with_it() {
    let second = second(1 << 20);
    let first = first(&second, PATIENT);
    let mut borrowed: Vec<_> = (0..20).map(|start| tensor(&first, start)).collect();
    borrowed.iter().for_each(|x| x.evict().unwrap());
    // Its own work takes the memory of some of them. Others come after that.
    let own: Vec<_> = (0..50).map(|start| tensor(&second, start)).collect();
    second.finish().unwrap();
    drop(own);
    second.finish().unwrap();
    borrowed.extend((20..25).map(|start| tensor(&first, start)));
    borrowed[20..].iter().for_each(|x| x.evict().unwrap());
    second.notify_lost("as a test");
    // It is asked for what it has, and not to take more.
    assert!(tensor(&first, 99).evict().is_err());
    assert!(first.memory().stats().stores[0].rests);
    let mut kept = 0;
    for x in &borrowed {
        let (failure, text) = answer(x);
        match failure {
            StoreFailure::Lost(_) => assert_eq!(x.residency(), Residency::Poisoned),
            StoreFailure::Later(why) => {
                assert!(why.contains("in its host's memory"), "{text}");
                for part in [
                    "`simulated device` was lost: as a test",
                    "call its `reopen`",
                ] {
                    assert!(text.contains(part), "{text}");
                }
                assert_eq!(x.residency(), Residency::Store);
                kept += 1;
            }
            _ => panic!("{text}"),
        }
    }
    assert!((10..=20).contains(&kept), "{kept}");
    // Those that were said to be lost are, and no others.
    assert_eq!(second.reopen().unwrap().kept, kept);
    for (start, x) in borrowed.iter().enumerate() {
        if x.residency() == Residency::Store {
            assert_holds(x, start as u32);
            kept -= 1;
        }
    }
    assert_eq!(kept, 0);
}

#[test]
fn what_a_lost_second_device_had_in_its_heap_is_lost_with_it() {
    let second = second_with(1 << 20, true);
    let first = first(&second, PATIENT);
    let borrowed: Vec<_> = (0..20).map(|start| tensor(&first, start)).collect();
    borrowed.iter().for_each(|x| x.evict().unwrap());
    let own: Vec<_> = (0..50).map(|start| tensor(&second, start)).collect();
    second.finish().unwrap();
    assert!(second.memory().stats().host_slab_bytes.now > 0);
    drop(own);
    second.notify_lost("as a test");
    for x in &borrowed {
        assert!(matches!(answer(x).0, StoreFailure::Lost(_)));
    }
    assert_eq!(second.reopen().unwrap().kept, 0);
}
