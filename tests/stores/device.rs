//! The memory of another device as a tier: it is lent, and given back when its owner wants it.

use std::time::Duration;

use lapidary::sim::SimOptions;
use lapidary::stores::{DeviceStore, StoreTier};
use lapidary::{Budget, Gpu, Options, Residency, Tensor};

use super::{LEN, PATIENT, SHORT, assert_holds, budget, eventually, open, tensor};

const BYTES: u64 = 4 * LEN as u64;

/// A device with room for 60 tensors.
fn second(host_bytes: u64) -> Gpu {
    let options = Options {
        budget: Some(Budget {
            host_bytes: Some(host_bytes),
            disk_bytes: Some(0),
            staging_bytes: Some(64 << 10),
            ..Budget::device(304 << 10)
        }),
        ..Options::default()
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
        assert_holds(&x.add_scalar(1_u32).unwrap(), start as u32 + 1);
    }
    assert_eq!(count(&own, Residency::Device), 58);
    // What the first device drops is free.
    drop((borrowed, first));
    eventually("given back", || second.memory().stats().shares.is_empty());
    for (start, x) in own.iter().enumerate() {
        assert_holds(x, 100 + start as u32);
    }
}

#[test]
fn a_lost_second_device_loses_only_what_it_had() {
    let second = second(1 << 20);
    let first = first(&second, SHORT);
    let held: Vec<_> = (0..6).map(|start| tensor(&first, start)).collect();
    held[..3].iter().for_each(|x| x.evict().unwrap());
    second.notify_lost("as a test");
    for (start, x) in held[3..].iter().enumerate() {
        assert_holds(x, start as u32 + 3);
    }
    assert!(held[0].to_vec::<u32>().is_err());
    assert_holds(&tensor(&first, 50), 50);
}
