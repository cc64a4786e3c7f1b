//! The shares of a device: who may hold how much, who holds it, and who gives it back.
//!
//! ```text
//!   device ─┬─ what is in no share
//!           ├─ share "app" ─┬─ its own tensors
//!           │               └─ share "app/user"
//!           └─ share "job"
//! ```
//!
//! A share's *tree* is the share with all shares within it. Guarantee and ceiling concern the tree.
//! *Borrowed* bytes are those that a tree holds beyond its guarantee. A [`claim`] says from whom a
//! share that needs room may take it. [`promises`] says whether all guarantees could be kept.
//!
//! The device itself has no entry. Bytes that no share holds are in no share.

mod around;
mod by_share;
mod claim;
mod paths;
mod promises;
#[cfg(feature = "metrics")]
pub(crate) mod series;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::dead::DeadList;
use super::share::{Amount, MadeBy, ShareHandle, ShareId, ShareOptions};
use super::victims::Clock;
use crate::error::Result;
use crate::shortage::ShareUse;
use crate::units::{Bytes, Level};
use by_share::ByShare;
pub(crate) use claim::{Claim, Whom};
pub(crate) use paths::SharePaths;
pub(crate) use promises::Unmet;
pub(super) use promises::pinned_bytes;

/// A share that has run nothing for this many commands does not compete for borrowed memory.
const IDLE_COMMANDS: Clock = 4096;

/// One share in the table.
#[derive(Clone, Debug)]
struct Entry {
    path: Arc<str>,
    around: ShareId,
    /// What the app asked for; the amounts below follow from it.
    said: ShareOptions,
    /// Who made it. Within a job, guarantees may be less than what was asked for.
    made_by: MadeBy,
    /// The guarantee that was asked for.
    wanted_bytes: u64,
    guaranteed_bytes: u64,
    ceiling_bytes: u64,
    own_bytes: u64,
    tree_bytes: Level,
    counts: Counts,
    /// When a command of the tree ran last, unless that was the newest of all.
    used_at: Clock,
    priority: i8,
    is_closed: bool,
}

/// What only rises: how often tensors of a share were evicted and restored, and the requests that
/// found no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) evictions: u64,
    pub(crate) restores: u64,
    pub(crate) refusals: u64,
}

/// The memory that shares divide: a share's amount may be a part of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole {
    /// The most bytes of all slabs; `u64::MAX` for no limit.
    pub(crate) limit_bytes: u64,
    /// The memory of the device, if the system tells.
    pub(crate) device_bytes: Option<u64>,
}

/// The table of all shares of one device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    entries: ByShare<Entry>,
    /// The number of the last share; numbers never repeat.
    last: u32,
    pub(crate) running: ShareId,
    pub(crate) lending: Option<Lending>,
    /// A promise copies this table, and not the labels.
    #[cfg(feature = "metrics")]
    series: Arc<series::Series>,
}

/// The memory that may be lent. Its owner may want it back at any time, so the host, stores or disk
/// need room for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lending {
    /// The most bytes of all slabs.
    pub(crate) limit_bytes: u64,
    /// The room for evicted bytes, in the host's memory, in stores and on disk.
    pub(crate) room_bytes: u64,
}

/// Why a share may not take a block that is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hindrance {
    /// The share that must give up bytes first, or one within it.
    pub(crate) share: ShareId,
    /// How many bytes.
    pub(crate) excess_bytes: u64,
    /// The bytes that are wanted.
    pub(crate) wanted_bytes: u64,
    /// The limit that it would exceed.
    pub(crate) limit_bytes: u64,
    /// Whether that is a ceiling, which holds whatever others do.
    pub(crate) is_ceiling: bool,
}

