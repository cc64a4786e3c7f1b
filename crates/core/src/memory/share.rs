//! Shares: what an app asks for, and the handle that every storage of a share holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI8, Ordering};

use super::dead::{Dead, DeadList};
use crate::error::{Error, Result};
use crate::printable::printable;

/// Reports and errors show only the beginning of a longer name.
const NAME_COLUMNS: usize = 60;

/// A number of bytes, or a part of the memory that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Amount {
    /// This many bytes.
    Bytes(u64),
    /// Percent, at most 100, of the ceiling of the share around it. If no share is around it,
    /// percent of the device's budget without staging. The amount follows the budget.
    OfBudget(u8),
    /// Percent, at most 100, of the device's memory, as the operating system reports it.
    OfDevice(u8),
}

impl From<u64> for Amount {
    fn from(bytes: u64) -> Amount {
        Amount::Bytes(bytes)
    }
}

impl Amount {
    /// The amount in bytes. `None` if it is a part of something unknown.
    pub(crate) fn resolve(self, around_bytes: u64, device_bytes: Option<u64>) -> Option<u64> {
        let percent = |of_bytes: u64, percent: u8| {
            let bytes = u128::from(of_bytes) * u128::from(percent) / 100;
            u64::try_from(bytes).unwrap_or(u64::MAX)
        };
        match self {
            Amount::Bytes(bytes) => Some(bytes),
            Amount::OfBudget(_) if around_bytes == u64::MAX => None,
            Amount::OfBudget(part) => Some(percent(around_bytes, part)),
            Amount::OfDevice(part) => device_bytes.map(|bytes| percent(bytes, part)),
        }
    }
}

/// What a share of a device's memory may hold there. See [`Gpu::share`](crate::Gpu::share).
///
/// The bytes are those of tensors on the device, in whole granules. Tensors that were evicted do
/// not count, nor does staging, which all shares use together.
///
/// ```
/// use lapidary_core::shares::{Amount, ShareOptions};
///
/// let half = Amount::OfBudget(50);
/// let preview = ShareOptions::guaranteed(64 << 20).with_ceiling(half).with_priority(1);
/// assert_eq!(preview.guaranteed, Amount::Bytes(64 << 20));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ShareOptions {
    /// Room for this much whenever the share wants it. Until then it is lent to others.
    pub guaranteed: Amount,
    /// The most that it may ever hold. `None`: as much as what surrounds it.
    pub ceiling: Option<Amount>,
    /// Commands of a share with a higher priority run before those of others. `None`: the priority
    /// of what surrounds it when it is made; that of the device is 0. In `Share::resize`, `None`
    /// changes nothing.
    pub priority: Option<i8>,
    /// If true, others take first what it has beyond its guarantee, and it takes nothing from them.
    pub is_best_effort: bool,
}

impl ShareOptions {
    /// A share with this guarantee and no ceiling of its own.
    pub fn guaranteed(amount: impl Into<Amount>) -> ShareOptions {
        ShareOptions {
            guaranteed: amount.into(),
            ceiling: None,
            priority: None,
            is_best_effort: false,
        }
    }

    /// A share that has only what nobody else wants, as a cache should: Kubernetes' class
    /// *BestEffort*.
    ///
    /// ```
    /// use lapidary_core::shares::ShareOptions;
    ///
    /// let cache = ShareOptions::best_effort().with_ceiling(256 << 20);
    /// # assert!(cache.is_best_effort);
    /// ```
    pub fn best_effort() -> ShareOptions {
        ShareOptions {
            is_best_effort: true,
            ..ShareOptions::guaranteed(0)
        }
    }

    /// The same with this ceiling.
    pub fn with_ceiling(self, amount: impl Into<Amount>) -> ShareOptions {
        ShareOptions {
            ceiling: Some(amount.into()),
            ..self
        }
    }

    /// The same with this priority.
    pub fn with_priority(self, priority: i8) -> ShareOptions {
        ShareOptions {
            priority: Some(priority),
            ..self
        }
    }
}

/// The number of a share. [`ShareId::MAIN`] is that of everything that is in no share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ShareId(pub(super) u32);

impl ShareId {
    /// What is in no share.
    pub(crate) const MAIN: ShareId = ShareId(0);

