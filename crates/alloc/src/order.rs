//! Sorting by numbers. A sort is about 5 KB of code for each type of element and of key, so all
//! types share one. `lapidary-core` uses it too.

use alloc::vec::Vec;

/// What items are sorted by: the first number counts, then the second, then the third.
pub type Key = (u64, u64, u64);

/// The memory that sorting takes, for reuse.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sorter(Vec<(Key, usize)>);

impl Sorter {
    /// Sorts the smallest key first. Items with equal keys keep their order.
    pub(crate) fn smallest_first<T>(&mut self, items: &mut [T], key: impl FnMut(&T) -> Key) {
        self.0.clear();
        self.0.extend(items.iter().map(key).zip(0..));
        sort(&mut self.0);
        for (to, (_, from)) in self.0.iter().enumerate() {
            items.swap(to, *from);
        }
    }
}

/// Sorts the smallest key first. Items with equal keys keep their order.
pub fn smallest_first<T>(items: &mut [T], key: impl FnMut(&T) -> Key) {
    Sorter::default().smallest_first(items, key);
}

/// Sorts the places of items by their keys: with which place each is to be swapped, one after the
/// other.
#[inline(never)]
fn sort(places: &mut [(Key, usize)]) {
    places.sort_unstable();
    for to in 0..places.len() {
        let mut from = places[to].1;
        // An earlier swap has taken this item away, to the place from where another one came.
        while from < to {
            from = places[from].1;
        }
        places[to].1 = from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_counts_then_the_others_then_the_place() {
        let mut random = fastrand::Rng::with_seed(1);
        for len in 0..60 {
            let number = || (random.u64(0..3), random.u64(0..3), random.u64(0..3));
            let keys: Vec<Key> = core::iter::repeat_with(number).take(len).collect();
            let mut items: Vec<(Key, usize)> = keys.into_iter().zip(0..).collect();
            let mut wanted = items.clone();
            wanted.sort_by_key(|(key, _)| *key);
            smallest_first(&mut items, |(key, _)| *key);
            assert_eq!(items, wanted);
        }
    }
}
