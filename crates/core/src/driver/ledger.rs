//! The account of a device's bytes: what they are spent on, and how many there may be.
//!
//! Staging has a part of the limit that slabs cannot take, since without staging nothing can be
//! evicted; and each kind of staging has a part of that, since an upload waits in its staging until
//! its turn comes, which may take that somebody is evicted or comes back.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::learned::LearnedLimit;
use super::{BufferId, BufferKind};
use crate::units::{Level, MIB};

/// Of a limit, one part in so many is kept for staging, ...
const STAGING_SHARE: u64 = 32;

/// ... but no more than this.
const STAGING_MOST_BYTES: u64 = 128 * MIB;

/// Staging needs so much to work at all, however low the limit is, ...
const STAGING_LEAST_BYTES: u64 = 16 << 10;

/// ... but never takes more than one part in so many.
const STAGING_MOST_SHARE: u64 = 4;

/// On what bytes are spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// Slabs.
    Slabs,
    /// Staging for what the app uploads.
    Uploads,
    /// Staging for what comes back.
    Restores,
    /// Buffers for reading back, also what is evicted.
    Readbacks,
}

/// Those that share what is kept for staging.
const STAGING: [Account; 3] = [Account::Uploads, Account::Restores, Account::Readbacks];

/// To get down to a lowered limit where slabs are all that there is takes a little above it: one
/// part in so many of the limit, at least and at most so many bytes.
const DRAINING_PART: u64 = 256;
const DRAINING_LEAST: u64 = 4 << 10;
const DRAINING_MOST: u64 = 4 << 20;

impl Account {
    /// What its buffers are for.
    pub(super) fn kind(self) -> BufferKind {
        match self {
            Account::Slabs => BufferKind::Slab,
            Account::Uploads | Account::Restores => BufferKind::Upload,
            Account::Readbacks => BufferKind::Readback,
        }
    }
}

/// What the device's bytes are spent on, and how many there may be.
#[derive(Debug)]
pub(crate) struct Ledger {
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    /// How often a device has been replaced. What was reserved before is nobody's.
    epoch: u64,
    owned: FxHashMap<BufferId, (Account, u64)>,
    retiring: Vec<(u64, Account, u64)>,
    retiring_bytes: Level,
    /// The last submission.
    last_serial: u64,
    /// By account, with what retires.
    taken_bytes: [Level; 4],
    /// All of them together.
    all_bytes: Level,
    /// What the driver holds, as it said when it was asked last.
    driver_bytes: Level,
    /// What the app and the system allow, and what of it the app keeps for staging, if it says so.
    said_bytes: u64,
    /// What of it lasts: the system may take more today than tomorrow.
    lasting_bytes: u64,
    said_staging_bytes: Option<u64>,
    /// How often that has become less than what was taken.
    times_lowered: u64,
    learned: LearnedLimit,
    /// The least of the limits.
    limit_bytes: u64,
    /// Of the limit, what slabs leave to staging.
    staging_floor_bytes: u64,
    /// Slabs must get down to what they may take, which takes read-backs: up to this level, which
    /// may be above the limit.
    draining_to_bytes: Option<u64>,
}

