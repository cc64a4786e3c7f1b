//! Promises: what shares are guaranteed, and whether all guarantees could be kept at once. A
//! promise is a guarantee that was given.
//!
//! An owner may want its guarantee at any time, whatever others hold then. In the worst case all
//! owners want theirs at once, and everybody keeps what they hold as far as there is room. The
//! rest has to leave. So two things may break a promise: bytes that have to leave and find no
//! place elsewhere, and pinned bytes, which cannot leave.

use super::super::share::{Amount, MadeBy, ShareId};
use super::super::slabs::Slabs;
use super::super::slots::Slots;
use super::{Entry, Hindrance, Lending, Shares, Whole};
use crate::number_map::NumberMap;

/// The guaranteed bytes that their owners would not get, if all wanted theirs now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unmet {
    /// As others hold them and have no other place for them.
    pub(crate) stuck_bytes: u64,
    /// As others have pinned them.
    pub(crate) pinned_bytes: u64,
    /// As other guarantees leave less than the one that is wanted.
    pub(crate) missing_bytes: u64,
}

impl Unmet {
    /// Whether more is unmet than before.
    pub(crate) fn exceeds(self, before: Unmet) -> bool {
        self.stuck_bytes > before.stuck_bytes || self.pinned_bytes > before.pinned_bytes
    }
}

/// Pinned bytes by the numbers of shares.
pub(crate) type PinnedBytes = NumberMap<u64>;

/// Whether owners fill their guarantees in the worst case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owners {
    Fill,
    Rest,
}

impl Shares {
    /// What a share is guaranteed. Nothing, if it has ended.
    pub(crate) fn guaranteed_bytes(&self, share: ShareId) -> u64 {
        (self.entries.get(share)).map_or(0, |entry| entry.guaranteed_bytes)
    }

    /// How much a new guarantee within a share exceeds what the others there leave.
    pub(crate) fn missing_bytes(
        &self,
        around: ShareId,
        guaranteed_bytes: u64,
        whole: Whole,
    ) -> u64 {
        let (most_bytes, promised_bytes) = self.most_and_promised(around, None, whole);
        guaranteed_bytes.saturating_sub(most_bytes.saturating_sub(promised_bytes))
    }

    /// What may be guaranteed within a share or on the device, and what is, but for one share.
    pub(super) fn most_and_promised(
        &self,
        around: ShareId,
        but: Option<ShareId>,
        whole: Whole,
    ) -> (u64, u64) {
        let most_bytes = match self.entries.get(around) {
            Some(around) => around.guaranteed_bytes,
            None => whole.limit_bytes,
        };
        (most_bytes, self.guaranteed_within(around, but))
    }

    /// The sum of the guarantees of shares that are in no other.
    pub(crate) fn promised_bytes(&self) -> u64 {
        self.guaranteed_within(ShareId::MAIN, None)
    }

    /// The sum of the guarantees directly within a share, but for one.
    pub(crate) fn guaranteed_within(&self, around: ShareId, but: Option<ShareId>) -> u64 {
        let within = self.entries.iter();
        let within =
            within.filter(|(id, entry)| entry.around == around && but.is_none_or(|but| but != *id));
        within.fold(0, |sum, (_, entry)| {
            u64::saturating_add(sum, entry.guaranteed_bytes)
        })
    }

    /// Changes the guarantee of a job. The caller keeps the sum of all within what there is.
    pub(crate) fn set_guarantee(&mut self, id: ShareId, bytes: u64) {
        if let Some(entry) = self.entries.get_mut(id).filter(|entry| !entry.is_closed) {
            entry.said.guaranteed = Amount::Bytes(bytes);
            (entry.wanted_bytes, entry.guaranteed_bytes) = (bytes, bytes);
            self.fit_within(id);
        }
    }

    /// By how much the guarantee of a job is less than its peak, which is its ceiling. 0 for other
    /// shares.
    pub(crate) fn lowered_bytes(&self, id: ShareId) -> u64 {
        let job = self
            .entries
            .get(id)
            .filter(|entry| entry.made_by == MadeBy::Jobs && !entry.is_closed);
        job.map_or(0, |job| {
            job.ceiling_bytes.saturating_sub(job.guaranteed_bytes)
        })
    }

    /// Guarantees within a share are what was asked for or, if the share has less, what the older
    /// ones leave. A job has less while jobs of a higher priority run.
    pub(super) fn fit_within(&mut self, around: ShareId) {
        let mut left_bytes = self.guaranteed_bytes(around);
        for id in self.outside_in(|entry| entry.around == around && !entry.is_closed) {
            if let Some(entry) = self.entries.get_mut(id) {
                entry.guaranteed_bytes = entry.wanted_bytes.min(left_bytes);
                left_bytes -= entry.guaranteed_bytes;
            }
            self.fit_within(id);
        }
    }