impl Shares {
    /// Is there no share?
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a share with a path and the number of that.
    ///
    /// # Errors
    /// `Share` for amounts that contradict each other or what surrounds the share, and if no number
    /// is left.
    pub(super) fn add(
        &mut self,
        path: (Arc<str>, u32),
        said: ShareOptions,
        around: Option<&Arc<ShareHandle>>,
        made_by: MadeBy,
        whole: Whole,
        dead: &Arc<DeadList>,
    ) -> Result<Arc<ShareHandle>> {
        let around_id = around.map_or(ShareId::MAIN, |around| around.id());
        let id = ShareId::after(self.last, &path.0)?;
        let handle = ShareHandle::new(id, path, said.priority, around.cloned(), dead.clone());
        let (guaranteed_bytes, ceiling_bytes) =
            self.amounts(&handle, said, around_id, None, whole)?;
        self.last = id.0;
        let entry = Entry {
            path: handle.path().clone(),
            around: around_id,
            said,
            made_by,
            wanted_bytes: guaranteed_bytes,
            guaranteed_bytes,
            ceiling_bytes,
            own_bytes: 0,
            tree_bytes: Level::default(),
            counts: Counts::default(),
            used_at: 0,
            priority: handle.priority(),
            is_closed: false,
        };
        self.entries.push(id, entry);
        Ok(handle)
    }

    /// Changes the amounts of a share, and those within it that are parts of its ceiling. If it
    /// fails, nothing has changed. A closed share stays guaranteed nothing. Returns the ceiling.
    pub(crate) fn resize(
        &mut self,
        share: &ShareHandle,
        said: ShareOptions,
        whole: Whole,
    ) -> Result<u64> {
        share.check_open()?;
        let Some(entry) = self.entries.get(share.id()) else {
            return Ok(u64::MAX);
        };
        let around = entry.around;
        let (guaranteed_bytes, ceiling_bytes) =
            self.amounts(share, said, around, Some(share.id()), whole)?;
        let within_bytes = self.guaranteed_within(share.id(), None);
        if guaranteed_bytes < within_bytes {
            let reason = short_guarantee(guaranteed_bytes, within_bytes) + ": lower theirs first";
            return Err(share.error(reason));
        }
        let mut then = self.clone();
        if let Some(entry) = then.entries.get_mut(share.id()) {
            entry.said = said;
            (entry.wanted_bytes, entry.guaranteed_bytes) = (guaranteed_bytes, guaranteed_bytes);
            entry.ceiling_bytes = ceiling_bytes;
            entry.priority = said.priority.unwrap_or(entry.priority);
        }
        then.follow(whole);
        let is_new = self.contradiction().is_none();
        match then.contradiction().filter(|_| is_new) {
            Some((path, reason)) => Err(share.error(format!("of `{path}`, {reason}"))),
            None => {
                *self = then;
                Ok(ceiling_bytes)
            }
        }
    }

    /// Takes a change back. Numbers that were given meanwhile stay given.
    pub(super) fn restore(&mut self, before: Shares) {
        (self.entries, self.lending) = (before.entries, before.lending);
    }

    /// The guarantee and the ceiling in bytes. `but`: this share counts with its new amounts.
    fn amounts(
        &self,
        share: &ShareHandle,
        said: ShareOptions,
        around: ShareId,
        but: Option<ShareId>,
        whole: Whole,
    ) -> Result<(u64, u64)> {
        let around_bytes = self.ceiling_of(around, whole.limit_bytes);
        let resolve = |amount: Amount| {
            if let Amount::OfBudget(percent @ 101..) | Amount::OfDevice(percent @ 101..) = amount {
                let reason = format!("{percent} percent is more than there is: give at most 100");
                return Err(share.error(reason));
            }
            amount
                .resolve(around_bytes, whole.device_bytes)
                .ok_or_else(|| {
                    let of = match amount {
                        Amount::OfDevice(_) => {
                            "the device's memory, which the system does not tell"
                        }
                        _ => "the budget, and the device has none",
                    };
                    share.error(format!("an amount is a part of {of}: give bytes"))
                })
        };
        let guaranteed_bytes = resolve(said.guaranteed)?;
        let ceiling_bytes = said.ceiling.map_or(Ok(u64::MAX), resolve)?;
        if let Some(reason) = wrong_ceiling(guaranteed_bytes, ceiling_bytes) {
            return Err(share.error(reason));
        }
        let (most_bytes, promised_bytes) = self.most_and_promised(around, but, whole);
        let left_bytes = most_bytes.saturating_sub(promised_bytes);
        if guaranteed_bytes > left_bytes {
            let of = match around {
                ShareId::MAIN => "the budget without staging",
                _ => "the guarantee of the share around it",
            };
            return Err(share.error(format!(
                "a guarantee of {} is more than what is left: {of} is {}, of which {} are \
                 guaranteed to others",
                Bytes(guaranteed_bytes),
                Bytes(most_bytes),
                Bytes(promised_bytes),
            )));
        }
        Ok((guaranteed_bytes, ceiling_bytes))
    }

