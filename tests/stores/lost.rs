//! What a store loses or changes concerns the tensors whose bytes it had, and no others. Tensors
//! that can be had elsewhere come back.

use lapidary::stores::StoreFailure;
use lapidary::{DType, Error, Residency, Source, Tensor};

use super::{LEN, PATIENT, SHORT, assert_holds, budget, numbers, open, open_on, tensor, tier};

/// The tensor has no value, because of this answer of the store.
#[track_caller]
fn assert_lost(x: &Tensor, made_at: &str, is_cause: impl Fn(&StoreFailure) -> bool) {
    let Err(error) = x.force() else {
        panic!("it has a value");
    };
    assert!(error.to_string().contains(made_at), "{error}");
    let Error::Poisoned { cause, .. } = error else {
        panic!("{error}");
    };
    let Error::Store(cause) = &*cause else {
        panic!("{cause}");
    };
    assert!(is_cause(&cause.failure), "{cause}");
    assert_eq!(x.residency(), Residency::Poisoned);
}

#[test]
fn what_a_restarted_store_has_lost_has_no_value_and_the_cause() {
    for maps_slabs in [false, true] {
        for reads_first in [false, true] {
            let (store, first) = tier("neighbour", 1 << 20, PATIENT);
            let (gpu, _sim) = open_on(maps_slabs, vec![first], budget());
            let lost = tensor(&gpu, 1).named("weights");
            let here = tensor(&gpu, 2);
            lost.evict().unwrap();
            store.clear();
            let later = tensor(&gpu, 3);
            later.evict().unwrap();
            if reads_first {
                assert!(lost.to_vec::<u32>().is_err());
            } else {
                assert!(lost.add(1_u32).unwrap().force().is_err());
            }
            assert_lost(&lost, "weights", |cause| *cause == StoreFailure::NotFound);
            assert_holds(&here, 2);
            assert_holds(&later, 3);
            assert_eq!(gpu.memory().stats().stores[0].lost, 1);
            // A new value makes it whole.
            lost.write(&numbers(8)).unwrap();
            assert_holds(&lost, 8);
        }
    }
}

#[test]
fn what_would_be_computed_from_a_lost_tensor_has_its_cause() {
    let (store, first) = tier("neighbour", 1 << 20, PATIENT);
    let (gpu, _sim) = open(vec![first], budget());
    let lost = tensor(&gpu, 1).named("weights");
    let sum = lost.add(1_u32).unwrap().named("sum");
    sum.recompute_with(&[&lost], |inputs| inputs[0].add(1_u32))
        .unwrap();
    sum.evict().unwrap();
    lost.evict().unwrap();
    store.clear();
    assert!(lost.to_vec::<u32>().is_err());
    assert!(sum.to_vec::<u32>().is_err());
    assert_lost(&sum, "sum", |cause| *cause == StoreFailure::NotFound);
}

#[test]
fn a_changed_byte_is_never_read() {
    let (store, first) = tier("neighbour", 1 << 20, PATIENT);
    let (gpu, _sim) = open(vec![first], budget());
    let small = gpu.tensor(&[5_u32; 64], &[64]).unwrap();
    let large = tensor(&gpu, 5);
    let every_byte = (0..256).map(|at| (&small, at));
    let some_bytes = [0, 1, 2047, 4094, 4095].map(|at| (&large, at));
    for (of, at) in every_byte.chain(some_bytes) {
        for bit in [0, 7] {
            let (x, other) = (of.copy().unwrap(), tensor(&gpu, 6));
            x.evict().unwrap();
            for value in store.lock().values.values_mut() {
                value[at] ^= 1 << bit;
            }
            other.evict().unwrap();
            assert!(x.add(1_u32).unwrap().force().is_err());
            assert_lost(&x, "lost.rs", |cause| {
                matches!(cause, StoreFailure::Damaged(_))
            });
            assert_holds(&other, 6);
        }
    }
}

#[test]
fn a_source_gives_what_the_store_has_lost() {
    let (store, first) = tier("neighbour", 1 << 20, PATIENT);
    let (gpu, _sim) = open(vec![first], budget());
    let bytes: Vec<u8> = numbers(4)
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect();
    let x = tensor(&gpu, 4);
    x.evict().unwrap();
    x.backed_by(Source::bytes(bytes.into())).unwrap();
    store.clear();
    assert_holds(&x, 4);
    assert_holds(&x.add(0_u32).unwrap(), 4);
}

#[test]
fn what_can_be_computed_again_is() {
    let (store, first) = tier("neighbour", 1 << 20, SHORT);
    let (gpu, _sim) = open(vec![first], budget());
    for failure in [StoreFailure::NotFound, StoreFailure::Gone("refused".into())] {
        let x = tensor(&gpu, 4);
        let y = x.add(10_u32).unwrap();
        y.evict().unwrap();
        assert_eq!(y.residency(), Residency::Store);
        y.recompute_with(&[&x], |inputs| inputs[0].add(10_u32))
            .unwrap();
        store.answer(Some(failure));
        assert_holds(&y.add(0_u32).unwrap(), 14);
        assert_holds(&y, 14);
        store.answer(None);
    }
}

#[test]
fn rows_are_picked_from_a_table_in_a_store() {
    let (store, first) = tier("neighbour", 1 << 20, PATIENT);
    let (gpu, _sim) = open(vec![first], budget());
    let table = gpu.tensor(&numbers(0), &[LEN / 16, 16]).unwrap();
    table.evict().unwrap();
    let rows = gpu.tensor(&[3_u32, 0, 63], &[3]).unwrap();
    let picked = table.index_select(0, &rows).unwrap();
    let expected: Vec<u32> = [3, 0, 63]
        .iter()
        .flat_map(|row| row * 16..row * 16 + 16)
        .collect();
    assert_eq!(picked.to_vec::<u32>().unwrap(), expected);
    assert_eq!(table.dtype(), DType::U32);
    table.evict().unwrap();
    store.clear();
    let picked = table.index_select(0, &rows).unwrap();
    assert!(picked.force().is_err());
    assert_lost(&table, "lost.rs", |cause| *cause == StoreFailure::NotFound);
}
