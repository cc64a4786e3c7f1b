//! The account of a device's bytes: their use and their limit.
//!
//! Slabs cannot take all of the limit. A part is kept for staging, since without staging nothing
//! can be evicted. Each kind of staging has a share of that part, since they may wait for each
//! other. An upload keeps its staging until its command runs, which may first need an eviction or a
//! restore.

use parking_lot::Mutex;

use super::learned::LearnedLimit;
use super::{BufferId, BufferKind};
use crate::number_map::NumberMap;
use crate::units::{Level, MIB};

/// Staging gets 1/32 of the limit, ...
const STAGING_SHARE: u64 = 32;

/// ... at most 128 MiB, ...
const STAGING_MOST_BYTES: u64 = 128 * MIB;

/// ... and at least 16 KiB, which it needs to work at all, ...
const STAGING_LEAST_BYTES: u64 = 16 << 10;

/// ... but never more than 1/4 of the limit.
const STAGING_MOST_SHARE: u64 = 4;

/// The uses of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// Slabs.
    Slabs,
    /// Staging for uploads of the app.
    Uploads,
    /// Staging for restores.
    Restores,
    /// Buffers for reading back, and for evictions.
    Readbacks,
}

/// The accounts that share the bytes kept for staging.
const STAGING: [Account; 3] = [Account::Uploads, Account::Restores, Account::Readbacks];

/// Draining to a lowered limit needs staging for read-backs. If slabs take the whole limit, that
/// staging exceeds it by 1/256 of the limit, at least 4 KiB and at most 4 MiB.
const DRAINING_PART: u64 = 256;
const DRAINING_LEAST: u64 = 4 << 10;
const DRAINING_MOST: u64 = 4 << 20;

impl Account {
    /// The kind of the account's buffers.
    pub(super) fn kind(self) -> BufferKind {
        match self {
            Account::Slabs => BufferKind::Slab,
            Account::Uploads | Account::Restores => BufferKind::Upload,
            Account::Readbacks => BufferKind::Readback,
        }
    }
}

/// The use of the device's bytes, and their limit.
#[derive(Debug)]
pub(crate) struct Ledger {
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    /// The number of times that a device was replaced. Earlier reservations do not count any more.
    epoch: u64,
    /// The buffers, by the numbers of their keys.
    owned: NumberMap<(Account, u64)>,
    retiring: Vec<(u64, Account, u64)>,
    retiring_bytes: Level,
    /// The serial of the last submission.
    last_serial: u64,
    /// The bytes of each account, including those that retire.
    taken_bytes: [Level; 4],
    /// The bytes of all accounts.
    all_bytes: Level,
    /// The bytes that the driver held when it was asked last.
    driver_bytes: Level,
    /// The limit of the app and the system. `said_staging_bytes` is the app's part for staging.
    said_bytes: u64,
    /// The part of it that lasts. The system may allow more now than later.
    lasting_bytes: u64,
    said_staging_bytes: Option<u64>,
    times_lowered: u64,
    learned: LearnedLimit,
    /// The lowest of all limits.
    limit_bytes: u64,
    /// The part of the limit that slabs leave to staging.
    staging_floor_bytes: u64,
    /// The bytes of slabs that are guaranteed to shares: staging leaves them beside its own part.
    promised_bytes: u64,
    /// Set while slabs drain to a lowered limit, which needs read-backs. It is the most bytes that
    /// may be reserved meanwhile, and may be above the limit.
    draining_to_bytes: Option<u64>,
}

