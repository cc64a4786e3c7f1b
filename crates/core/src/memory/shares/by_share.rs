//! A list with one entry a share, in the order of the shares' numbers. Each share comes after the
//! share around it, because it is younger.

use super::super::share::ShareId;

/// What is known of each share. There are few shares, so a list is faster than a hash table.
#[derive(Clone, Debug)]
pub(super) struct ByShare<T>(Vec<(ShareId, T)>);

impl<T> Default for ByShare<T> {
    fn default() -> Self {
        ByShare(Vec::new())
    }
}

impl<T> ByShare<T> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The index of a share in the order.
    #[inline]
    pub(super) fn place(&self, share: ShareId) -> Option<usize> {
        let number = |(id, _): &(ShareId, T)| id.0;
        self.0.binary_search_by_key(&share.0, number).ok()
    }

    /// The youngest share, and its entry.
    #[inline]
    pub(super) fn youngest(&self) -> Option<(ShareId, &T)> {
        self.0.last().map(|(id, entry)| (*id, entry))
    }

    #[inline]
    pub(super) fn youngest_mut(&mut self) -> Option<(ShareId, &mut T)> {
        self.0.last_mut().map(|(id, entry)| (*id, entry))
    }

    pub(super) fn get(&self, share: ShareId) -> Option<&T> {
        Some(&self.0[self.place(share)?].1)
    }

    pub(super) fn get_mut(&mut self, share: ShareId) -> Option<&mut T> {
        let place = self.place(share)?;
        Some(&mut self.0[place].1)
    }

    /// Adds the entry of the youngest share.
    pub(super) fn push(&mut self, share: ShareId, entry: T) {
        debug_assert!(self.0.last().is_none_or(|(last, _)| last.0 < share.0));
        self.0.push((share, entry));
    }

    pub(super) fn remove(&mut self, share: ShareId) -> Option<T> {
        let place = self.place(share)?;
        Some(self.0.remove(place).1)
    }

    pub(super) fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = (ShareId, &T)> + ExactSizeIterator {
        self.0.iter().map(|(id, entry)| (*id, entry))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, entry)| entry)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|(_, entry)| entry)
    }
}

impl<T> FromIterator<(ShareId, T)> for ByShare<T> {
    /// The entries must come in the order of their numbers.
    fn from_iter<I: IntoIterator<Item = (ShareId, T)>>(entries: I) -> Self {
        ByShare(entries.into_iter().collect())
    }
}