    /// The bytes that have to leave, if all slabs hold at most `limit_bytes`. `own_bytes` says what
    /// a share holds in no share within it; `main_bytes` are in no share at all.
    fn leaving_bytes(
        &self,
        limit_bytes: u64,
        owners: Owners,
        main_bytes: u64,
        own_bytes: impl Fn(ShareId, &Entry) -> u64,
    ) -> u64 {
        let mut within_bytes = vec![0_u64; self.entries.len()];
        let (mut all_bytes, mut leaving_bytes) = (main_bytes, 0_u64);
        // A share stands behind the share around it, so this goes from the inside out.
        for (at, (id, entry)) in self.entries.iter().enumerate().rev() {
            let held_bytes = own_bytes(id, entry).saturating_add(within_bytes[at]);
            let wanted_bytes = match owners {
                Owners::Fill => held_bytes.max(entry.guaranteed_bytes),
                Owners::Rest => held_bytes,
            };
            let kept_bytes = wanted_bytes.min(entry.ceiling_bytes);
            leaving_bytes = leaving_bytes.saturating_add(wanted_bytes - kept_bytes);
            let around_bytes = match self.entries.place(entry.around) {
                Some(around) => &mut within_bytes[around],
                None => &mut all_bytes,
            };
            *around_bytes = around_bytes.saturating_add(kept_bytes);
        }
        leaving_bytes.saturating_add(all_bytes.saturating_sub(limit_bytes))
    }

    /// As [`leaving_bytes`](Self::leaving_bytes) of all that is held, with `more_bytes` more in a
    /// share. `live_bytes` are those of all blocks.
    fn leaving_with(
        &self,
        lending: Lending,
        owners: Owners,
        live_bytes: u64,
        (share, more_bytes): (ShareId, u64),
    ) -> u64 {
        let in_shares = self.entries.values();
        let in_shares = in_shares.filter(|entry| entry.around == ShareId::MAIN);
        let in_shares_bytes: u64 = in_shares.map(|entry| entry.tree_bytes.now).sum();
        let more_of = |id: ShareId| match id == share {
            true => more_bytes,
            false => 0,
        };
        let main_bytes = live_bytes.saturating_sub(in_shares_bytes);
        let main_bytes = main_bytes.saturating_add(more_of(ShareId::MAIN));
        self.leaving_bytes(lending.limit_bytes, owners, main_bytes, |id, entry| {
            entry.own_bytes.saturating_add(more_of(id))
        })
    }

    /// What could not be kept now. `pinned` is asked only if somebody would have to leave.
    pub(in super::super) fn unmet(
        &self,
        lending: Lending,
        live_bytes: u64,
        pinned: impl FnOnce() -> PinnedBytes,
    ) -> Unmet {
        let nothing = (ShareId::MAIN, 0);
        let leaving = |owners| self.leaving_with(lending, owners, live_bytes, nothing);
        let leaving_bytes = leaving(Owners::Fill);
        if leaving_bytes == 0 {
            return Unmet::default();
        }
        let pinned = pinned();
        let pinned_of = |id: ShareId| pinned.get(&u64::from(id.0)).copied().unwrap_or(0);
        let pinned_leaving = |owners| {
            let main_bytes = pinned_of(ShareId::MAIN);
            self.leaving_bytes(lending.limit_bytes, owners, main_bytes, |id, _| {
                pinned_of(id)
            })
        };
        // Bytes beyond the limits count only if guarantees cause them.
        let gone_bytes = lending.room_bytes.max(leaving(Owners::Rest));
        Unmet {
            stuck_bytes: leaving_bytes.saturating_sub(gone_bytes),
            pinned_bytes: pinned_leaving(Owners::Fill).saturating_sub(pinned_leaving(Owners::Rest)),
            missing_bytes: 0,
        }
    }

    /// The hindrance if the bytes would have to be lent, and nobody could give them back.
    pub(super) fn unlent(
        &self,
        share: ShareId,
        more_bytes: u64,
        live_bytes: u64,
    ) -> Option<Hindrance> {
        let lending = self.lending?;
        let leaving =
            |owners, bytes| self.leaving_with(lending, owners, live_bytes, (share, bytes));
        let leaving_bytes = leaving(Owners::Fill, more_bytes);
        if leaving_bytes <= lending.room_bytes {
            return None;
        }
        // Evicted bytes need room elsewhere, too.
        let gone_bytes = (lending.room_bytes).max(leaving(Owners::Rest, more_bytes));
        let excess_bytes = leaving_bytes.saturating_sub(gone_bytes);
        // Within its guarantee, a share takes what counts for it already.
        let is_lent = leaving_bytes > leaving(Owners::Fill, 0);
        (excess_bytes > 0 && is_lent).then(|| Hindrance {
            share: self.chain(share).last().map_or(ShareId::MAIN, |(id, _)| id),
            excess_bytes,
            wanted_bytes: more_bytes,
            limit_bytes: lending.limit_bytes,
            is_ceiling: false,
        })
    }

    /// Why amounts contradict each other, as parts of a budget may when it changes. The path of a
    /// share, and the reason.
    pub(crate) fn contradiction(&self) -> Option<(&str, String)> {
        self.entries.iter().find_map(|(id, entry)| {
            let within_bytes = self.guaranteed_within(id, None);
            let reason = entry.contradiction(within_bytes)?;
            Some((&*entry.path, reason))
        })
    }
}

/// The pinned bytes of shares. A storage that is pinned only as often as `but` says does not count;
/// `but` has the numbers of pins by addresses. O(storages).
pub(in super::super) fn pinned_bytes(
    slots: &Slots,
    slabs: &Slabs,
    but: &NumberMap<u32>,
) -> PinnedBytes {
    let mut pinned = PinnedBytes::default();
    for (_, storage) in slots.pinned() {
        let pins_not_counted = but.get(&(storage.address() as u64)).copied().unwrap_or(0);
        if storage.pins() > pins_not_counted {
            let granted_bytes = slabs.granted_bytes(storage.size_bytes());
            *pinned.entry(storage.share().0.into()).or_default() += granted_bytes;
        }
    }
    pinned
}
