//! A share and those around it: its limits, and to whom it belongs.

use super::super::share::ShareId;
use super::{Entry, Shares};

impl Entry {
    /// The bytes by which the tree would exceed its ceiling with `more_bytes` more.
    #[inline]
    pub(super) fn excess_bytes(&self, more_bytes: u64) -> u64 {
        let after_bytes = self.tree_bytes.now.saturating_add(more_bytes);
        after_bytes.saturating_sub(self.ceiling_bytes)
    }
}

impl Shares {
    /// The lowest ceiling of a share and those around it.
    pub(crate) fn ceiling_of(&self, share: ShareId, limit_bytes: u64) -> u64 {
        let ceilings = self.chain(share).map(|(_, entry)| entry.ceiling_bytes);
        ceilings.fold(limit_bytes, u64::min)
    }

    /// A share and those around it, from the inside out.
    pub(super) fn chain(&self, share: ShareId) -> impl Iterator<Item = (ShareId, &Entry)> {
        let entry = |id: ShareId| self.entries.get(id).map(|entry| (id, entry));
        std::iter::successors(entry(share), move |(_, inner)| entry(inner.around))
    }

    /// Whether a share is another one, or within it.
    pub(crate) fn is_within(&self, share: ShareId, around: ShareId) -> bool {
        self.chain(share).any(|(id, _)| id == around)
    }

    /// Visits a share and those around it, from the inside out. `visit` also learns whether the
    /// entry is that of the share itself.
    #[inline]
    pub(super) fn each_around(&mut self, share: ShareId, mut visit: impl FnMut(&mut Entry, bool)) {
        // Mostly there is one share, or the youngest works, and none is around it.
        match self.entries.youngest_mut() {
            Some((youngest, entry)) if youngest == share && entry.around == ShareId::MAIN => {
                visit(entry, true);
            }
            _ => self.each_of_several(share, &mut visit),
        }
    }

    #[inline(never)]
    fn each_of_several(&mut self, share: ShareId, visit: &mut dyn FnMut(&mut Entry, bool)) {
        let mut at = share;
        while at != ShareId::MAIN {
            let Some(entry) = self.entries.get_mut(at) else {
                return;
            };
            visit(entry, at == share);
            at = entry.around;
        }
    }

    /// Whether nothing can hinder a share from taking more bytes: no ceiling is near, and nobody
    /// is guaranteed anything that would have to be lent.
    #[inline]
    pub(in super::super) fn is_free(&self, share: ShareId, more_bytes: u64) -> bool {
        let has_room = |(_, entry): (ShareId, &Entry)| entry.excess_bytes(more_bytes) == 0;
        self.lending.is_none()
            && match self.entries.youngest() {
                Some((youngest, entry)) if youngest == share && entry.around == ShareId::MAIN => {
                    has_room((share, entry))
                }
                _ => self.chain(share).all(has_room),
            }
    }
}
