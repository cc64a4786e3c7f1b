//! The store never holds more than its limit, also while it removes values late or not at all.

use super::{MIB, SHORT, eventually, failure, keep, noise, open, patient, read};
use crate::error::StoreFailure;

#[test]
fn a_block_that_does_not_fit_is_refused_and_smaller_ones_are_not() {
    let (memory, store) = patient(10 * MIB);
    let first = keep(&store, &noise(6 * MIB, 1)).unwrap();
    assert_eq!(
        failure(keep(&store, &noise(11 * MIB, 2))),
        StoreFailure::Full
    );
    assert_eq!(
        failure(keep(&store, &noise(5 * MIB, 3))),
        StoreFailure::Full
    );
    let second = keep(&store, &noise(4 * MIB, 4)).unwrap();
    assert_eq!(store.room_bytes(), 0);
    assert_eq!(failure(keep(&store, &[1])), StoreFailure::Full);
    drop((first, second));
    // A block waits for the removal of others, if that makes room.
    let third = keep(&store, &noise(10 * MIB, 5)).unwrap();
    assert!(read(&third, 0, 10 * MIB).unwrap() == noise(10 * MIB, 5));
    assert_eq!(memory.inner.lock().peak_bytes, 10 * MIB);
    assert_eq!(store.usage().bytes.peak, 10 * MIB);
}

#[test]
fn what_cannot_be_removed_counts_until_it_is() {
    let (memory, store) = open(4 * MIB, SHORT);
    let block = keep(&store, &noise(3 * MIB, 1)).unwrap();
    memory.fail(Some(|call| {
        (call == "remove").then(|| StoreFailure::Gone("away".into()))
    }));
    drop(block);
    eventually("tried", || store.usage().failures > 0);
    assert_eq!(store.usage().bytes.now, 3 * MIB);
    assert!(keep(&store, &noise(2 * MIB, 2)).is_err());
    memory.fail(None);
    // After the rest the engine tries again by itself.
    eventually("removed", || store.usage().bytes.now == 0);
    assert_eq!(memory.used_bytes(), 0);
}

#[test]
fn a_store_that_says_it_is_full_gets_nothing_for_a_while_and_is_still_read() {
    let (memory, store) = open(64 * MIB, SHORT);
    let block = keep(&store, &noise(1000, 1)).unwrap();
    memory.fail(Some(|call| (call == "write").then_some(StoreFailure::Full)));
    assert_eq!(failure(keep(&store, &noise(1000, 2))), StoreFailure::Full);
    assert!(!store.takes_bytes());
    assert_eq!(store.room_bytes(), 0);
    assert_eq!(read(&block, 0, 1000).unwrap(), noise(1000, 1));
    memory.fail(None);
    eventually("ready", || store.takes_bytes());
    keep(&store, &noise(1000, 3)).unwrap();
}

#[test]
fn a_dry_store_counts_and_calls_nothing() {
    let (memory, store) = patient(4 * MIB);
    let dry = store.dry();
    let mut writer = dry.begin(3 * MIB).unwrap();
    writer.write(&vec![0; 3 * MIB as usize]).unwrap();
    let block = writer.finish().unwrap();
    assert_eq!(dry.usage().bytes.now, 3 * MIB);
    assert!(dry.begin(2 * MIB).is_err());
    drop(block);
    assert_eq!(dry.usage().bytes.now, 0);
    assert_eq!((memory.calls(), store.usage().bytes.up), (0, 0));
}
