//! A storage: the bytes behind a tensor, wherever they are at the moment.
//!
//! Tensors, and the commands that wait in the queue, hold a storage by `Arc`. Nobody holds a place:
//! the place is looked up when a command is encoded, so storages can move, leave and come back
//! between two commands. When the last `Arc` goes, on whatever thread, the slot's number goes to
//! the dead list and nothing else happens; the next execution pass frees the place. Of what a
//! command of its own was the last to hold, the execution pass frees the place at once.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::dead::{Dead, DeadList};
use super::scope;

/// Where a storage's bytes are. Asking never waits, so by the time the answer is read it may be
/// a little old.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
#[repr(u8)]
pub enum Residency {
    /// Nowhere yet: the command that makes them has not run, or nobody used what
    /// [`Gpu::buffer`](crate::Gpu::buffer) made.
    Pending,
    /// In a block of a slab, on the device.
    Device,
    /// In a buffer of the app, which was imported.
    Imported,
    /// Evicted to the host's memory.
    Host,
    /// Evicted to disk.
    Disk,
    /// Nowhere but at its source, which gives them again.
    Backed,
    /// Nowhere any more: what should have made them failed.
    Poisoned,
}

impl Residency {
    fn from_u8(value: u8) -> Self {
        match value {
            0 => Residency::Pending,
            1 => Residency::Device,
            2 => Residency::Imported,
            3 => Residency::Host,
            4 => Residency::Disk,
            5 => Residency::Backed,
            _ => Residency::Poisoned,
        }
    }
}

/// What the app knows of a tensor's next use, where the past would mislead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Advice {
    /// Nothing: its past uses tell.
    #[default]
    Normal,
    /// It is used again soon: evict others first.
    Soon,
    /// It is not used for a long time: put it out first.
    Late,
}

/// Whose budget a storage counts against. There is one tenant so far: [`TenantId::MAIN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TenantId(u32);

impl TenantId {
    /// The tenant of everything that names no other.
    pub(crate) const MAIN: TenantId = TenantId(0);

    /// As it is written into spilled blocks.
    pub(crate) fn number(self) -> u64 {
        u64::from(self.0)
    }
}

/// Where a tensor was made, and its name if it was given one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Tag {
    file: Cow<'static, str>,
    line: u32,
    column: u32,
    name: Option<Arc<str>>,
    scope: Option<Arc<str>>,
}

impl Tag {
    /// The file of the caller's source that made the tensor, ...
    pub fn file(&self) -> &str {
        &self.file
    }

    /// ... its line in it, from 1, ...
    pub fn line(&self) -> u32 {
        self.line
    }

    /// ... and the column, from 1.
    pub fn column(&self) -> u32 {
        self.column
    }

    /// The scopes that it was made in, the outermost first, with `/` between them: see
    /// [`Gpu::scope`](crate::Gpu::scope).
    pub fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// The name, if `Tensor::named`(crate::Buffer::named) gave it one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Cuts it to what of it prints, as an app's names may be of any length: for copies that are
    /// sent elsewhere.
    pub fn shorten(&mut self) {
        let is_long = |text: &&mut Arc<str>| text.len() > NAME_COLUMNS;
        if let Some(name) = self.name.as_mut().filter(is_long) {
            *name = super::printable(name, NAME_COLUMNS).into();
        }
        if let Some(scope) = self.scope.as_mut().filter(is_long) {
            *scope = super::printable_end(scope, NAME_COLUMNS).into();
        }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, line) = (super::printable_end(&self.file, FILE_COLUMNS), self.line);
        if let Some(scope) = &self.scope {
            write!(f, "{}: ", super::printable_end(scope, NAME_COLUMNS))?;
        }
        match &self.name {
            Some(name) => {
                let name = super::printable(name, NAME_COLUMNS);
                write!(f, "`{name}` ({file}:{line})")
            }
            None => write!(f, "{file}:{line}"),
        }
    }
}

/// Of a longer path, reports and errors show the end.
const FILE_COLUMNS: usize = 120;

/// Of a longer name, reports and errors show the beginning.
const NAME_COLUMNS: usize = 60;

/// A slot number that names no slot: the storage was never placed.
const NO_SLOT: u32 = u32::MAX;

/// In the place of a slot's number when somebody has taken the slot from a storage that is about to
/// go.
const TAKEN: u32 = DONATED | ((u32::MAX >> 1) - 1);