    /// Does any amount follow the budget or the device's memory?
    pub(crate) fn has_parts(&self) -> bool {
        let is_part = |amount: Amount| !matches!(amount, Amount::Bytes(_));
        let mut said = self.entries.values().map(|entry| entry.said);
        said.any(|said| is_part(said.guaranteed) || said.ceiling.is_some_and(is_part))
    }

    /// Computes the bytes of all amounts again, after the budget changed. Amounts that were
    /// possible before stay as they are; only parts of the budget follow it.
    pub(crate) fn follow(&mut self, whole: Whole) {
        for id in self.outside_in(|_| true) {
            let (said, around) = match self.entries.get(id) {
                Some(entry) => (entry.said, entry.around),
                None => continue,
            };
            let around_bytes = self.ceiling_of(around, whole.limit_bytes);
            let resolve = |amount: Amount| amount.resolve(around_bytes, whole.device_bytes);
            let (guaranteed, ceiling) = (resolve(said.guaranteed), said.ceiling.and_then(resolve));
            if let Some(entry) = self.entries.get_mut(id).filter(|entry| !entry.is_closed) {
                entry.wanted_bytes = guaranteed.unwrap_or(entry.wanted_bytes);
                entry.guaranteed_bytes = entry.wanted_bytes;
                entry.ceiling_bytes = ceiling.unwrap_or(entry.ceiling_bytes);
            }
        }
        for id in self.outside_in(|entry| entry.made_by == MadeBy::Jobs) {
            self.fit_within(id);
        }
    }

    /// Closes a share: it is guaranteed nothing from now on.
    pub(crate) fn close(&mut self, share: &ShareHandle) {
        let mut gone = vec![share.id()];
        while let Some(id) = gone.pop() {
            if let Some(entry) = self.entries.get_mut(id) {
                (entry.wanted_bytes, entry.guaranteed_bytes) = (0, 0);
                entry.is_closed = true;
            }
            gone.extend(self.outside_in(|entry| entry.around == id));
        }
    }

    /// The last holder of a share is gone.
    pub(super) fn forget(&mut self, id: ShareId) {
        #[cfg(feature = "metrics")]
        series::keep_counts(self, id);
        if let Some(entry) = self.entries.remove(id) {
            debug_assert_eq!(entry.own_bytes, 0, "a share ended that held memory");
            if self.running == id {
                // Its commands count for the shares around it.
                self.running = entry.around;
            }
        }
    }

    /// The highest priority of all shares and of the device.
    pub(crate) fn highest_priority(&self) -> i8 {
        let priorities = self.entries.values().map(|entry| entry.priority);
        priorities.fold(0, i8::max)
    }

    /// The lowest priority of all shares and of the device.
    pub(crate) fn lowest_priority(&self) -> i8 {
        let priorities = self.entries.values().map(|entry| entry.priority);
        priorities.fold(0, i8::min)
    }

    /// The priority of a share.
    pub(crate) fn priority_of(&self, share: ShareId) -> i8 {
        self.entries.get(share).map_or(0, |entry| entry.priority)
    }

