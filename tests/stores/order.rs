//! Tensors go to the host's memory, then to the stores in the app's order, then to the disk, and
//! every report says where they are.

use std::sync::Arc;

use lapidary::stats::ReclaimStep;
use lapidary::stores::StoreTier;
use lapidary::{Budget, Error, Gpu, Options, Residency};

use super::{LEN, PATIENT, assert_holds, budget, eventually, numbers, open, open_on, tensor, tier};

const BYTES: u64 = 4 * LEN as u64;

#[test]
fn tiers_fill_in_the_order_of_the_app() {
    for maps_slabs in [false, true] {
        let (near, first) = tier("near", 2 * BYTES, PATIENT);
        let (far, second) = tier("far", 3 * BYTES, PATIENT);
        let budget = Budget {
            host_bytes: Some(BYTES),
            ..budget()
        };
        let (gpu, _sim) = open_on(maps_slabs, vec![first, second], budget);
        let held: Vec<_> = (0..8).map(|start| tensor(&gpu, start)).collect();
        held.iter().for_each(|x| x.evict().unwrap());
        let count = |place| held.iter().filter(|x| x.residency() == place).count();
        let on_host = if maps_slabs { 0 } else { 1 };
        assert_eq!(count(Residency::Host), on_host);
        assert_eq!(count(Residency::Store), 5);
        assert_eq!(count(Residency::Disk), 3 - on_host);
        assert_eq!((near.bytes(), far.bytes()), (2 * BYTES, 3 * BYTES));
        for (start, x) in held.iter().enumerate() {
            assert_holds(x, start as u32);
            // Also on the device.
            assert_holds(&x.add(0_u32).unwrap(), start as u32);
        }
        drop((held, gpu));
        eventually("removed", || near.bytes() + far.bytes() == 0);
    }
}

#[test]
fn work_larger_than_the_device_runs_through_a_store() {
    let (store, first) = tier("neighbour", 1 << 20, PATIENT);
    let (gpu, _sim) = open(
        vec![first],
        Budget {
            disk_bytes: Some(0),
            ..budget()
        },
    );
    let held: Vec<_> = (0..40).map(|start| tensor(&gpu, start)).collect();
    let sums: Vec<_> = held
        .windows(2)
        .map(|pair| pair[0].add(&pair[1]).unwrap())
        .collect();
    for (start, sum) in sums.iter().enumerate() {
        let expected: Vec<u32> = (0..LEN as u32)
            .map(|at| 2 * (at + start as u32) + 1)
            .collect();
        assert!(sum.to_vec::<u32>().unwrap() == expected);
    }
    let stats = gpu.memory().stats();
    let step = |wanted| {
        let mut steps = stats.reclaim_steps.iter();
        steps
            .find(|one| one.step == wanted)
            .expect("every step is listed")
            .freed_bytes
    };
    assert!(step(ReclaimStep::Store) > 0);
    assert_eq!((step(ReclaimStep::Disk), stats.disk_bytes.peak), (0, 0));
    let used = &stats.stores[0];
    assert_eq!(
        (used.name.as_str(), used.most_bytes),
        ("neighbour", 1 << 20)
    );
    assert_eq!((used.failures, used.lost, used.rests), (0, 0, false));
    assert!(used.written_bytes >= used.bytes.now && used.read_bytes > 0);
    assert!(used.bytes.peak >= store.lock().peak_bytes);
    assert_eq!(stats.store_bytes(), used.bytes.now);
    let report = stats.to_string();
    assert!(report.contains("`neighbour`"), "{report}");
    assert!(
        report.lines().all(|line| line.chars().count() <= 100),
        "{report}"
    );
}