/// The levels of a [`Ledger`], in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Levels {
    /// Everything: slabs, staging, and what retires.
    pub(crate) reserved_bytes: Level,
    /// Of it, slabs, with those that retire.
    pub(crate) slab_bytes: Level,
    /// Of it, what uploads, restores and read-backs take.
    pub(crate) staging_bytes: [Level; 3],
    /// Of it, given back but still in use by the device.
    pub(crate) retiring_bytes: Level,
    /// What may not be passed; `u64::MAX` for no limit.
    pub limit_bytes: u64,
    /// What of the limit was said, and not learned from refusals.
    pub(crate) said_bytes: u64,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Ledger {
            books: Mutex::new(Books {
                said_bytes: u64::MAX,
                lasting_bytes: u64::MAX,
                limit_bytes: u64::MAX,
                ..Books::default()
            }),
        }
    }

    /// Nothing is created any more that would pass `limit_bytes`. Part of it is out of reach for
    /// slabs: so much, or what staging takes as a rule. What is there already stays.
    /// The limit may rise to `lasting_bytes` without anybody's doing.
    pub(crate) fn set_limit(
        &self,
        limit_bytes: u64,
        lasting_bytes: u64,
        staging_bytes: Option<u64>,
    ) {
        let mut books = self.lock();
        let is_same = books.said_bytes == limit_bytes && books.said_staging_bytes == staging_bytes;
        books.said_bytes = limit_bytes;
        books.lasting_bytes = lasting_bytes;
        books.said_staging_bytes = staging_bytes;
        books.update_limit();
        let is_passed = books.reserved_bytes() > books.limit_bytes || books.slab_excess_bytes() > 0;
        books.times_lowered += u64::from(is_passed && !is_same);
    }

    /// How often a limit was set that was passed by what there was.
    pub(crate) fn times_lowered(&self) -> u64 {
        self.lock().times_lowered
    }

    /// What was learned of the device's size stands in the way of a request: now and then the
    /// driver is to be asked all the same.
    pub(crate) fn hinders(&self) {
        let mut books = self.lock();
        if books.learned.hinders() {
            books.update_limit();
        }
    }

    /// Somebody polled: what was learned is not for ever.
    pub(crate) fn polled(&self) {
        let mut books = self.lock();
        books.learned.polled();
        books.update_limit();
    }

    /// Forgets what was learned of the device's size. Returns whether there was anything.
    pub(crate) fn forget_learned(&self) -> bool {
        let mut books = self.lock();
        let had = books.learned.forget();
        books.update_limit();
        had
    }

    /// From now on, or no longer: slabs get down to a limit that was lowered below them. Meanwhile
    /// reading back, without which nothing can be evicted, may take what is kept for it on top of
    /// what they still hold, as far as that is no more than there was to begin with, and a little.
    pub(crate) fn set_draining(&self, is_draining: bool) {
        let mut books = self.lock();
        let level_bytes = books.reserved_bytes().max(books.limit_bytes);
        let little_bytes = (books.limit_bytes / DRAINING_PART).clamp(DRAINING_LEAST, DRAINING_MOST);
        let most_bytes = level_bytes.saturating_add(little_bytes);
        books.draining_to_bytes = is_draining.then_some(most_bytes);
    }

    /// By how much slabs pass what they may take: above it a kind of staging lacks what is kept for
    /// it.
    pub(crate) fn slab_excess_bytes(&self) -> u64 {
        self.lock().slab_excess_bytes()
    }

    /// All levels at once.
    pub(crate) fn levels(&self) -> Levels {
        let books = self.lock();
        Levels {
            reserved_bytes: books.all_bytes,
            slab_bytes: books.taken_bytes[Account::Slabs as usize],
            staging_bytes: STAGING.map(|account| books.taken_bytes[account as usize]),
            retiring_bytes: books.retiring_bytes,
            limit_bytes: books.limit_bytes,
            said_bytes: books.said_bytes,
        }
    }

    /// All that slabs may ever take: what lasts of the limit, without what is kept for staging.
    pub(crate) fn slab_limit_bytes(&self) -> u64 {
        let books = self.lock();
        let floor_bytes = staging_floor_bytes(books.lasting_bytes, books.said_staging_bytes);
        books.lasting_bytes.saturating_sub(floor_bytes)
    }

    /// All that slabs may take while staging takes what it does.
    pub(crate) fn slab_limit_now_bytes(&self) -> u64 {
        let books = self.lock();
        match books.limit_bytes {
            u64::MAX => u64::MAX,
            limit_bytes => limit_bytes.saturating_sub(books.kept_bytes(None)),
        }
    }

    /// Would slabs have more room if staging took less? Not while it takes no more than is kept for
    /// it, unless it is the driver that has no more.
    pub(crate) fn staging_hinders(&self) -> bool {
        let books = self.lock();
        let is_beyond = books.kept_bytes(None) > books.staging_floor_bytes;
        let is_learned = books.limit_bytes < books.said_bytes;
        is_beyond || is_learned || books.limit_bytes == u64::MAX
    }

    /// What one kind of staging may take: its part of what is kept for staging, which nobody can
    /// take from it, or more while there is room that slabs have not taken.
    pub(crate) fn staging_share_bytes(&self, account: Account) -> u64 {
        let books = self.lock();
        match books.limit_bytes {
            u64::MAX => u64::MAX,
            _ => {
                let room_bytes = books.room_bytes(Account::Slabs);
                // However little refusals have taught that there is: who asks for no more is never
                // told otherwise.
                let least_bytes = STAGING_LEAST_BYTES.min(books.said_bytes / STAGING_MOST_SHARE);
                (books.part_bytes(account))
                    .max(room_bytes / 8)
                    .max(least_bytes / 4)
            }
        }
    }

    /// Starts the peak anew from the present.
    pub(crate) fn reset_peak(&self) {
        let mut books = self.lock();
        books.levels().for_each(Level::reset_peak);
    }

    /// How often the device has been replaced.
    pub(crate) fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// Forgets every buffer: the device they were on is gone.
    pub(crate) fn forget_all(&self) {
        let mut books = self.lock();
        books.epoch += 1;
        books.owned.clear();
        books.retiring.clear();
        books.levels().for_each(|level| level.set(0));
        books.learned.forget();
        books.update_limit();
    }

    /// Takes bytes, if there are as many, and says of which device, by its epoch.
    pub(super) fn reserve(&self, account: Account, size_bytes: u64) -> Option<u64> {
        let mut books = self.lock();
        if size_bytes > books.room_bytes(account) {
            return None;
        }
        books.taken_bytes[account as usize].raise(size_bytes);
        books.all_bytes.raise(size_bytes);
        Some(books.epoch)
    }

    /// Gives bytes back that nobody owns, and that were reserved in this epoch.
    pub(super) fn release(&self, account: Account, size_bytes: u64, epoch: u64) {
        let mut books = self.lock();
        // Else the device was replaced meanwhile, and all accounts with it.
        if books.epoch == epoch {
            books.give_back(account, size_bytes);
        }
    }

    /// The driver had no memory for so many bytes, which are still reserved.
    pub(super) fn refused(&self, size_bytes: u64) {
        let mut books = self.lock();
        let wanted_bytes = books.reserved_bytes();
        let held_bytes = wanted_bytes.saturating_sub(size_bytes);
        books.learned.refused(held_bytes, wanted_bytes);
        books.update_limit();
    }

    /// A buffer owns bytes that were reserved in this epoch. `false`, if that is over: nobody knows
    /// of which device the buffer is, and nothing is reserved for it.
    pub(super) fn created(
        &self,
        buffer: BufferId,
        account: Account,
        size_bytes: u64,
        epoch: u64,
    ) -> bool {
        let mut books = self.lock();
        if books.epoch != epoch {
            return false;
        }
        books.owned.insert(buffer, (account, size_bytes));
        let held_bytes = books.reserved_bytes();
        books.learned.had(held_bytes);
        books.update_limit();
        true
    }

    /// A buffer is destroyed; its bytes come back once submission `last_serial` is done.
    pub(super) fn destroyed(&self, buffer: BufferId, last_serial: u64, completed: u64) {
        let mut books = self.lock();
        let Some((account, size_bytes)) = books.owned.remove(&buffer) else {
            return;
        };
        if last_serial > completed {
            books.retiring_bytes.raise(size_bytes);
            books.retiring.push((last_serial, account, size_bytes));
        } else {
            books.give_back(account, size_bytes);
        }
    }

    /// The driver says that it holds so much.
    pub(super) fn driver_holds(&self, held_bytes: u64) -> Level {
        let mut books = self.lock();
        books.driver_bytes.set(held_bytes);
        books.driver_bytes
    }

    /// Work was submitted.
    pub(super) fn submitted(&self, serial: u64) {
        self.lock().last_serial = serial;
    }

    /// The last submission; 0 if there was none.
    pub(super) fn last_serial(&self) -> u64 {
        self.lock().last_serial
    }

    /// Submissions up to `completed` are done. Returns the bytes that this freed.
    pub(super) fn settle(&self, completed: u64) -> u64 {
        let mut guard = self.lock();
        let books = &mut *guard;
        let before_bytes = books.retiring_bytes.now;
        let mut retiring = std::mem::take(&mut books.retiring);
        retiring.retain(|&(serial, account, size_bytes)| {
            let over = serial <= completed;
            if over {
                books.retiring_bytes.lower(size_bytes);
                books.give_back(account, size_bytes);
            }
            !over
        });
        books.retiring = retiring;
        before_bytes - books.retiring_bytes.now
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn levels(&mut self) -> impl Iterator<Item = &mut Level> {
        let totals = [
            &mut self.all_bytes,
            &mut self.retiring_bytes,
            &mut self.driver_bytes,
        ];
        self.taken_bytes.iter_mut().chain(totals)
    }

    fn update_limit(&mut self) {
        self.limit_bytes = self.said_bytes.min(self.learned.limit_bytes());
        self.staging_floor_bytes = staging_floor_bytes(self.limit_bytes, self.said_staging_bytes);
    }

    fn give_back(&mut self, account: Account, size_bytes: u64) {
        let taken_bytes = &mut self.taken_bytes[account as usize];
        debug_assert!(
            taken_bytes.now >= size_bytes,
            "{account:?} gives back too much"
        );
        taken_bytes.lower(size_bytes);
        self.all_bytes.lower(size_bytes);
    }

    fn taken(&self, account: Account) -> u64 {
        self.taken_bytes[account as usize].now
    }

    fn reserved_bytes(&self) -> u64 {
        self.all_bytes.now
    }

    fn slab_excess_bytes(&self) -> u64 {
        let most_bytes = self.limit_bytes.saturating_sub(self.kept_bytes(None));
        self.taken(Account::Slabs).saturating_sub(most_bytes)
    }

    /// What of the part that is kept for staging is this account's.
    fn part_bytes(&self, account: Account) -> u64 {
        let floor_bytes = self.staging_floor_bytes;
        match account {
            Account::Slabs => 0,
            Account::Uploads | Account::Restores => floor_bytes / 4,
            Account::Readbacks => floor_bytes - 2 * (floor_bytes / 4),
        }
    }

    /// What staging takes or could, without one account of it.
    fn kept_bytes(&self, without: Option<Account>) -> u64 {
        let others = STAGING
            .into_iter()
            .filter(|account| Some(*account) != without);
        others
            .map(|account| self.taken(account).max(self.part_bytes(account)))
            .sum()
    }

    fn room_bytes(&self, account: Account) -> u64 {
        let slab_bytes = self.taken(Account::Slabs);
        if account == Account::Slabs {
            let taken_bytes = slab_bytes + self.kept_bytes(None);
            return self.limit_bytes.saturating_sub(taken_bytes);
        }
        // What was only learned is for slabs: for staging the driver is asked.
        let limit_bytes = self.said_bytes;
        let staging_bytes = self.taken(account) + self.kept_bytes(Some(account));
        let room_bytes = |slab_bytes: u64| limit_bytes.saturating_sub(slab_bytes + staging_bytes);
        let part_bytes = self.part_bytes(account).saturating_sub(self.taken(account));
        if let (Some(most_bytes), Account::Readbacks) = (self.draining_to_bytes, account) {
            return part_bytes.min(most_bytes.saturating_sub(self.reserved_bytes()));
        }
        // Where slabs take what is kept for staging, since the limit was lowered, what they leave
        // is for whoever comes.
        let left_bytes = limit_bytes.saturating_sub(self.reserved_bytes());
        room_bytes(slab_bytes).max(left_bytes.min(part_bytes))
    }
}