    /// Is there a share with another priority than the device?
    pub(crate) fn has_priorities(&self) -> bool {
        self.entries.values().any(|entry| entry.priority != 0)
    }

    /// What a share with those within it holds on the device.
    pub(crate) fn held_bytes(&self, share: ShareId) -> u64 {
        (self.entries.get(share)).map_or(0, |entry| entry.tree_bytes.now)
    }

    /// The table, if the device had these limits.
    pub(crate) fn after(&self, whole: Whole) -> Shares {
        let mut then = self.clone();
        then.follow(whole);
        then
    }

    /// The shares that `is_it` names, each after the share around it.
    fn outside_in(&self, is_it: impl Fn(&Entry) -> bool) -> Vec<ShareId> {
        let named = self.entries.iter().filter(|(_, entry)| is_it(entry));
        named.map(|(id, _)| id).collect()
    }

    /// A share's tensor has got a block of this many bytes.
    #[inline]
    pub(super) fn gained(&mut self, share: ShareId, granted_bytes: u64, is_back: bool) {
        self.each_around(share, |entry, is_own| {
            entry.tree_bytes.raise(granted_bytes);
            if is_own {
                entry.own_bytes += granted_bytes;
                entry.counts.restores += u64::from(is_back);
            }
        });
    }

    /// A share's tensor has lost its block.
    #[inline]
    pub(super) fn lost(&mut self, share: ShareId, granted_bytes: u64, is_evicted: bool) {
        self.each_around(share, |entry, is_own| {
            entry.tree_bytes.lower(granted_bytes);
            if is_own {
                entry.own_bytes = entry.own_bytes.saturating_sub(granted_bytes);
                entry.counts.evictions += u64::from(is_evicted);
            }
        });
    }

    /// The device was lost, with everything on it.
    pub(super) fn all_lost(&mut self) {
        for entry in self.entries.values_mut() {
            entry.own_bytes = 0;
            entry.tree_bytes.set(0);
        }
    }

    pub(super) fn reset_peaks(&mut self) {
        for entry in self.entries.values_mut() {
            entry.tree_bytes.reset_peak();
        }
    }

    /// A command of the share is being encoded. Notes when the share that ran so far was last used:
    /// once for many commands.
    pub(crate) fn runs(&mut self, share: ShareId, now: Clock) {
        let before = std::mem::replace(&mut self.running, share);
        if before != share {
            self.each_around(before, |entry, _| entry.used_at = now);
        }
    }

    /// Whether a share has run nothing for so long that it does not compete.
    fn is_idle(&self, share: ShareId, entry: &Entry, now: Clock) -> bool {
        now.wrapping_sub(entry.used_at) > IDLE_COMMANDS && !self.is_within(self.running, share)
    }

    /// Counts a request of the share that found no room.
    pub(crate) fn refused(&mut self, share: ShareId) {
        if let Some(entry) = self.entries.get_mut(share) {
            entry.counts.refusals += 1;
        }
    }

    /// What hinders a share from taking `more_bytes` of free memory: guarantees of others that
    /// could not be kept, or the innermost ceiling that they would exceed. `live_bytes` are those
    /// of all blocks. An eviction because of a ceiling takes room that loans may need, so loans
    /// come first.
    pub(super) fn hindrance(
        &self,
        share: ShareId,
        more_bytes: u64,
        live_bytes: u64,
    ) -> Option<Hindrance> {
        let unlent = self.unlent(share, more_bytes, live_bytes);
        unlent.or_else(|| self.over_ceiling(share, more_bytes))
    }

    /// The innermost ceiling that `more_bytes` more of a share would exceed.
    fn over_ceiling(&self, share: ShareId, more_bytes: u64) -> Option<Hindrance> {
        self.chain(share).find_map(|(share, entry)| {
            let excess_bytes = entry.excess_bytes(more_bytes);
            (excess_bytes > 0).then_some(Hindrance {
                share,
                excess_bytes,
                wanted_bytes: more_bytes,
                limit_bytes: entry.ceiling_bytes,
                is_ceiling: true,
            })
        })
    }