#[test]
fn a_lower_share_of_the_host_moves_its_tensors_to_the_store() {
    let (store, first) = tier("neighbour", 1 << 20, PATIENT);
    let both = Budget {
        host_bytes: Some(64 << 10),
        ..budget()
    };
    let (gpu, _sim) = open(vec![first], both);
    let x = tensor(&gpu, 7);
    x.evict().unwrap();
    assert_eq!((x.residency(), store.bytes()), (Residency::Host, 0));
    gpu.memory().set_budget(budget()).unwrap();
    assert_eq!((x.residency(), store.bytes()), (Residency::Store, BYTES));
    assert_eq!(gpu.memory().stats().host_bytes.now, 0);
    assert_holds(&x, 7);
}

#[test]
fn a_write_and_a_drop_remove_the_values() {
    let (store, first) = tier("neighbour", 1 << 20, PATIENT);
    let (gpu, _sim) = open(vec![first], budget());
    let (x, y) = (tensor(&gpu, 1), tensor(&gpu, 2));
    x.evict().unwrap();
    y.evict().unwrap();
    x.write(&numbers(9)).unwrap();
    x.force().unwrap();
    drop(y);
    gpu.finish().unwrap();
    gpu.memory().stats();
    eventually("removed", || store.bytes() == 0);
    assert_holds(&x, 9);
}

#[test]
fn snapshots_dry_runs_and_the_history_know_the_stores() {
    let (_store, first) = tier("neighbour", 1 << 20, PATIENT);
    let (gpu, _sim) = open(
        vec![first],
        Budget {
            disk_bytes: Some(0),
            ..budget()
        },
    );
    gpu.memory().keep_history(100);
    let x = tensor(&gpu, 1).named("away");
    x.evict().unwrap();
    let snapshot = gpu.memory().snapshot();
    assert_eq!(snapshot.evicted[0].residency, Residency::Store);
    assert_eq!(snapshot.stats.stores[0].bytes.now, BYTES);
    let written = gpu.memory().stats().stores[0].written_bytes;
    let dry = gpu.dry_run(|gpu| {
        let held: Vec<_> = (0..20).map(|start| tensor(gpu, start)).collect();
        held.iter().try_for_each(|x| x.force())?;
        x.add(1_u32)?.force()
    });
    let dry = dry.unwrap();
    assert!(dry.peak_store_bytes > BYTES && dry.evictions > 0, "{dry}");
    assert!(dry.to_string().contains("in stores"), "{dry}");
    // The dry run called no store.
    assert_eq!(gpu.memory().stats().stores[0].written_bytes, written);
    assert_holds(&x, 1);
}

#[test]
fn a_lost_device_leaves_what_the_store_has() {
    let (_store, first) = tier("neighbour", 1 << 20, PATIENT);
    let (gpu, _sim) = open(vec![first], budget());
    let (x, here) = (tensor(&gpu, 5), tensor(&gpu, 6));
    x.evict().unwrap();
    here.force().unwrap();
    gpu.notify_lost("a test");
    assert_eq!(gpu.reopen().unwrap().kept, 1);
    assert_holds(&x, 5);
    assert!(here.to_vec::<u32>().is_err());
}

#[test]
fn options_that_cannot_be_are_refused() {
    let open = |stores: Vec<StoreTier>| {
        let options = Options {
            stores,
            ..Options::from_env().unwrap()
        };
        Gpu::simulated_with(Default::default(), options).map(drop)
    };
    let some = |count: usize| (0..count).map(|_| tier("x", 1, PATIENT).1).collect();
    assert!(open(some(4)).is_ok());
    for refused in [
        open(some(5)),
        open(vec![tier("x", 1, Default::default()).1]),
    ] {
        assert!(matches!(
            refused,
            Err(Error::Option {
                option: "stores",
                ..
            })
        ));
    }
    // Options are equal if they share the stores.
    let (store, one) = tier("x", 1, PATIENT);
    assert_eq!(one, one.clone());
    assert_ne!(
        one,
        StoreTier::new("x", Arc::clone(&store), 1).timeout(PATIENT)
    );
    assert!(format!("{one:?}").contains("most_bytes: 1"));
}
