//! The store has other values than were written. The engine finds every change, and other blocks
//! are not affected.

use std::sync::Arc;

use super::super::StoreBlock;
use super::{Memory, failure, keep, noise, patient, read};
use crate::error::StoreFailure;

/// Changes the only value in the store, and checks that a read of the block finds it.
#[track_caller]
fn assert_found(memory: &Memory, block: &Arc<StoreBlock>, change: impl FnOnce(&mut Vec<u8>)) {
    let mut before = Vec::new();
    memory.change(|values| {
        let value = values.values_mut().next().unwrap();
        before = value.clone();
        change(value);
    });
    let found = failure(read(block, 0, before.len() as u64));
    assert!(matches!(found, StoreFailure::Damaged(_)), "{found:?}");
    memory.change(|values| *values.values_mut().next().unwrap() = before.clone());
    assert_eq!(read(block, 0, before.len() as u64).unwrap(), before);
}

#[test]
fn every_flipped_bit_is_found() {
    let (memory, store) = patient(1 << 20);
    let block = keep(&store, &noise(400, 1)).unwrap();
    for byte in 0..400 {
        for bit in 0..8 {
            assert_found(&memory, &block, |value| value[byte] ^= 1 << bit);
        }
    }
}

#[test]
fn values_of_another_length_or_content_are_found() {
    let (memory, store) = patient(1 << 20);
    let block = keep(&store, &noise(400, 1)).unwrap();
    assert_found(&memory, &block, |value| value.truncate(399));
    assert_found(&memory, &block, |value| value.push(0));
    assert_found(&memory, &block, Vec::clear);
    assert_found(&memory, &block, |value| value.fill(0));
    assert_found(&memory, &block, |value| *value = noise(400, 2));
}

#[test]
fn values_in_each_others_place_are_found() {
    let (memory, store) = patient(1 << 24);
    let bytes = [noise(3 << 20, 1), noise(3 << 20, 2)];
    let blocks = bytes.each_ref().map(|bytes| keep(&store, bytes).unwrap());
    memory.change(|values| {
        let mut all: Vec<&mut Vec<u8>> = values.values_mut().collect();
        let (first, rest) = all.split_at_mut(1);
        std::mem::swap(first[0], rest[1]);
    });
    let found = failure(read(&blocks[0], 0, 3 << 20));
    assert!(matches!(found, StoreFailure::Damaged(_)), "{found:?}");
    // Its other part is right, and so is the other block.
    let middle = read(&blocks[0], 1 << 20, 1 << 20).unwrap();
    assert!(middle == bytes[0][1 << 20..2 << 20]);
    assert!(read(&blocks[1], 0, 3 << 20).unwrap() == bytes[1]);
    assert!(store.usage().lost > 0);
}

#[test]
fn a_value_that_is_gone_is_lost_at_once_and_others_are_not() {
    let (memory, store) = patient(1 << 24);
    let lost = keep(&store, &noise(1000, 1)).unwrap();
    let first = memory.inner.lock().values.keys().next().copied().unwrap();
    let kept = keep(&store, &noise(1000, 2)).unwrap();
    memory.change(|values| drop(values.remove(&first)));
    assert_eq!(failure(read(&lost, 0, 1000)), StoreFailure::NotFound);
    assert_eq!(read(&kept, 0, 1000).unwrap(), noise(1000, 2));
    let usage = store.usage();
    assert_eq!((usage.failures, usage.lost, usage.rests), (0, 1, false));
}

#[test]
fn bytes_that_are_garbled_once_on_the_way_are_read_again() {
    let (memory, store) = patient(1 << 24);
    let block = keep(&store, &noise(1000, 1)).unwrap();
    static GARBLED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    memory.fail(Some(|call| {
        let is_first = call == "read" && !GARBLED.swap(true, std::sync::atomic::Ordering::SeqCst);
        is_first.then(|| StoreFailure::Damaged("once".into()))
    }));
    assert_eq!(read(&block, 0, 1000).unwrap(), noise(1000, 1));
}
