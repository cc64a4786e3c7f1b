//! A store in memory that tests can look at, change, stop, and make fail.

use std::collections::BTreeMap;

use std::sync::{Condvar, Mutex, MutexGuard};

use fastrand::Rng;
use lapidary::stores::{Key, Store, StoreFailure};

/// How many of 1000 calls of a store fail at random.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chances {
    pub(crate) full: u32,
    pub(crate) gone: u32,
    pub(crate) times_out: u32,
    pub(crate) other: u32,
    /// A value is lost, or one of its bits flips.
    pub(crate) loses: u32,
    pub(crate) flips: u32,
    pub(crate) panics: u32,
}

#[derive(Default)]
pub(crate) struct Shaky {
    inner: Mutex<Inner>,
    goes_on: Condvar,
}

#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) values: BTreeMap<Key, Vec<u8>>,
    pub(crate) peak_bytes: u64,
    pub(crate) calls: u64,
    pub(crate) chances: Chances,
    /// Values that the store has lost or changed.
    pub(crate) spoiled: u64,
    /// Every call gets this answer.
    pub(crate) answer: Option<StoreFailure>,
    is_stopped: bool,
    rng: Rng,
}

impl Shaky {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // A store that panics is one of the tests.
        self.inner
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// From now on calls fail at random.
    pub(crate) fn shake(&self, seed: u64, chances: Chances) {
        let mut inner = self.lock();
        inner.rng = Rng::with_seed(seed);
        inner.chances = chances;
    }

    pub(crate) fn stop(&self) {
        self.lock().is_stopped = true;
    }

    pub(crate) fn go_on(&self) {
        self.lock().is_stopped = false;
        self.goes_on.notify_all();
    }

    pub(crate) fn answer(&self, answer: Option<StoreFailure>) {
        self.lock().answer = answer;
    }

    /// Loses everything, as a server that is restarted.
    pub(crate) fn clear(&self) {
        self.lock().values.clear();
    }

    pub(crate) fn bytes(&self) -> u64 {
        sum_bytes(&self.lock().values)
    }

    fn begin(&self) -> Result<MutexGuard<'_, Inner>, StoreFailure> {
        let mut inner = self.lock();
        inner.calls += 1;
        while inner.is_stopped {
            inner = (self.goes_on.wait(inner)).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        if let Some(answer) = &inner.answer {
            return Err(answer.clone());
        }
        let chances = inner.chances;
        let mut dice = inner.rng.u32(..1000);
        let mut happens = |chance: u32| {
            let is_now = dice < chance;
            dice = dice.wrapping_sub(chance);
            is_now
        };
        if happens(chances.full) {
            return Err(StoreFailure::Full);
        } else if happens(chances.gone) {
            return Err(StoreFailure::Gone("no route".into()));
        } else if happens(chances.times_out) {
            return Err(StoreFailure::TimedOut);
        } else if happens(chances.other) {
            return Err(StoreFailure::Other("odd".into()));
        } else if happens(chances.panics) {
            panic!("the store gives up");
        } else if happens(chances.loses) {
            let key = any_key(&mut inner);
            let lost = key.and_then(|key| inner.values.remove(&key));
            inner.spoiled += u64::from(lost.is_some());
        } else if happens(chances.flips) {
            if let Some(key) = any_key(&mut inner) {
                let bit = inner.rng.u64(..);
                let value = inner.values.get_mut(&key).expect("it is there");
                let at = bit as usize / 8 % value.len().max(1);
                if let Some(byte) = value.get_mut(at) {
                    *byte ^= 1 << (bit % 8);
                    inner.spoiled += 1;
                }
            }
        }
        Ok(inner)
    }
}

fn any_key(inner: &mut Inner) -> Option<Key> {
    let count = inner.values.len();
    let at = inner.rng.usize(..count.max(1));
    inner.values.keys().nth(at).copied()
}

fn sum_bytes(values: &BTreeMap<Key, Vec<u8>>) -> u64 {
    values.values().map(|value| value.len() as u64).sum()
}

impl Store for Shaky {
    fn write(&self, key: Key, bytes: &[u8]) -> Result<(), StoreFailure> {
        let mut inner = self.begin()?;
        let before = inner.values.insert(key, bytes.to_vec());
        assert!(before.is_none(), "a key was used twice");
        inner.peak_bytes = inner.peak_bytes.max(sum_bytes(&inner.values));
        Ok(())
    }

    fn read(&self, key: Key, bytes: &mut [u8]) -> Result<(), StoreFailure> {
        let inner = self.begin()?;
        let value = inner.values.get(&key).ok_or(StoreFailure::NotFound)?;
        bytes.copy_from_slice(value);
        Ok(())
    }

    fn remove(&self, key: Key) -> Result<(), StoreFailure> {
        self.begin()?.values.remove(&key);
        Ok(())
    }
}