/// The levels of a [`Ledger`], in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Levels {
    /// All bytes: slabs, staging, and those that retire.
    pub(crate) reserved_bytes: Level,
    /// The bytes of slabs, including those that retire.
    pub(crate) slab_bytes: Level,
    /// The bytes of uploads, restores and read-backs.
    pub(crate) staging_bytes: [Level; 3],
    /// The bytes of destroyed buffers that the device still uses.
    pub(crate) retiring_bytes: Level,
    /// The limit; `u64::MAX` for none.
    pub limit_bytes: u64,
    /// The limit of the app and the system, without the limit learned from refusals.
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

    /// Sets the limit. New buffers never exceed `limit_bytes`; existing buffers stay. Slabs leave
    /// `staging_bytes` of it to staging, or the usual share if that is `None`. Slabs plan with
    /// `lasting_bytes`, to which the limit may return without a call of the app.
    pub(crate) fn set_limit(
        &self,
        limit_bytes: u64,
        lasting_bytes: u64,
        staging_bytes: Option<u64>,
    ) {
        let mut books = self.books.lock();
        let is_same = books.said_bytes == limit_bytes && books.said_staging_bytes == staging_bytes;
        books.said_bytes = limit_bytes;
        books.lasting_bytes = lasting_bytes;
        books.said_staging_bytes = staging_bytes;
        books.update_limit();
        let is_passed = books.reserved_bytes() > books.limit_bytes || books.slab_excess_bytes() > 0;
        books.times_lowered += u64::from(is_passed && !is_same);
    }

    /// The number of times that a new limit was below the bytes in use.
    pub(crate) fn times_lowered(&self) -> u64 {
        self.books.lock().times_lowered
    }

    /// Notes that the learned limit stops a request. After some such calls the limit is forgotten,
    /// so that the driver is asked again.
    pub(crate) fn hinders(&self) {
        let mut books = self.books.lock();
        if books.learned.hinders() {
            books.update_limit();
        }
    }

    /// Counts a poll. After many polls the learned limit is forgotten.
    pub(crate) fn polled(&self) {
        let mut books = self.books.lock();
        books.learned.polled();
        books.update_limit();
    }

    /// Forgets the learned limit. Returns whether there was one.
    pub(crate) fn forget_learned(&self) -> bool {
        let mut books = self.books.lock();
        let had = books.learned.forget();
        books.update_limit();
        had
    }

    /// Starts or ends draining: slabs shrink to a limit that was lowered below their size.
    /// Evictions need read-back buffers. Meanwhile these may take their share on top of the bytes
    /// that slabs still hold. The total stays within the level at the start plus the small excess
    /// of `DRAINING_PART`.
    pub(crate) fn set_draining(&self, is_draining: bool) {
        let mut books = self.books.lock();
        let level_bytes = books.reserved_bytes().max(books.limit_bytes);
        let little_bytes = (books.limit_bytes / DRAINING_PART).clamp(DRAINING_LEAST, DRAINING_MOST);
        let most_bytes = level_bytes.saturating_add(little_bytes);
        books.draining_to_bytes = is_draining.then_some(most_bytes);
    }

    /// The bytes by which slabs exceed their part of the limit. Until they shrink, some kind of
    /// staging lacks its share.
    pub(crate) fn slab_excess_bytes(&self) -> u64 {
        self.books.lock().slab_excess_bytes()
    }

    /// All levels at the same moment.
    pub(crate) fn levels(&self) -> Levels {
        let books = self.books.lock();
        Levels {
            reserved_bytes: books.all_bytes,
            slab_bytes: books.taken_bytes[Account::Slabs as usize],
            staging_bytes: STAGING.map(|account| books.taken_bytes[account as usize]),
            retiring_bytes: books.retiring_bytes,
            limit_bytes: books.limit_bytes,
            said_bytes: books.said_bytes,
        }
    }

    /// The most that slabs may ever take: the lasting limit without the part for staging.
    pub(crate) fn slab_limit_bytes(&self) -> u64 {
        let books = self.books.lock();
        let floor_bytes = staging_floor_bytes(books.lasting_bytes, books.said_staging_bytes);
        books.lasting_bytes.saturating_sub(floor_bytes)
    }

    /// Sets the bytes of slabs that are guaranteed to shares.
    pub(crate) fn set_promised(&self, bytes: u64) {
        self.books.lock().promised_bytes = bytes;
    }

    /// The most that slabs may take of a limit, with `staging_bytes` for staging.
    pub(crate) fn slab_part_bytes(limit_bytes: u64, staging_bytes: Option<u64>) -> u64 {
        limit_bytes.saturating_sub(staging_floor_bytes(limit_bytes, staging_bytes))
    }

    /// The most that slabs may take beside the present bytes of staging.
    pub(crate) fn slab_limit_now_bytes(&self) -> u64 {
        let books = self.books.lock();
        match books.limit_bytes {
            u64::MAX => u64::MAX,
            limit_bytes => limit_bytes.saturating_sub(books.kept_bytes(None)),
        }
    }

    /// Whether slabs would have more room if staging took less. That is false while staging takes
    /// at most its part, unless the limit was learned from the driver.
    pub(crate) fn staging_hinders(&self) -> bool {
        let books = self.books.lock();
        let is_beyond = books.kept_bytes(None) > books.staging_floor_bytes;
        let is_learned = books.limit_bytes < books.said_bytes;
        is_beyond || is_learned || books.limit_bytes == u64::MAX
    }

    /// The most that one kind of staging may take. It has its own piece of the part for staging,
    /// which no other account can take. It may take more while slabs and what is promised to them
    /// leave room.
    pub(crate) fn staging_share_bytes(&self, account: Account) -> u64 {
        let books = self.books.lock();
        match books.limit_bytes {
            u64::MAX => u64::MAX,
            _ => {
                // A share that ignores what is promised to slabs would only be refused.
                let kept_bytes = books.kept_bytes(None);
                let kept_bytes = kept_bytes.saturating_add(books.slab_or_promised_bytes());
                let room_bytes = books.limit_bytes.saturating_sub(kept_bytes);
                // The share ignores a learned limit that is very small. A caller that asks for no
                // more would never learn that the limit has risen.
                let least_bytes = STAGING_LEAST_BYTES.min(books.said_bytes / STAGING_MOST_SHARE);
                (books.part_bytes(account))
                    .max(room_bytes / 8)
                    .max(least_bytes / 4)
            }
        }
    }

    /// Sets the peaks to the present levels.
    pub(crate) fn reset_peak(&self) {
        let mut books = self.books.lock();
        books.levels().for_each(Level::reset_peak);
    }

    /// The number of times that the device was replaced.
    pub(crate) fn epoch(&self) -> u64 {
        self.books.lock().epoch
    }

    /// Forgets all buffers, because their device is gone.
    pub(crate) fn forget_all(&self) {
        let mut books = self.books.lock();
        books.epoch += 1;
        books.owned.clear();
        books.retiring.clear();
        books.levels().for_each(|level| level.set(0));
        books.learned.forget();
        books.update_limit();
    }

    /// Reserves bytes. Returns the epoch of the device, or `None` if there are not enough.
    pub(super) fn reserve(&self, account: Account, size_bytes: u64) -> Option<u64> {
        let mut books = self.books.lock();
        if size_bytes > books.room_bytes(account) {
            return None;
        }
        books.taken_bytes[account as usize].raise(size_bytes);
        books.all_bytes.raise(size_bytes);
        Some(books.epoch)
    }

    /// Releases bytes that were reserved in this epoch and belong to no buffer.
    pub(super) fn release(&self, account: Account, size_bytes: u64, epoch: u64) {
        let mut books = self.books.lock();
        // Otherwise the device was replaced meanwhile, and all accounts were cleared.
        if books.epoch == epoch {
            books.give_back(account, size_bytes);
        }
    }

    /// Notes that the driver had no memory for these bytes, which are still reserved.
    pub(super) fn refused(&self, size_bytes: u64) {
        let mut books = self.books.lock();
        let wanted_bytes = books.reserved_bytes();
        let held_bytes = wanted_bytes.saturating_sub(size_bytes);
        books.learned.refused(held_bytes, wanted_bytes);
        books.update_limit();
    }

    /// Gives bytes that were reserved in this epoch to a buffer. `false` if the epoch is over: it
    /// is unknown to which device the buffer belongs, and nothing is reserved for it.
    pub(super) fn created(
        &self,
        buffer: BufferId,
        account: Account,
        size_bytes: u64,
        epoch: u64,
    ) -> bool {
        let mut books = self.books.lock();
        if books.epoch != epoch {
            return false;
        }
        books.owned.insert(buffer.0.number(), (account, size_bytes));
        let held_bytes = books.reserved_bytes();
        books.learned.had(held_bytes);
        books.update_limit();
        true
    }

    /// Notes that a buffer is destroyed. Its bytes return once submission `last_serial` is done.
    pub(super) fn destroyed(&self, buffer: BufferId, last_serial: u64, completed: u64) {
        let mut books = self.books.lock();
        let Some((account, size_bytes)) = books.owned.swap_remove(&buffer.0.number()) else {
            return;
        };
        if last_serial > completed {
            books.retiring_bytes.raise(size_bytes);
            books.retiring.push((last_serial, account, size_bytes));
        } else {
            books.give_back(account, size_bytes);
        }
    }

    /// Notes the bytes that the driver says it holds.
    pub(super) fn driver_holds(&self, held_bytes: u64) -> Level {
        let mut books = self.books.lock();
        books.driver_bytes.set(held_bytes);
        books.driver_bytes
    }

    /// Notes the serial of a submission.
    pub(super) fn submitted(&self, serial: u64) {
        self.books.lock().last_serial = serial;
    }

    /// The serial of the last submission; 0 if there was none.
    pub(super) fn last_serial(&self) -> u64 {
        self.books.lock().last_serial
    }

    /// Releases the bytes of submissions up to `completed`. Returns their number.
    pub(super) fn settle(&self, completed: u64) -> u64 {
        let mut guard = self.books.lock();
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

    /// The bytes of slabs, or those that are promised to shares if they are more.
    fn slab_or_promised_bytes(&self) -> u64 {
        // Without a limit, promises leave room for everything.
        let promised_bytes = match self.said_bytes {
            u64::MAX => 0,
            _ => self.promised_bytes,
        };
        self.taken(Account::Slabs).max(promised_bytes)
    }

    fn slab_excess_bytes(&self) -> u64 {
        let most_bytes = self.limit_bytes.saturating_sub(self.kept_bytes(None));
        self.taken(Account::Slabs).saturating_sub(most_bytes)
    }

    /// This account's share of the part for staging.
    fn part_bytes(&self, account: Account) -> u64 {
        let floor_bytes = self.staging_floor_bytes;
        match account {
            Account::Slabs => 0,
            Account::Uploads | Account::Restores => floor_bytes / 4,
            Account::Readbacks => floor_bytes - 2 * (floor_bytes / 4),
        }
    }

    /// The bytes that all accounts of staging take or may still take, except one account.
    fn kept_bytes(&self, without: Option<Account>) -> u64 {
        let others = STAGING
            .into_iter()
            .filter(|account| Some(*account) != without);
        others
            .map(|account| self.taken(account).max(self.part_bytes(account)))
            .sum()
    }

    fn room_bytes(&self, account: Account) -> u64 {
        if account == Account::Slabs {
            let taken_bytes = self.kept_bytes(None);
            let taken_bytes = taken_bytes.saturating_add(self.taken(Account::Slabs));
            return self.limit_bytes.saturating_sub(taken_bytes);
        }
        // A learned limit applies to slabs only. For staging the driver itself is asked.
        let limit_bytes = self.said_bytes;
        let staging_bytes = self.kept_bytes(Some(account));
        let staging_bytes = staging_bytes.saturating_add(self.taken(account));
        let kept_bytes = self.slab_or_promised_bytes().saturating_add(staging_bytes);
        let room_bytes = limit_bytes.saturating_sub(kept_bytes);
        let part_bytes = self.part_bytes(account).saturating_sub(self.taken(account));
        if let (Some(most_bytes), Account::Readbacks) = (self.draining_to_bytes, account) {
            return part_bytes.min(most_bytes.saturating_sub(self.reserved_bytes()));
        }
        // After the limit was lowered, slabs may take bytes of the part for staging. The accounts
        // then compete for the rest.
        let left_bytes = limit_bytes.saturating_sub(self.reserved_bytes());
        room_bytes.max(left_bytes.min(part_bytes))
    }
}