/// Added to the number of a slot that was handed on: the storage still finds its bytes there,
/// but whoever took them over frees them.
const DONATED: u32 = 1 << 31;

/// The bytes behind tensors.
pub struct Storage {
    /// Bytes that its maker asked for; what follows them is padding, which anyone may overwrite.
    len_bytes: u64,
    /// Bytes, a multiple of 16, so that kernels may write whole vec4s.
    size_bytes: u64,
    tenant: TenantId,
    site: &'static Location<'static>,
    scope: u32,
    name: Mutex<Option<Arc<str>>>,
    /// Was one given? Hardly any storage has a name, and the lock is more than the rest of the
    /// question.
    is_named: AtomicBool,
    /// Counts the writes, so that whoever keeps something derived from the bytes can tell.
    version: AtomicU64,
    /// How many hold the place: a pinned storage neither moves nor leaves.
    pins: AtomicU32,
    /// How many are writing to it in several pieces, some of which others may see.
    writers: AtomicU32,
    /// How many rematerializers compute from it.
    rematerializers: AtomicU32,
    /// Its slot in the memory's table once it has a place or a cause of poisoning.
    slot: AtomicU32,
    residency: AtomicU8,
    advice: AtomicU8,
    /// Bytes of rows that were read of it while it was not on the device.
    picked_bytes: AtomicU64,
    dead: Arc<DeadList>,
}

