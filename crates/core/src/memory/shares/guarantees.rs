//! What shares are guaranteed, and what those within a job keep when the job has less.

use super::super::share::{Amount, MadeBy, ShareId};
use super::Shares;

impl Shares {
    /// What a share is guaranteed. Nothing, if it has ended.
    pub(crate) fn guaranteed_bytes(&self, share: ShareId) -> u64 {
        (self.entries.get(share)).map_or(0, |entry| entry.guaranteed_bytes)
    }

    /// What a share is guaranteed and does not guarantee to shares within it.
    pub(crate) fn unpromised_within(&self, share: ShareId) -> u64 {
        (self.guaranteed_bytes(share)).saturating_sub(self.guaranteed_within(share, None))
    }

    /// The sum of the guarantees of shares that are in no other.
    pub(crate) fn promised_bytes(&self) -> u64 {
        self.guaranteed_within(ShareId::MAIN, None)
    }

    /// The sum of the guarantees directly within a share, but for one.
    pub(super) fn guaranteed_within(&self, around: ShareId, but: Option<ShareId>) -> u64 {
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

    /// Gives the shares within jobs what they are guaranteed, after amounts changed.
    pub(super) fn fit_within_jobs(&mut self) {
        let jobs = self.entries.iter();
        let jobs = jobs.filter(|(_, entry)| entry.made_by == MadeBy::Jobs);
        let jobs: Vec<ShareId> = jobs.map(|(id, _)| id).collect();
        jobs.into_iter().for_each(|id| self.fit_within(id));
    }

    /// Guarantees within a share are what was asked for or, if the share has less, what the older
    /// ones leave. A job has less while jobs of a higher priority run.
    fn fit_within(&mut self, around: ShareId) {
        let mut left_bytes = self.guaranteed_bytes(around);
        let within = self.entries.iter();
        let within = within.filter(|(_, entry)| entry.around == around && !entry.is_closed);
        let within: Vec<ShareId> = within.map(|(id, _)| id).collect();
        for id in within {
            if let Some(entry) = self.entries.get_mut(id) {
                entry.guaranteed_bytes = entry.wanted_bytes.min(left_bytes);
                left_bytes -= entry.guaranteed_bytes;
            }
            self.fit_within(id);
        }
    }
}
