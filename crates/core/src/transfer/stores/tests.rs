//! The engine's side of a store: bytes come back or give an error, no limit is exceeded, and nobody
//! waits for a store that hangs.

mod account;
mod damage;
mod hangs;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{Key, MOST_VALUE_BYTES, OpenStore, Store, StoreBlock, StoreTier};
use crate::error::{Error, Result, StoreFailure};

const MIB: u64 = MOST_VALUE_BYTES;

/// What a store says instead of doing as it is asked.
type Fault = fn(&'static str) -> Option<StoreFailure>;

/// A store in memory that can be looked at, changed, stopped and made to fail.
#[derive(Default)]
struct Memory {
    inner: Mutex<Inner>,
    goes_on: Condvar,
}

#[derive(Default)]
struct Inner {
    values: BTreeMap<Key, Vec<u8>>,
    peak_bytes: u64,
    calls: Vec<&'static str>,
    fault: Option<Fault>,
    is_stopped: bool,
}

impl Memory {
    fn begin(&self, call: &'static str) -> Result<(), StoreFailure> {
        let mut inner = self.inner.lock();
        inner.calls.push(call);
        while inner.is_stopped {
            self.goes_on.wait(&mut inner);
        }
        match inner.fault.and_then(|fault| fault(call)) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    fn stop(&self) {
        self.inner.lock().is_stopped = true;
    }

    fn go_on(&self) {
        self.inner.lock().is_stopped = false;
        self.goes_on.notify_all();
    }

    fn fail(&self, fault: Option<Fault>) {
        self.inner.lock().fault = fault;
    }

    fn calls(&self) -> usize {
        self.inner.lock().calls.len()
    }

    fn used_bytes(&self) -> u64 {
        let inner = self.inner.lock();
        inner.values.values().map(|value| value.len() as u64).sum()
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<Key, Vec<u8>>)) {
        change(&mut self.inner.lock().values);
    }
}

impl Store for Memory {
    fn write(&self, key: Key, bytes: &[u8]) -> Result<(), StoreFailure> {
        self.begin("write")?;
        let mut inner = self.inner.lock();
        assert!(bytes.len() as u64 <= MOST_VALUE_BYTES);
        let before = inner.values.insert(key, bytes.to_vec());
        assert!(before.is_none(), "a key was used twice");
        let sum_bytes = inner.values.values().map(|value| value.len() as u64).sum();
        inner.peak_bytes = inner.peak_bytes.max(sum_bytes);
        Ok(())
    }

    fn read(&self, key: Key, bytes: &mut [u8]) -> Result<(), StoreFailure> {
        self.begin("read")?;
        let inner = self.inner.lock();
        let value = inner.values.get(&key).ok_or(StoreFailure::NotFound)?;
        if value.len() != bytes.len() {
            return Err(StoreFailure::Damaged("another length".into()));
        }
        bytes.copy_from_slice(value);
        Ok(())
    }

    fn remove(&self, key: Key) -> Result<(), StoreFailure> {
        self.begin("remove")?;
        self.inner.lock().values.remove(&key);
        Ok(())
    }
}

fn open(most_bytes: u64, timeout: Duration) -> (Arc<Memory>, OpenStore) {
    let memory = Arc::new(Memory::default());
    let tier = StoreTier::new("neighbour", memory.clone(), most_bytes).timeout(timeout);
    (memory, OpenStore::new(tier))
}

/// A store that has all the time it wants.
fn patient(most_bytes: u64) -> (Arc<Memory>, OpenStore) {
    open(most_bytes, Duration::from_secs(600))
}

/// A time-out that a stopped store exceeds, and a store in memory does not.
const SHORT: Duration = Duration::from_millis(300);

fn noise(len_bytes: u64, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len_bytes).map(|_| next()).collect()
}

fn keep(store: &OpenStore, bytes: &[u8]) -> Result<Arc<StoreBlock>> {
    let mut writer = store.begin(bytes.len() as u64)?;
    // Pieces that fit no part.
    for piece in bytes.chunks(700_001) {
        writer.write(piece)?;
    }
    writer.finish()
}