/// The part of a limit that slabs leave to staging. The app's number is never too small, but is at
/// most the limit.
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

    /// A limit of 100, of which 40 are kept for staging. `taken_bytes` are those of slabs, uploads,
    /// restores and read-backs.
    fn check(taken_bytes: [u64; 4], is_draining: bool, expected: [u64; 4]) {
        let ledger = Ledger::new();
        ledger.set_limit(100, 100, Some(40));
        for (account, taken_bytes) in [Slabs].into_iter().chain(STAGING).zip(taken_bytes) {
            let mut books = ledger.books.lock();
            books.taken_bytes[account as usize].raise(taken_bytes);
            books.all_bytes.raise(taken_bytes);
        }
        ledger.set_draining(is_draining);
        let books = ledger.books.lock();
        let rooms = [Slabs, Uploads, Restores, Readbacks].map(|account| books.room_bytes(account));
        assert_eq!(rooms, expected, "{taken_bytes:?}");
    }

    #[test]
    fn each_kind_of_staging_has_a_part_that_nobody_takes_from_it() {
        check([0, 0, 0, 0], false, [60, 70, 70, 80]);
        check([60, 0, 0, 0], false, [0, 10, 10, 20]);
        // Uploads above their share leave less to slabs, and no less to the other accounts.
        check([30, 40, 0, 0], false, [0, 0, 10, 20]);
        check([30, 40, 5, 0], false, [0, 0, 5, 20]);
    }

    #[test]
    fn a_share_is_never_more_than_is_left_beside_a_promise() {
        let ledger = Ledger::new();
        ledger.set_limit(3200, 3200, None);
        let share_bytes = |promised_bytes| {
            ledger.set_promised(promised_bytes);
            ledger.staging_share_bytes(Uploads)
        };
        // Staging keeps 800 bytes, of which uploads have 200. Beyond that they get 1/8 of the rest.
        assert_eq!(share_bytes(0), 300);
        assert_eq!(share_bytes(800), 200);
        assert_eq!(share_bytes(2400), 200);
        assert!(ledger.reserve(Slabs, 1600).is_some());
        assert_eq!(share_bytes(1600), share_bytes(0));
        ledger.set_promised(2400);
        assert!(ledger.reserve(Uploads, 200).is_some());
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
