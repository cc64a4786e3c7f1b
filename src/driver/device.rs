//! A driver with an account: every buffer is paid for before it is created, and until the device
//! has let go of it.
//!
//! [`Device`] is what the rooms above hold. It is a driver in all but two calls: creating a buffer
//! asks the [`Ledger`] first, and destroying one says when its bytes come back. So nothing, be it
//! a slab, staging or a buffer for reading back, can pass the budget, not for a moment.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::learned::LearnedLimit;
use super::{BufferId, BufferKind, Driver, DriverError, DriverResult};
use crate::units::MIB;

/// Of a limit, one part in so many is kept for staging, ...
const STAGING_SHARE: u64 = 32;

/// ... but no more than this.
const STAGING_MOST_BYTES: u64 = 128 * MIB;

/// Staging needs so much to work at all, however low the limit is, ...
const STAGING_LEAST_BYTES: u64 = 16 << 10;

/// ... but never takes more than one part in so many.
const STAGING_MOST_SHARE: u64 = 4;

/// A driver whose buffers are accounted for. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    driver: Arc<dyn Driver>,
    ledger: Arc<Ledger>,
}

impl Deref for Device {
    type Target = dyn Driver;

    fn deref(&self) -> &Self::Target {
        &*self.driver
    }
}

impl Device {
    /// A driver without a limit.
    pub(crate) fn new(driver: Arc<dyn Driver>) -> Self {
        let ledger = Arc::new(Ledger::new());
        Device { driver, ledger }
    }

    /// The account.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Creates a buffer as [`Driver::create_buffer`] does, if the budget has room for it.
    pub(crate) async fn create_buffer(
        &self,
        kind: BufferKind,
        size_bytes: u64,
        label: &str,
    ) -> DriverResult<BufferId> {
        if !self.ledger.reserve(kind, size_bytes) {
            return Err(DriverError::OverBudget);
        }
        let mut reserved = Reserved {
            ledger: &self.ledger,
            kind,
            size_bytes,
        };
        let created = self.driver.create_buffer(kind, size_bytes, label).await;
        match created {
            Ok(buffer) => {
                self.ledger.created(buffer, kind, size_bytes);
                reserved.size_bytes = 0;
            }
            Err(DriverError::OutOfMemory) => self.ledger.refused(size_bytes),
            Err(_) => {}
        }
        created
    }

    /// Gives a buffer back. Its bytes count as *retiring* until submission `last_serial`, the last
    /// to name it, is done; 0 for none. A buffer of the app's is no concern of the account.
    pub(crate) fn destroy_buffer(&self, buffer: BufferId, last_serial: u64) {
        self.driver.destroy_buffer(buffer);
        let mut books = self.ledger.lock();
        let Some((kind, size_bytes)) = books.owned.remove(&buffer) else {
            return;
        };
        if last_serial > self.driver.completed() {
            books.retiring_bytes += size_bytes;
            books.retiring.push((last_serial, kind, size_bytes));
        } else {
            books.release(kind, size_bytes);
        }
    }

    /// Takes note of what the device has let go of since the last time. Returns how many bytes
    /// that freed.
    pub(crate) fn settle(&self) -> u64 {
        self.ledger.settle(self.driver.completed())
    }
}

/// Bytes that are reserved until somebody owns them.
struct Reserved<'a> {
    ledger: &'a Ledger,
    kind: BufferKind,
    size_bytes: u64,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if self.size_bytes > 0 {
            self.ledger.lock().release(self.kind, self.size_bytes);
        }
    }
}

/// What the device's bytes are spent on, and how many there may be.
#[derive(Debug)]
pub(crate) struct Ledger {
    books: Mutex<Books>,
}

#[derive(Debug)]
struct Books {
    owned: FxHashMap<BufferId, (BufferKind, u64)>,
    retiring: Vec<(u64, BufferKind, u64)>,
    retiring_bytes: u64,
    /// Slabs, with those retiring.
    slab_bytes: u64,
    /// Staging and buffers for reading back, with those retiring.
    staging_bytes: u64,
    peak_bytes: u64,
    peak_slab_bytes: u64,
    /// What the app and the system allow, and what of it the app keeps for staging, if it says so.
    said_bytes: u64,
    said_staging_bytes: Option<u64>,
    learned: LearnedLimit,
    /// The least of the limits.
    limit_bytes: u64,
    /// Of the limit, what slabs leave to staging: without it nothing could be put out.
    staging_floor_bytes: u64,
}

