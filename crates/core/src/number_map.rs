//! A map whose keys are numbers. A hash table is about 3 KB of code for each type of entry, so
//! these maps share one. It says where the entries are.

use rustc_hash::FxHashMap;

/// A map from numbers, such as addresses, to values. It iterates in the order of insertion, until
/// an entry is removed.
#[derive(Clone, Debug)]
pub(crate) struct NumberMap<V> {
    places: Places,
    entries: Vec<(u64, V)>,
}

/// The index of each key's entry. The functions are compiled once, not at each call.
#[derive(Clone, Debug, Default)]
struct Places(FxHashMap<u64, usize>);

impl Places {
    #[inline(never)]
    fn find(&self, key: u64) -> Option<usize> {
        self.0.get(&key).copied()
    }

    #[inline(never)]
    fn set(&mut self, key: u64, place: usize) {
        self.0.insert(key, place);
    }

    #[inline(never)]
    fn remove(&mut self, key: u64) -> Option<usize> {
        self.0.remove(&key)
    }
}

impl<V> Default for NumberMap<V> {
    fn default() -> Self {
        NumberMap {
            places: Places::default(),
            entries: Vec::new(),
        }
    }
}

impl<V> NumberMap<V> {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn get(&self, key: u64) -> Option<&V> {
        let place = self.places.find(key)?;
        Some(&self.entries[place].1)
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        let place = self.places.find(key)?;
        Some(&mut self.entries[place].1)
    }

    /// The value of a key, which is `first` if it has none yet.
    pub(crate) fn get_or_insert_with(&mut self, key: u64, first: impl FnOnce() -> V) -> &mut V {
        let place = self.places.find(key).unwrap_or_else(|| {
            let place = self.entries.len();
            self.entries.push((key, first()));
            self.places.set(key, place);
            place
        });
        &mut self.entries[place].1
    }

    /// Gives a key a value, instead of the one that it has.
    pub(crate) fn insert(&mut self, key: u64, value: V) {
        match self.places.find(key) {
            Some(place) => self.entries[place].1 = value,
            None => {
                self.places.set(key, self.entries.len());
                self.entries.push((key, value));
            }
        }
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<V> {
        let place = self.places.remove(key)?;
        let (_, value) = self.entries.swap_remove(place);
        if let Some((moved, _)) = self.entries.get(place) {
            self.places.set(*moved, place);
        }
        Some(value)
    }

    /// Removes the entries that are not `kept`.
    pub(crate) fn retain(&mut self, mut kept: impl FnMut(u64, &mut V) -> bool) {
        self.entries.retain_mut(|(key, value)| kept(*key, value));
        self.places.0.clear();
        for (place, (key, _)) in self.entries.iter().enumerate() {
            self.places.set(*key, place);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.places.0.clear();
        self.entries.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.entries.iter().map(|(key, value)| (*key, value))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random calls, beside a map of `std`.
    #[test]
    fn it_does_what_another_map_does() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut map, mut wanted) = (NumberMap::default(), std::collections::BTreeMap::new());
        for round in 0..10_000 {
            let (key, value) = (random.u64(0..50), random.u32(..));
            match random.u32(0..100) {
                0 => {
                    map.clear();
                    wanted.clear();
                }
                1 => {
                    map.retain(|key, value| key % 2 == 0 || *value % 2 == 0);
                    wanted.retain(|key, value| key % 2 == 0 || *value % 2 == 0);
                }
                2..30 => assert_eq!(map.remove(key), wanted.remove(&key), "seed {seed}"),
                30..60 => {
                    map.insert(key, value);
                    wanted.insert(key, value);
                }
                _ => {
                    let found = *map.get_or_insert_with(key, || value);
                    assert_eq!(found, *wanted.entry(key).or_insert(value), "seed {seed}");
                }
            }
            let mut all: Vec<_> = map.iter().map(|(key, value)| (key, *value)).collect();
            all.sort_unstable();
            assert!(
                all.into_iter().eq(wanted.iter().map(|(k, v)| (*k, *v))),
                "seed {seed}, round {round}"
            );
            assert_eq!(map.get(key), wanted.get(&key), "seed {seed}, round {round}");
        }
    }
}