    /// The number after the last one, for a share of this path. Numbers never repeat.
    pub(super) fn after(last: u32, path: &str) -> Result<ShareId> {
        let next = last.checked_add(1).map(ShareId);
        next.ok_or_else(|| {
            let reason = "all numbers of shares are taken, as each share and job takes one: open \
                          the device again";
            share_error(path, reason)
        })
    }

    /// The number that spilled blocks carry.
    pub(crate) fn number(self) -> u64 {
        u64::from(self.0)
    }
}

/// The error of a share or a job of this name.
pub(crate) fn share_error(name: &str, reason: impl Into<String>) -> Error {
    let (share, reason) = (printable(name, NAME_COLUMNS), reason.into());
    Error::Share { share, reason }
}

/// Who made a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MadeBy {
    App,
    /// It is the share of a job, which cannot change its own limits.
    Jobs,
}

/// One share, as storages and engines hold it. The share ends with its last holder.
pub struct ShareHandle {
    id: ShareId,
    /// The names of the shares around it and its own, with `/` between them.
    path: Arc<str>,
    /// The number of the path. Shares that follow each other under one name have one.
    path_number: u32,
    around: Option<Arc<ShareHandle>>,
    is_closed: AtomicBool,
    is_cancelled: AtomicBool,
    priority: AtomicI8,
    dead: Arc<DeadList>,
}

impl ShareHandle {
    pub(super) fn new(
        id: ShareId,
        path: (Arc<str>, u32),
        priority: Option<i8>,
        around: Option<Arc<ShareHandle>>,
        dead: Arc<DeadList>,
    ) -> Arc<Self> {
        let inherited = around.as_ref().map_or(0, |around| around.priority());
        Arc::new(ShareHandle {
            priority: AtomicI8::new(priority.unwrap_or(inherited)),
            id,
            path: path.0,
            path_number: path.1,
            around,
            is_closed: AtomicBool::new(false),
            is_cancelled: AtomicBool::new(false),
            dead,
        })
    }

    pub(crate) fn id(&self) -> ShareId {
        self.id
    }

    /// Was it made on the engine with this list? An engine of a dry run has its own.
    pub(crate) fn is_of(&self, dead: &Arc<DeadList>) -> bool {
        Arc::ptr_eq(&self.dead, dead)
    }

    /// The list of the engine that it was made on.
    #[inline]
    pub(super) fn dead_list(&self) -> &Arc<DeadList> {
        &self.dead
    }

    /// The number of its path, by which reports group what was made in it.
    pub(crate) fn path_number(&self) -> u32 {
        self.path_number
    }

    /// The names of the shares around it and its own, with `/` between them.
    pub fn path(&self) -> &Arc<str> {
        &self.path
    }

    pub(crate) fn priority(&self) -> i8 {
        self.priority.load(Ordering::Relaxed)
    }

    pub(crate) fn set_priority(&self, priority: i8) {
        self.priority.store(priority, Ordering::Relaxed);
    }

    /// Commands of the share that have not run never will.
    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
        self.close();
    }

    /// Whether [`is_cancelled`](Self::is_cancelled) may be true: a check of one share.
    #[inline]
    pub(super) fn may_be_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire) || self.around.is_some()
    }

    /// Was it cancelled, or one around it?
    pub(crate) fn is_cancelled(&self) -> bool {
        let around = self.around.as_ref();
        self.is_cancelled.load(Ordering::Acquire)
            || around.is_some_and(|around| around.is_cancelled())
    }

    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Is it closed, or one around it?
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        let around = self.around.as_ref();
        self.is_closed.load(Ordering::Acquire) || around.is_some_and(|around| around.is_closed())
    }

    /// Refuses what a closed share may not do.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.is_closed() {
            false => Ok(()),
            true => Err(self.not_open()),
        }
    }

    /// The error of what a closed share may not do.
    #[cold]
    fn not_open(&self) -> Error {
        match self.is_cancelled() {
            true => self.cancelled(),
            false => self.error("it is closed, so it gets no new tensors"),
        }
    }

    /// The error of what was cancelled with the share.
    pub(crate) fn cancelled(&self) -> Error {
        self.error("it was cancelled, so nothing of it runs any more")
    }

    /// The error of this share, for this reason.
    pub(crate) fn error(&self, reason: impl Into<String>) -> Error {
        share_error(&self.path, reason)
    }
}

debug_by_name!(ShareHandle { path });

impl Drop for ShareHandle {
    fn drop(&mut self) {
        self.dead.push(Dead::Share(self.id));
    }
}
