//! Sorting by numbers, with the allocator's sort.

use lapidary_alloc::order;

/// Sorts the smallest key first. Items with equal keys keep their order.
pub(crate) fn smallest_first<T>(items: &mut [T], mut key: impl FnMut(&T) -> (u64, u64)) {
    order::smallest_first(items, |item| {
        let (first, second) = key(item);
        (first, second, 0)
    });
}

/// Sorts the largest key first. Items with equal keys keep their order.
pub(crate) fn largest_first<T>(items: &mut [T], mut key: impl FnMut(&T) -> (u64, u64)) {
    smallest_first(items, |item| {
        let (first, second) = key(item);
        (u64::MAX - first, u64::MAX - second)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_counts_then_the_second_then_the_place() {
        let mut words = ["bb", "a", "cc", "b", "aa"];
        let key = |word: &&str| (word.len() as u64, u64::from(word.as_bytes()[0] == b'a'));
        smallest_first(&mut words, key);
        assert_eq!(words, ["b", "a", "bb", "cc", "aa"]);
        largest_first(&mut words, key);
        assert_eq!(words, ["aa", "bb", "cc", "a", "b"]);
    }
}
