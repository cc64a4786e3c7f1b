//! Stores that hang, are full or cannot be reached: the next tier takes the bytes, and tensors that
//! are in the store keep them.

use lapidary::stores::StoreFailure;
use lapidary::{Budget, Error, Residency};

use super::{PATIENT, SHORT, assert_holds, budget, eventually, open, open_on, tensor, tier};

#[test]
fn the_next_tier_takes_what_a_store_does_not() {
    for maps_slabs in [false, true] {
        for failure in [
            StoreFailure::Full,
            StoreFailure::TimedOut,
            StoreFailure::Gone("refused".into()),
            StoreFailure::Later("after a pause".into()),
            StoreFailure::NotFound,
            StoreFailure::Damaged(String::new()),
            StoreFailure::Lost("with the node".into()),
            StoreFailure::Other("odd".into()),
        ] {
            let (bad, first) = tier("bad", 1 << 20, SHORT);
            let (good, second) = tier("good", 3 * 4096, PATIENT);
            bad.answer(Some(failure));
            let (gpu, sim) = open_on(maps_slabs, vec![first, second], budget());
            let held: Vec<_> = (0..20).map(|start| tensor(&gpu, start)).collect();
            held.iter().for_each(|x| x.force().unwrap());
            let x = tensor(&gpu, 99);
            x.evict().unwrap();
            assert!(matches!(x.residency(), Residency::Store | Residency::Disk));
            assert_eq!((bad.bytes(), good.bytes()), (0, 3 * 4096));
            for (start, x) in held.iter().enumerate() {
                assert_holds(x, start as u32);
            }
            assert_holds(&x, 99);
            assert_eq!(sim.complaints(), [""; 0]);
        }
    }
}

#[test]
fn a_store_that_hangs_delays_work_and_fails_none() {
    let (store, first) = tier("hung", 1 << 20, SHORT);
    store.stop();
    let (gpu, _sim) = open(vec![first], budget());
    let held: Vec<_> = (0..30).map(|start| tensor(&gpu, start)).collect();
    for (start, x) in held.iter().enumerate() {
        assert_holds(x, start as u32);
    }
    // One call hung. For as long as the store rests, there is no further one.
    let stats = gpu.memory().stats();
    assert!(
        stats.stores[0].failures >= 1 && stats.spilled_bytes.now > 0,
        "{stats}"
    );
    store.go_on();
    eventually("removed", || gpu.memory().stats().store_bytes() == 0);
    assert_eq!(store.bytes(), 0);
}

#[test]
fn without_another_tier_the_error_is_the_device_is_full_and_nothing_is_lost() {
    let (store, first) = tier("away", 1 << 20, SHORT);
    store.answer(Some(StoreFailure::Gone("refused".into())));
    let (gpu, _sim) = open(
        vec![first],
        Budget {
            disk_bytes: Some(0),
            ..budget()
        },
    );
    // Results need no staging.
    let base = tensor(&gpu, 0);
    let held: Vec<_> = (0..12_u32).map(|start| base.add(start).unwrap()).collect();
    let forced: Vec<_> = held.iter().map(|x| x.force()).collect();
    assert!(
        forced
            .iter()
            .any(|result| matches!(result, Err(Error::OutOfMemory(_))))
    );
    // The work waits, and runs when the store answers.
    store.answer(None);
    eventually("ready", || !gpu.memory().stats().stores[0].rests);
    for (start, x) in held.iter().enumerate() {
        assert_holds(x, start as u32);
    }
}

#[test]
fn a_tensor_in_a_store_that_does_not_answer_keeps_its_bytes() {
    let (store, first) = tier("away", 1 << 20, SHORT);
    let (gpu, _sim) = open(vec![first], budget());
    let (x, other) = (tensor(&gpu, 1), tensor(&gpu, 2));
    x.evict().unwrap();
    store.stop();
    let sum = x.add(&other).unwrap();
    let unconcerned = other.add(1_u32).unwrap();
    for result in [sum.force(), x.to_vec::<u32>().map(drop)] {
        let Err(Error::Store(error)) = result else {
            panic!("{result:?}");
        };
        assert_eq!(error.failure, StoreFailure::TimedOut);
        assert_eq!((error.store.as_str(), error.operation), ("away", "read"));
        assert_eq!((error.requested_bytes, error.most_bytes), (4096, 1 << 20));
        assert!(error.rests && !Error::Store(error).is_final());
    }
    assert_holds(&unconcerned, 3);
    store.go_on();
    eventually("ready", || !gpu.memory().stats().stores[0].rests);
    assert_holds(&x, 1);
    let expected: Vec<u32> = (0..1024).map(|at| 2 * at + 3).collect();
    assert_eq!(sum.to_vec::<u32>().unwrap(), expected);
}