    /// The ceilings of a share and of those around it.
    pub(crate) fn ceilings(&self, share: ShareId) -> impl Iterator<Item = (ShareId, u64)> {
        let all = self.chain(share);
        let all = all.map(|(share, entry)| (share, entry.ceiling_bytes));
        all.filter(|(_, ceiling_bytes)| *ceiling_bytes < u64::MAX)
    }

    /// The bytes of a share, and the most that they may be: its lowest ceiling or, where nothing
    /// around it has a limit, its guarantee.
    pub(crate) fn level_and_limit(&self, share: ShareId, limit_bytes: u64) -> (u64, u64) {
        let Some(entry) = self.entries.get(share) else {
            return (0, u64::MAX);
        };
        let most_bytes = match self.ceiling_of(share, limit_bytes) {
            u64::MAX if entry.guaranteed_bytes > 0 => entry.guaranteed_bytes,
            most_bytes => most_bytes,
        };
        (entry.tree_bytes.now, most_bytes)
    }

    /// The shares that hold more than their ceiling, because it was lowered.
    pub(crate) fn above_ceiling(&self) -> Vec<(ShareId, u64)> {
        let entries = self.entries.iter();
        let above = entries.filter_map(|(id, entry)| {
            let excess_bytes = entry.excess_bytes(0);
            (excess_bytes > 0).then_some((id, excess_bytes))
        });
        above.collect()
    }

    /// What the shares hold, by their paths.
    pub(crate) fn uses(&self) -> Vec<ShareUse> {
        // A sort by paths would be 9 KB of code.
        let mut uses: Vec<ShareUse> = Vec::with_capacity(self.entries.len());
        for entry in self.entries.values() {
            let place = uses.partition_point(|other| *other.path < *entry.path);
            uses.insert(place, entry.share_use());
        }
        uses
    }

    /// What one share holds.
    pub(crate) fn use_of(&self, share: ShareId) -> Option<ShareUse> {
        self.entries.get(share).map(Entry::share_use)
    }
}

/// Why no share can have this ceiling with this guarantee.
fn wrong_ceiling(guaranteed_bytes: u64, ceiling_bytes: u64) -> Option<String> {
    if guaranteed_bytes > ceiling_bytes {
        let (guaranteed, ceiling) = (Bytes(guaranteed_bytes), Bytes(ceiling_bytes));
        return Some(format!(
            "a ceiling of {ceiling} is below the guarantee of {guaranteed}"
        ));
    }
    (ceiling_bytes == 0).then(|| "a ceiling of 0 bytes leaves no room for any tensor".into())
}

/// What is wrong with a guarantee that is less than those within the share.
fn short_guarantee(guaranteed_bytes: u64, within_bytes: u64) -> String {
    format!(
        "a guarantee of {} is less than the {} that it guarantees to shares within it",
        Bytes(guaranteed_bytes),
        Bytes(within_bytes),
    )
}

impl Entry {
    /// Why the amounts contradict each other or what is guaranteed within the share.
    fn contradiction(&self, within_bytes: u64) -> Option<String> {
        let wrong = wrong_ceiling(self.guaranteed_bytes, self.ceiling_bytes);
        let is_short = self.guaranteed_bytes < within_bytes && !self.is_closed;
        wrong.or_else(|| is_short.then(|| short_guarantee(self.guaranteed_bytes, within_bytes)))
    }

    fn share_use(&self) -> ShareUse {
        ShareUse {
            path: self.path.to_string(),
            guaranteed_bytes: self.guaranteed_bytes,
            ceiling_bytes: (self.ceiling_bytes != u64::MAX).then_some(self.ceiling_bytes),
            bytes: self.tree_bytes,
            own_bytes: self.own_bytes,
            evictions: self.counts.evictions,
            restores: self.counts.restores,
            priority: self.priority,
            refusals: self.counts.refusals,
            is_closed: self.is_closed,
        }
    }
}