/// Reads a block from an offset on, as a restore does.
fn read(block: &Arc<StoreBlock>, from_bytes: u64, len_bytes: u64) -> Result<Vec<u8>> {
    let mut reader = block.reader();
    let mut bytes = Vec::new();
    let mut left_bytes = len_bytes;
    while left_bytes > 0 {
        let at_bytes = from_bytes + len_bytes - left_bytes;
        reader.fetch(at_bytes, left_bytes)?;
        let got = reader.fetched(at_bytes);
        let taken = got.len().min(left_bytes as usize);
        bytes.extend_from_slice(&got[..taken]);
        left_bytes -= taken as u64;
    }
    Ok(bytes)
}

#[track_caller]
fn failure<T>(result: Result<T>) -> StoreFailure {
    match result {
        Err(Error::Store(error)) => error.failure.clone(),
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("it succeeded"),
    }
}

/// Waits until something is so.
#[track_caller]
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("never {what}");
}

#[test]
fn bytes_come_back_at_every_size_and_from_everywhere() {
    let (memory, store) = patient(64 * MIB);
    for len_bytes in [0, 1, 5, MIB - 1, MIB, MIB + 1, 7 * MIB / 2, 9 * MIB] {
        let bytes = noise(len_bytes, len_bytes + 1);
        let block = keep(&store, &bytes).unwrap();
        assert_eq!(memory.used_bytes(), len_bytes);
        assert!(read(&block, 0, len_bytes).unwrap() == bytes);
        for part in 0..len_bytes / 1_000_003 {
            let from_bytes = len_bytes - 1_000_003 * (part + 1);
            let got = read(&block, from_bytes, 77.min(len_bytes)).unwrap();
            assert!(got == bytes[from_bytes as usize..][..got.len()]);
        }
        drop(block);
        eventually("removed", || store.usage().bytes.now == 0);
        assert_eq!(memory.used_bytes(), 0);
    }
    let usage = store.usage();
    assert_eq!((usage.failures, usage.lost, usage.rests), (0, 0, false));
}

#[test]
fn a_block_that_is_given_up_leaves_nothing() {
    let (memory, store) = patient(64 * MIB);
    let mut writer = store.begin(5 * MIB).unwrap();
    writer.write(&noise(3 * MIB, 1)).unwrap();
    drop(writer);
    let mut short = store.begin(5 * MIB).unwrap();
    short.write(&noise(4 * MIB, 2)).unwrap();
    assert!(matches!(failure(short.finish()), StoreFailure::Other(_)));
    let mut long = store.begin(2 * MIB).unwrap();
    long.write(&noise(MIB, 3)).unwrap();
    assert!(long.write(&noise(MIB + 1, 3)).is_err());
    assert!(long.write(&[]).is_err());
    assert!(long.finish().is_err());
    eventually("removed", || store.usage().bytes.now == 0);
    assert_eq!(memory.used_bytes(), 0);
}

#[test]
fn a_panic_of_a_store_is_a_failure() {
    let (memory, store) = patient(64 * MIB);
    let block = keep(&store, &[1; 100]).unwrap();
    memory.fail(Some(|call| match call {
        "read" => None,
        _ => panic!("the store gives up"),
    }));
    let failed = failure(keep(&store, &[1; 100]));
    assert_eq!(failed, StoreFailure::Other("it panicked".into()));
    assert_eq!(read(&block, 0, 100).unwrap(), [1; 100]);
}

#[test]
fn stores_of_different_devices_share_no_key() {
    let memory = Arc::new(Memory::default());
    let tier = StoreTier::new("shared", memory.clone(), 64 * MIB);
    let stores = [(); 8].map(|()| OpenStore::new(tier.clone()));
    let blocks = stores
        .each_ref()
        .map(|store| keep(store, &[7; 64]).unwrap());
    assert_eq!(memory.used_bytes(), 8 * 64);
    memory.change(|values| {
        let texts: Vec<String> = values.keys().map(|key| key.to_string()).collect();
        assert!(texts.iter().all(|text| text.len() == 32));
        assert!(values.keys().all(|key| key.to_bytes().len() == 16));
    });
    drop(blocks);
}
