//! A driver with an account: every buffer is paid for before it is created, and until the device
//! has let go of it.
//!
//! [`Device`] is what the rooms above hold. It is a driver in all but two calls: creating a buffer
//! asks the [`Ledger`] first, and destroying one says when its bytes come back. So nothing, be it
//! a slab, staging or a buffer for reading back, can pass the budget, not for a moment.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::{BufferId, BufferKind, Driver, DriverError, DriverResult};

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
                self.ledger.lock().owned.insert(buffer, (kind, size_bytes));
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
    limit_bytes: u64,
    /// Of the limit, what slabs leave to staging: without it nothing could be put out.
    staging_floor_bytes: u64,
    /// What was reserved when the driver refused for the first time.
    refused_at_bytes: Option<u64>,
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
    /// What was reserved when the driver refused for the first time, if it has.
    pub(crate) refused_at_bytes: Option<u64>,
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
                limit_bytes: u64::MAX,
                staging_floor_bytes: 0,
                refused_at_bytes: None,
            }),
        }
    }

    /// Nothing is created any more that would pass `limit_bytes`; `staging_floor_bytes` of it are
    /// out of reach for slabs. What is there already stays.
    pub(crate) fn set_limit(&self, limit_bytes: u64, staging_floor_bytes: u64) {
        let mut books = self.lock();
        books.limit_bytes = limit_bytes;
        books.staging_floor_bytes = staging_floor_bytes.min(limit_bytes);
        books.refused_at_bytes = None;
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
            refused_at_bytes: books.refused_at_bytes,
        }
    }

    /// All that slabs may ever take: the limit without what is kept for staging.
    pub(crate) fn slab_limit_bytes(&self) -> u64 {
        let books = self.lock();
        books.limit_bytes.saturating_sub(books.staging_floor_bytes)
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
        is_beyond || books.limit_bytes == u64::MAX || books.refused_at_bytes.is_some()
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

    fn refused(&self, size_bytes: u64) {
        let mut books = self.lock();
        let before_bytes = books.reserved_bytes() - size_bytes;
        books.refused_at_bytes.get_or_insert(before_bytes);
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
