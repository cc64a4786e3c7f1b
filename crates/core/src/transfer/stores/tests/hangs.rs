//! The store is slow, hangs or cannot be reached. Callers get an error after the time-out, and the
//! store is left alone for a while.

use std::time::Duration;

use super::{MIB, SHORT, eventually, failure, keep, noise, open, patient, read};
use crate::error::StoreFailure;

const GONE: super::Fault = |_| Some(StoreFailure::Gone("connection refused".into()));

#[test]
fn a_store_that_hangs_times_out_rests_and_is_tried_again() {
    let (memory, store) = open(64 * MIB, SHORT);
    let block = keep(&store, &noise(3 * MIB, 1)).unwrap();
    memory.stop();
    assert_eq!(failure(read(&block, 0, 3 * MIB)), StoreFailure::TimedOut);
    let calls = memory.calls();
    assert!(store.usage().rests);
    // While it rests, nothing waits for it and nothing is queued for it.
    for _ in 0..100 {
        assert_eq!(failure(read(&block, 0, 10)), StoreFailure::TimedOut);
        assert_eq!(failure(keep(&store, &[1])), StoreFailure::TimedOut);
    }
    assert_eq!((memory.calls(), store.usage().failures), (calls, 1));
    memory.go_on();
    eventually("ready", || store.takes_bytes());
    assert!(read(&block, 0, 3 * MIB).unwrap() == noise(3 * MIB, 1));
    assert!(!store.usage().rests);
}

#[test]
fn values_that_are_written_late_are_removed() {
    let (memory, store) = open(64 * MIB, SHORT);
    memory.stop();
    let mut writer = store.begin(3 * MIB).unwrap();
    writer.write(&noise(3 * MIB, 1)).unwrap();
    assert_eq!(failure(writer.finish()), StoreFailure::TimedOut);
    assert_eq!(store.usage().bytes.now, 3 * MIB);
    memory.go_on();
    eventually("removed", || store.usage().bytes.now == 0);
    assert_eq!(memory.used_bytes(), 0);
    // Only one write had begun. The others were withdrawn.
    let calls = memory.inner.lock().calls.clone();
    assert_eq!(calls.iter().filter(|call| **call == "write").count(), 1);
}

#[test]
fn a_store_rests_after_three_failures_in_a_row() {
    let (memory, store) = open(64 * MIB, SHORT);
    memory.fail(Some(|call| {
        (call == "write").then(|| StoreFailure::Gone("refused".into()))
    }));
    for tries in 1..=3 {
        assert!(store.takes_bytes());
        assert!(matches!(
            failure(keep(&store, &[1; 10])),
            StoreFailure::Gone(_)
        ));
        eventually("removed or not", || store.usage().failures >= tries);
    }
    eventually("at rest", || !store.takes_bytes());
    memory.fail(None);
    eventually("ready", || store.takes_bytes());
    keep(&store, &[1; 10]).unwrap();
}

#[test]
fn a_read_is_repeated_within_the_time_out() {
    let (memory, store) = patient(64 * MIB);
    let block = keep(&store, &noise(2000, 1)).unwrap();
    memory.fail(Some(GONE));
    let reader = std::thread::spawn({
        let memory = memory.clone();
        move || {
            let calls = memory.calls();
            eventually("read several times", || memory.calls() > calls + 3);
            memory.fail(None);
        }
    });
    assert_eq!(read(&block, 0, 2000).unwrap(), noise(2000, 1));
    reader.join().unwrap();
}

#[test]
fn a_store_that_hangs_for_ever_holds_up_nobody_else() {
    let (memory, hung) = open(64 * MIB, SHORT);
    let (_other, other) = open(64 * MIB, Duration::from_secs(60));
    memory.stop();
    let threads = [1, 2, 3].map(|seed| {
        let (hung, other) = (hung.clone(), other.clone());
        std::thread::spawn(move || {
            assert!(keep(&hung, &noise(2 * MIB, seed)).is_err());
            let block = keep(&other, &noise(2 * MIB, seed)).unwrap();
            assert!(read(&block, 0, 2 * MIB).unwrap() == noise(2 * MIB, seed));
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    // The engine goes away while the call still hangs.
    drop(hung);
    memory.go_on();
    eventually("removed", || memory.used_bytes() == 0);
}