/// What slabs leave to staging, of so much in all. What the app says is never too little, but is
/// no more than there is.
fn staging_floor_bytes(limit_bytes: u64, said_bytes: Option<u64>) -> u64 {
    if limit_bytes == u64::MAX {
        return said_bytes.unwrap_or(0);
    }
    let share_bytes = (limit_bytes / STAGING_SHARE).min(STAGING_MOST_BYTES);
    let least_bytes = STAGING_LEAST_BYTES.min(limit_bytes / STAGING_MOST_SHARE);
    let floor_bytes = said_bytes.unwrap_or(share_bytes).max(least_bytes);
    floor_bytes.min(limit_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Account::{Readbacks, Restores, Slabs, Uploads};

    /// A limit of 100, of which 40 are kept for staging, with so much taken by slabs, uploads,
    /// restores and read-backs.
    fn check(taken_bytes: [u64; 4], is_draining: bool, expected: [u64; 4]) {
        let ledger = Ledger::new();
        ledger.set_limit(100, 100, Some(40));
        for (account, taken_bytes) in [Slabs].into_iter().chain(STAGING).zip(taken_bytes) {
            let mut books = ledger.lock();
            books.taken_bytes[account as usize].raise(taken_bytes);
            books.all_bytes.raise(taken_bytes);
        }
        ledger.set_draining(is_draining);
        let books = ledger.lock();
        let rooms = [Slabs, Uploads, Restores, Readbacks].map(|account| books.room_bytes(account));
        assert_eq!(rooms, expected, "{taken_bytes:?}");
    }

    #[test]
    fn each_kind_of_staging_has_a_part_that_nobody_takes_from_it() {
        check([0, 0, 0, 0], false, [60, 70, 70, 80]);
        check([60, 0, 0, 0], false, [0, 10, 10, 20]);
        // Uploads that took more leave less to slabs, and nothing less to the others.
        check([30, 40, 0, 0], false, [0, 0, 10, 20]);
        check([30, 40, 5, 0], false, [0, 0, 5, 20]);
    }

    #[test]
    fn above_a_lowered_limit_staging_goes_on_only_to_get_down_to_it() {
        check([80, 0, 0, 0], false, [0, 10, 10, 20]);
        check([95, 0, 0, 0], false, [0, 5, 5, 5]);
        check([120, 0, 0, 0], false, [0, 0, 0, 0]);
        check([120, 0, 0, 0], true, [0, 0, 0, 20]);
        check([120, 40, 0, 0], true, [0, 0, 0, 20]);
    }

    #[test]
    fn without_a_limit_there_is_room_for_everything() {
        let ledger = Ledger::new();
        assert!(ledger.reserve(Slabs, 1 << 40).is_some());
        assert!(ledger.reserve(Uploads, 1 << 40).is_some());
        assert_eq!(ledger.slab_limit_now_bytes(), u64::MAX);
        assert_eq!(ledger.staging_share_bytes(Readbacks), u64::MAX);
        assert_eq!(ledger.reserve(Readbacks, u64::MAX), None);
    }

    #[test]
    fn what_was_reserved_for_a_device_that_is_gone_is_nobodys() {
        let ledger = Ledger::new();
        let buffer = BufferId(crate::driver::table::Table::default().insert(()));
        let before = ledger.reserve(Uploads, 100).unwrap();
        ledger.forget_all();
        let after = ledger.reserve(Uploads, 7).unwrap();
        assert!(!ledger.created(buffer, Uploads, 100, before));
        ledger.release(Uploads, 100, before);
        assert_eq!(ledger.levels().reserved_bytes.now, 7);
        ledger.destroyed(buffer, 0, 0);
        assert_eq!(ledger.levels().reserved_bytes.now, 7);
        assert!(ledger.created(buffer, Uploads, 7, after));
        ledger.destroyed(buffer, 0, 0);
        assert_eq!(ledger.levels().reserved_bytes.now, 0);
    }
}