impl Storage {
    /// Where it is, as a key for as long as somebody holds it.
    pub(crate) fn address(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self) as usize
    }

    /// A storage for `len_bytes`, which are padded to a multiple of 16, at least 16.
    pub(crate) fn new(
        len_bytes: u64,
        tenant: TenantId,
        site: &'static Location<'static>,
        dead: Arc<DeadList>,
    ) -> Arc<Self> {
        let size_bytes = len_bytes.max(1).next_multiple_of(16);
        dead.pending.came(size_bytes);
        Arc::new(Storage {
            len_bytes,
            size_bytes,
            tenant,
            site,
            scope: scope::current(),
            name: Mutex::new(None),
            is_named: AtomicBool::new(false),
            version: AtomicU64::new(0),
            pins: AtomicU32::new(0),
            writers: AtomicU32::new(0),
            rematerializers: AtomicU32::new(0),
            slot: AtomicU32::new(NO_SLOT),
            residency: AtomicU8::new(Residency::Pending as u8),
            advice: AtomicU8::new(Advice::Normal as u8),
            picked_bytes: AtomicU64::new(0),
            dead,
        })
    }

    /// Bytes that its maker asked for.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Are so many bytes more, of rows of it alone, less than it is as a whole? They count from the
    /// last time on that they were not.
    pub(crate) fn picks_are_less(&self, more_bytes: u64) -> bool {
        let picked = self.picked_bytes.load(Ordering::Relaxed) + more_bytes;
        let is_less = picked <= self.len_bytes;
        let now = if is_less { picked } else { 0 };
        self.picked_bytes.store(now, Ordering::Relaxed);
        is_less
    }

    /// The same with padding: a multiple of 16.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Another storage for whoever asked for this one, of so many bytes, without a place yet.
    pub fn another(&self, len_bytes: u64) -> Arc<Self> {
        Storage::new(len_bytes, self.tenant, self.site, self.dead.clone())
    }

    /// Whose budget it counts against.
    pub(crate) fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// Where it was made, and its name.
    pub fn tag(&self) -> Tag {
        Tag {
            file: self.site.file().into(),
            line: self.site.line(),
            column: self.site.column(),
            name: self.name(),
            scope: scope::path(self.scope),
        }
    }

    /// The call site that made it, and the number of the scope that this was in.
    pub fn made_at(&self) -> (&'static Location<'static>, u32) {
        (self.site, self.scope)
    }

    pub(crate) fn name(&self) -> Option<Arc<str>> {
        if !self.is_named.load(Ordering::Acquire) {
            return None;
        }
        let name = self.name.lock().unwrap_or_else(PoisonError::into_inner);
        name.clone()
    }

    /// Gives it a name, for reports and errors.
    pub fn set_name(&self, name: &str) {
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.into());
        self.is_named.store(true, Ordering::Release);
    }

    /// Counts the writes.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn bump_version(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Has somebody appended a part of a write, and not all of it? Asked after the version: a write
    /// that has ended, or will begin, shows in that.
    pub fn is_half_written(&self) -> bool {
        self.writers.load(Ordering::Acquire) > 0
    }

    /// A part of a write is about to be appended.
    pub(crate) fn begin_write(&self) {
        self.writers.fetch_add(1, Ordering::AcqRel);
    }

    /// All of it has been appended, or nothing more will be.
    pub(crate) fn end_write(&self) {
        self.writers.fetch_sub(1, Ordering::AcqRel);
    }

    /// Would a rematerializer compute from it? To write to it may end what others hold.
    pub fn feeds_rematerializers(&self) -> bool {
        self.rematerializers.load(Ordering::Acquire) > 0
    }

    /// One rematerializer more computes from it.
    pub(super) fn feed_rematerializer(&self) {
        self.rematerializers.fetch_add(1, Ordering::AcqRel);
    }

    /// A rematerializer that computes from it is gone.
    pub(super) fn unfeed_rematerializer(&self) {
        self.rematerializers.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn pins(&self) -> u32 {
        self.pins.load(Ordering::Acquire)
    }

    pub(crate) fn pin(&self) {
        self.pins.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn unpin(&self) {
        let before = self.pins.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "unpinned more often than pinned");
    }

    /// Where its bytes are at the moment.
    pub fn residency(&self) -> Residency {
        Residency::from_u8(self.residency.load(Ordering::Acquire))
    }

    /// What the app knows of its next use.
    pub fn advise(&self, advice: Advice) {
        self.advice.store(advice as u8, Ordering::Relaxed);
    }

    pub(crate) fn advice(&self) -> Advice {
        match self.advice.load(Ordering::Relaxed) {
            1 => Advice::Soon,
            2 => Advice::Late,
            _ => Advice::Normal,
        }
    }

    /// Its slot in the memory's table, once it has one.
    pub(crate) fn slot(&self) -> Option<u32> {
        match self.slot.load(Ordering::Acquire) {
            NO_SLOT => None,
            slot => Some(slot & !DONATED),
        }
    }

    /// Has another storage taken over the slot?
    pub(crate) fn is_donated(&self) -> bool {
        let slot = self.slot.load(Ordering::Acquire);
        slot != NO_SLOT && slot & DONATED != 0
    }

    /// Another storage has taken over the slot.
    pub(crate) fn donate_slot(&self) {
        self.slot.fetch_or(DONATED, Ordering::AcqRel);
    }

    /// The storage has no place after all.
    pub(crate) fn clear_slot(&self) {
        self.dead.pending.came(self.size_bytes);
        self.slot.store(NO_SLOT, Ordering::Release);
        let pending = Residency::Pending as u8;
        self.residency.store(pending, Ordering::Release);
    }

    /// The slot of a storage that goes, if it has one that nobody took over. Whoever takes it frees
    /// it.
    pub(crate) fn take_slot(&mut self) -> Option<u32> {
        match std::mem::replace(self.slot.get_mut(), TAKEN) {
            NO_SLOT => {
                self.dead.pending.went(self.size_bytes);
                None
            }
            slot => (slot & DONATED == 0).then_some(slot),
        }
    }

    /// Only the execution pass calls this, under the engine's lock.
    pub(crate) fn set_slot(&self, slot: u32, residency: Residency) {
        if self.slot.load(Ordering::Relaxed) == NO_SLOT {
            self.dead.pending.went(self.size_bytes);
        }
        self.slot.store(slot, Ordering::Release);
        self.residency.store(residency as u8, Ordering::Release);
    }

    /// Only the execution pass calls this, under the engine's lock.
    pub(crate) fn set_residency(&self, residency: Residency) {
        self.residency.store(residency as u8, Ordering::Release);
    }

    /// Does it belong to the engine whose dead list this is?
    pub(crate) fn belongs_to(&self, dead: &Arc<DeadList>) -> bool {
        Arc::ptr_eq(&self.dead, dead)
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage")
            .field("size_bytes", &self.size_bytes)
            .field("residency", &self.residency())
            .field("made_at", &self.tag().to_string())
            .finish_non_exhaustive()
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Some(slot) = self.take_slot() {
            self.dead.push(Dead::Slot(slot));
        }
    }
}