/// The levels of a [`Ledger`], in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Levels {
    /// Everything: slabs, staging, and what retires.
    pub(crate) reserved_bytes: u64,
    /// Of it, given back but still in use by the device.
    pub(crate) retiring_bytes: u64,
    /// The highest level so far.
    pub(crate) peak_bytes: u64,
    /// The highest level of slabs and retiring slabs.
    pub(crate) peak_slab_bytes: u64,
    /// What may not be passed; `u64::MAX` for no limit.
    pub(crate) limit_bytes: u64,
    /// What of the limit was said, and not learned from refusals.
    pub(crate) said_bytes: u64,
}

impl Ledger {
    fn new() -> Self {
        Ledger {
            books: Mutex::new(Books {
                owned: FxHashMap::default(),
                retiring: Vec::new(),
                retiring_bytes: 0,
                slab_bytes: 0,
                staging_bytes: 0,
                peak_bytes: 0,
                peak_slab_bytes: 0,
                said_bytes: u64::MAX,
                said_staging_bytes: None,
                learned: LearnedLimit::default(),
                limit_bytes: u64::MAX,
                staging_floor_bytes: 0,
            }),
        }
    }

    /// Nothing is created any more that would pass `limit_bytes`. Part of it is out of reach for
    /// slabs: so much, or what staging takes as a rule. What is there already stays.
    pub(crate) fn set_limit(&self, limit_bytes: u64, staging_bytes: Option<u64>) {
        let mut books = self.lock();
        books.said_bytes = limit_bytes;
        books.said_staging_bytes = staging_bytes;
        books.update_limit();
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

    /// All levels at once.
    pub(crate) fn levels(&self) -> Levels {
        let books = self.lock();
        Levels {
            reserved_bytes: books.reserved_bytes(),
            retiring_bytes: books.retiring_bytes,
            peak_bytes: books.peak_bytes,
            peak_slab_bytes: books.peak_slab_bytes,
            limit_bytes: books.limit_bytes,
            said_bytes: books.said_bytes,
        }
    }

    /// By how much what is reserved passes the limit. What is kept for staging counts even while
    /// nobody uses it: slabs that lie in it would be beside staging that does.
    pub(crate) fn excess_bytes(&self) -> u64 {
        let books = self.lock();
        let staging_bytes = books.staging_bytes.max(books.staging_floor_bytes);
        let taken_bytes = books.slab_bytes.saturating_add(staging_bytes);
        taken_bytes.saturating_sub(books.limit_bytes)
    }

    /// All that slabs may ever take: what was said, without what is kept for staging.
    pub(crate) fn slab_limit_bytes(&self) -> u64 {
        let books = self.lock();
        let floor_bytes = staging_floor_bytes(books.said_bytes, books.said_staging_bytes);
        books.said_bytes.saturating_sub(floor_bytes)
    }

    /// All that slabs may take while staging takes what it does.
    pub(crate) fn slab_limit_now_bytes(&self) -> u64 {
        let books = self.lock();
        let staging_bytes = books.staging_bytes.max(books.staging_floor_bytes);
        match books.limit_bytes {
            u64::MAX => u64::MAX,
            limit_bytes => limit_bytes.saturating_sub(staging_bytes),
        }
    }

    /// Would slabs have more room if staging took less? Not while it takes no more than is kept for it, unless
    /// it is the driver that has no more.
    pub(crate) fn staging_hinders(&self) -> bool {
        let books = self.lock();
        let is_beyond = books.staging_bytes > books.staging_floor_bytes;
        let is_learned = books.limit_bytes < books.said_bytes;
        is_beyond || is_learned || books.limit_bytes == u64::MAX
    }

    /// What one of so many kinds of staging may take: its part of what is kept for staging, which
    /// nobody can take from it, or more while there is room that slabs have not taken.
    pub(crate) fn staging_share_bytes(&self, parts: u64) -> u64 {
        let books = self.lock();
        match books.limit_bytes {
            u64::MAX => u64::MAX,
            _ => {
                let kept_bytes = books.staging_floor_bytes / parts;
                kept_bytes.max(books.room_bytes(BufferKind::Slab) / 8)
            }
        }
    }

    /// Starts the peak anew from the present.
    pub(crate) fn reset_peak(&self) {
        let mut books = self.lock();
        books.peak_bytes = books.reserved_bytes();
        books.peak_slab_bytes = books.slab_bytes;
    }

    /// Forgets every buffer: the device they were on is gone.
    pub(crate) fn forget_all(&self) {
        let mut books = self.lock();
        books.owned.clear();
        books.retiring.clear();
        books.retiring_bytes = 0;
        books.slab_bytes = 0;
        books.staging_bytes = 0;
        books.learned.forget();
        books.update_limit();
    }

    fn reserve(&self, kind: BufferKind, size_bytes: u64) -> bool {
        let mut books = self.lock();
        if size_bytes > books.room_bytes(kind) {
            return false;
        }
        match kind {
            BufferKind::Slab => books.slab_bytes += size_bytes,
            BufferKind::Upload | BufferKind::Readback => books.staging_bytes += size_bytes,
        }
        books.note_peak();
        true
    }

    fn created(&self, buffer: BufferId, kind: BufferKind, size_bytes: u64) {
        let mut books = self.lock();
        books.owned.insert(buffer, (kind, size_bytes));
        let held_bytes = books.reserved_bytes();
        books.learned.had(held_bytes);
        books.update_limit();
    }

    fn refused(&self, size_bytes: u64) {
        let mut books = self.lock();
        let wanted_bytes = books.reserved_bytes();
        books
            .learned
            .refused(wanted_bytes - size_bytes, wanted_bytes);
        books.update_limit();
    }

    fn settle(&self, completed: u64) -> u64 {
        let mut guard = self.lock();
        let books = &mut *guard;
        let before_bytes = books.retiring_bytes;
        let mut retiring = std::mem::take(&mut books.retiring);
        retiring.retain(|&(serial, kind, size_bytes)| {
            let over = serial <= completed;
            if over {
                books.retiring_bytes -= size_bytes;
                books.release(kind, size_bytes);
            }
            !over
        });
        books.retiring = retiring;
        before_bytes - books.retiring_bytes
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn update_limit(&mut self) {
        self.limit_bytes = self.said_bytes.min(self.learned.limit_bytes());
        self.staging_floor_bytes = staging_floor_bytes(self.limit_bytes, self.said_staging_bytes);
    }

    fn reserved_bytes(&self) -> u64 {
        self.slab_bytes + self.staging_bytes
    }

    fn room_bytes(&self, kind: BufferKind) -> u64 {
        let taken_bytes = match kind {
            BufferKind::Slab => {
                let staging_bytes = self.staging_bytes.max(self.staging_floor_bytes);
                self.slab_bytes + staging_bytes
            }
            // Slabs take what is kept for staging only if the limit was lowered below them. Then it
            // takes staging to put out what they hold.
            BufferKind::Upload | BufferKind::Readback => {
                let most_bytes = self.limit_bytes - self.staging_floor_bytes;
                self.slab_bytes.min(most_bytes) + self.staging_bytes
            }
        };
        self.limit_bytes.saturating_sub(taken_bytes)
    }

    fn release(&mut self, kind: BufferKind, size_bytes: u64) {
        match kind {
            BufferKind::Slab => self.slab_bytes -= size_bytes,
            BufferKind::Upload | BufferKind::Readback => self.staging_bytes -= size_bytes,
        }
    }

    fn note_peak(&mut self) {
        self.peak_bytes = self.peak_bytes.max(self.reserved_bytes());
        self.peak_slab_bytes = self.peak_slab_bytes.max(self.slab_bytes);
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
