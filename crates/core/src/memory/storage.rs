//! A storage: the bytes behind a tensor, wherever they are.
//!
//! Tensors and queued commands hold a storage by `Arc`. No handle holds a place: the engine looks
//! it up when it encodes a command. So a storage can move, be evicted and be restored between two
//! commands. When the last `Arc` is dropped, on any thread, the slot's number goes to the dead
//! list. The next execution pass frees the place. If an encoded command was the last holder, its
//! pass frees the place at once.

use std::any::Any;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::dead::{Dead, DeadList};
use super::owner::Owner;
use super::scope;
use super::share::{ShareHandle, ShareId};
use super::tag::Tag;
use crate::driver::MaybeShared;
use crate::dtype::DType;
use crate::error::Error;

/// What a layer above attaches to a storage. It must not hold that storage, which it outlives.
pub trait Companion: Any + MaybeShared {
    /// The companion of a storage that stands for this one in a dry run. Changes of the one do not
    /// show in the other.
    fn of_fake(&self) -> Arc<dyn Companion>;
}

/// What makes storages: see [`Storage::maker`].
pub(crate) type Maker = (usize, u32, u32, Option<Arc<str>>);

/// Where a storage's bytes are. The query never waits, so the answer may be slightly out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
#[repr(u8)]
pub enum Residency {
    /// Nowhere yet. The command that makes them has not run, or no command used a buffer from
    /// [`Gpu::buffer`](crate::Gpu::buffer).
    Pending,
    /// In a block of a slab, on the device.
    Device,
    /// In an imported buffer of the app.
    Imported,
    /// Evicted to the host's memory.
    Host,
    /// Evicted to a store of the app: see [`stores`](crate::stores).
    Store,
    /// Evicted to disk.
    Disk,
    /// Only at its source, which gives them again.
    Backed,
    /// Lost: the command that should have made them failed, or a tier has lost them.
    Poisoned,
}

impl Residency {
    fn from_u8(value: u8) -> Self {
        match value {
            0 => Residency::Pending,
            1 => Residency::Device,
            2 => Residency::Imported,
            3 => Residency::Host,
            4 => Residency::Store,
            5 => Residency::Disk,
            6 => Residency::Backed,
            _ => Residency::Poisoned,
        }
    }
}

/// What the app knows about a buffer's next use, where past uses would mislead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Advice {
    /// Nothing: the engine predicts from past uses.
    #[default]
    Normal,
    /// Used again soon: evict others first.
    Soon,
    /// Not used for a long time: evict it first.
    Late,
}

/// A slot number for no slot: the storage was never placed.
const NO_SLOT: u32 = u32::MAX;

/// Replaces the slot's number when the slot was taken from a storage that is being dropped.
const TAKEN: u32 = DONATED | ((u32::MAX >> 1) - 1);

/// Bit in the number of a slot that this storage gave to another one. This storage still finds its
/// bytes there, but the new owner frees them.
const DONATED: u32 = 1 << 31;

/// The bytes behind tensors.
pub struct Storage {
    /// Requested bytes. Any kernel may overwrite the padding behind them.
    len_bytes: u64,
    /// Bytes with padding: a multiple of 16, so that kernels may write whole vec4s.
    size_bytes: u64,
    owner: Owner,
    /// The share of `owner`: each placement asks for it several times.
    share: ShareId,
    site: &'static Location<'static>,
    scope: u32,
    /// Counts the writes. Holders of derived values compare it to notice a change.
    version: AtomicU64,
    /// Number of recorded operations whose backward needs the bytes.
    saved: AtomicU32,
    /// Number of pins. A pinned storage is neither moved nor evicted.
    pins: AtomicU32,
    /// Number of writes under way that come in several pieces, some of which others may see.
    writers: AtomicU32,
    /// Number of rematerializers with this storage as an input.
    rematerializers: AtomicU32,
    /// Its slot in the memory's table, once it has a place or a cause of poisoning.
    slot: AtomicU32,
    residency: AtomicU8,
    advice: AtomicU8,
    /// The type of the elements for snapshots, as [`dtype`](Self::dtype) reads it; 0 for bytes.
    dtype: AtomicU8,
    is_lent: AtomicBool,
    /// Whether it has a name. Few storages do, and locking the name costs more than this check.
    is_named: AtomicBool,
    rare: OnceLock<Box<Rare>>,
}

/// What few storages have. It stands apart, so that an `Arc` of a storage takes at most 128 bytes.
/// The system's allocator is several times faster with such small allocations.
#[derive(Default)]
struct Rare {
    name: Mutex<Option<Arc<str>>>,
    /// The call site of the last write while the bytes were saved for backward.
    written_at: Mutex<Option<&'static Location<'static>>>,
    companion: OnceLock<Arc<dyn Companion>>,
    /// Bytes of rows read from it while it was not on the device.
    picked_bytes: AtomicU64,
}

impl Storage {
    fn rare(&self) -> &Rare {
        self.rare.get_or_init(Box::default)
    }

    /// Its address: a unique key while any holder keeps the storage alive.
    pub(crate) fn address(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self) as usize
    }

    /// A storage for `len_bytes`, padded to a multiple of 16, at least 16.
    pub(crate) fn new(
        len_bytes: u64,
        share: Option<&Arc<ShareHandle>>,
        site: &'static Location<'static>,
        dead: &Arc<DeadList>,
    ) -> Arc<Self> {
        Self::with_owner(len_bytes, Owner::new(share, dead), site)
    }

    #[inline]
    fn with_owner(len_bytes: u64, owner: Owner, site: &'static Location<'static>) -> Arc<Self> {
        let size_bytes = len_bytes.max(1).next_multiple_of(16);
        owner.dead_list().pending.came(size_bytes);
        Arc::new(Storage {
            len_bytes,
            size_bytes,
            share: owner.share().map_or(ShareId::MAIN, |share| share.id()),
            owner,
            site,
            scope: scope::current(),
            version: AtomicU64::new(0),
            saved: AtomicU32::new(0),
            pins: AtomicU32::new(0),
            writers: AtomicU32::new(0),
            rematerializers: AtomicU32::new(0),
            slot: AtomicU32::new(NO_SLOT),
            residency: AtomicU8::new(Residency::Pending as u8),
            advice: AtomicU8::new(Advice::Normal as u8),
            dtype: AtomicU8::new(0),
            is_lent: AtomicBool::new(false),
            is_named: AtomicBool::new(false),
            rare: OnceLock::new(),
        })
    }

    /// Notes that a tensor of this type has the storage. The first one counts.
    #[inline]
    pub fn note_dtype(&self, dtype: DType) {
        if self.dtype.load(Ordering::Relaxed) == 0 {
            self.dtype.store(dtype as u8 + 1, Ordering::Relaxed);
        }
    }

    /// The type of its elements; `None` for plain bytes.
    pub(super) fn dtype(&self) -> Option<DType> {
        let number = usize::from(self.dtype.load(Ordering::Relaxed));
        DType::ALL.get(number.checked_sub(1)?).copied()
    }

    /// Requested bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Would reading `more_bytes` of single rows cost less than restoring the whole storage? Row
    /// bytes add up until the answer is no; then the count restarts.
    pub(crate) fn picks_are_less(&self, more_bytes: u64) -> bool {
        let picked_bytes = &self.rare().picked_bytes;
        let picked = picked_bytes.load(Ordering::Relaxed) + more_bytes;
        let is_less = picked <= self.len_bytes;
        let now = if is_less { picked } else { 0 };
        picked_bytes.store(now, Ordering::Relaxed);
        is_less
    }

    /// Bytes with padding: a multiple of 16.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// A new storage of `len_bytes` with the same call site and share, without a place yet.
    pub fn another(&self, len_bytes: u64) -> Arc<Self> {
        Storage::with_owner(len_bytes, self.owner.clone(), self.site)
    }

    /// A storage that stands for this one on another engine, without a place yet.
    pub(crate) fn fake(&self, dead: &Arc<DeadList>) -> Arc<Self> {
        let mut fake = Storage::new(self.len_bytes, self.share_handle(), self.site, dead);
        if let Some(fresh) = Arc::get_mut(&mut fake) {
            fresh.scope = self.scope;
        }
        if let Some(name) = self.name() {
            fake.set_name(&name);
        }
        if let Some(companion) = self.companion() {
            fake.attach(companion.of_fake());
        }
        fake.advise(self.advice());
        if self.is_lent() {
            fake.lend();
        }
        if self.pins() > 0 {
            fake.pin();
        }
        fake
    }

    /// The share that it is in.
    #[inline]
    pub(crate) fn share(&self) -> ShareId {
        self.share
    }

    /// The handle of that share; `None` if it is in none.
    pub(crate) fn share_handle(&self) -> Option<&Arc<ShareHandle>> {
        self.owner.share()
    }

    /// The number of that share, for layers above.
    pub fn share_number(&self) -> u64 {
        self.share().number()
    }

    /// The priority of its share.
    #[inline]
    pub(crate) fn priority(&self) -> i8 {
        self.share_handle().map_or(0, |share| share.priority())
    }

    /// From now on, commands of other shares may read it.
    pub(crate) fn lend(&self) {
        self.is_lent.store(true, Ordering::Release);
    }

    /// May commands of other shares read it?
    #[inline]
    pub(crate) fn is_lent(&self) -> bool {
        self.is_lent.load(Ordering::Acquire)
    }

    /// Whether [`cancelled`](Self::cancelled) may be an error.
    #[inline]
    pub(crate) fn may_be_cancelled(&self) -> bool {
        (self.share_handle()).is_some_and(|share| share.may_be_cancelled())
    }

    /// The error of its commands, if its share was cancelled.
    pub(crate) fn cancelled(&self) -> Option<Error> {
        let share = self.share_handle().filter(|share| share.is_cancelled());
        share.map(|share| share.cancelled())
    }

    /// Its call site and name.
    pub fn tag(&self) -> Tag {
        let share = self.share_handle().map(|share| share.path().clone());
        Tag::new(self.site, self.name(), scope::path(self.scope), share)
    }

    /// The call site that made it, and the number of its scope.
    pub fn made_at(&self) -> (&'static Location<'static>, u32) {
        (self.site, self.scope)
    }

    /// What groups storages in reports: the address of the call site, the scope, the share and the
    /// whole name, which a tag may shorten.
    pub(crate) fn maker(&self) -> Maker {
        let site = std::ptr::from_ref(self.site) as usize;
        let share = self.share_handle().map_or(0, |share| share.path_number());
        (site, self.scope, share, self.name())
    }

    /// Is it without a name, and does this maker group it?
    #[inline]
    pub(crate) fn is_nameless_of(&self, (site, scope, share, name): &Maker) -> bool {
        !self.is_named.load(Ordering::Acquire)
            && name.is_none()
            && std::ptr::from_ref(self.site) as usize == *site
            && self.scope == *scope
            && self.share_handle().map_or(0, |share| share.path_number()) == *share
    }

    pub(crate) fn name(&self) -> Option<Arc<str>> {
        if !self.is_named.load(Ordering::Acquire) {
            return None;
        }
        let name = self.rare.get()?.name.lock();
        name.clone()
    }

    /// Gives it a name, for reports and errors.
    pub fn set_name(&self, name: &str) {
        *self.rare().name.lock() = Some(name.into());
        self.is_named.store(true, Ordering::Release);
    }

    /// The number of writes so far.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Counts a write. `by` is the line of the app, if it is known.
    pub(crate) fn bump_version(&self, by: Option<&'static Location<'static>>) {
        if self.is_saved() {
            *self.rare().written_at.lock() = by;
        }
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Is it saved for the backward of a recorded operation?
    pub fn is_saved(&self) -> bool {
        self.saves() > 0
    }

    /// The number of recorded operations whose backward needs the bytes.
    pub fn saves(&self) -> u32 {
        self.saved.load(Ordering::Acquire)
    }

    /// One more recorded operation needs the bytes for its backward.
    pub fn save(&self) {
        if self.saved.fetch_add(1, Ordering::AcqRel) == 0 {
            self.owner.dead_list().saved_one();
        }
    }

    /// A recorded operation that called [`save`](Self::save) needs them no longer.
    pub fn unsave(&self) {
        if self.saved.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.owner.dead_list().unsaved_one();
        }
    }

    /// The call site of the last write while the bytes were saved, if it is known.
    pub fn written_at(&self) -> Option<&'static Location<'static>> {
        *self.rare.get()?.written_at.lock()
    }

    /// What a layer above attached to it, if anything.
    #[inline]
    pub fn companion(&self) -> Option<&Arc<dyn Companion>> {
        self.rare.get()?.companion.get()
    }

    /// Attaches a companion for the rest of the storage's life. The first one stays.
    pub fn attach(&self, companion: Arc<dyn Companion>) {
        let _ = self.rare().companion.set(companion);
    }

    /// Has a write been appended only in part? Read [`version`](Self::version) first: that shows
    /// writes that end or begin meanwhile.
    pub fn is_half_written(&self) -> bool {
        self.writers.load(Ordering::Acquire) > 0
    }

    /// The first part of a write is about to be appended.
    pub(crate) fn begin_write(&self) {
        self.writers.fetch_add(1, Ordering::AcqRel);
    }

    /// The write is appended completely, or has failed.
    pub(crate) fn end_write(&self) {
        self.writers.fetch_sub(1, Ordering::AcqRel);
    }

    /// Is it an input of a rematerializer? A write to it may end the value of other storages.
    pub fn feeds_rematerializers(&self) -> bool {
        self.rematerializers.load(Ordering::Acquire) > 0
    }

    /// Adds a rematerializer with this input.
    pub(super) fn feed_rematerializer(&self) {
        self.rematerializers.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes a rematerializer with this input.
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

    /// Sets what the app knows about the next use.
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

    /// Its slot in the memory's table, if it has one.
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

    /// The storage loses its slot and has no place any more.
    pub(crate) fn clear_slot(&self) {
        self.owner.dead_list().pending.came(self.size_bytes);
        self.slot.store(NO_SLOT, Ordering::Release);
        let pending = Residency::Pending as u8;
        self.residency.store(pending, Ordering::Release);
    }

    /// Takes the slot of a storage that is being dropped, unless it has none or handed it on. The
    /// caller frees the slot.
    pub(crate) fn take_slot(&mut self) -> Option<u32> {
        match std::mem::replace(self.slot.get_mut(), TAKEN) {
            NO_SLOT => {
                self.owner.dead_list().pending.went(self.size_bytes);
                None
            }
            slot => (slot & DONATED == 0).then_some(slot),
        }
    }

    /// Only the execution pass calls this, under the engine's lock.
    pub(crate) fn set_slot(&self, slot: u32, residency: Residency) {
        if self.slot.load(Ordering::Relaxed) == NO_SLOT {
            self.owner.dead_list().pending.went(self.size_bytes);
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
        Arc::ptr_eq(self.owner.dead_list(), dead)
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

/// The allocator of the GNU C library keeps freed chunks of at most 128 bytes in lists of one size.
/// A chunk has 8 bytes of its own, and an `Arc` two counts.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Storage>() + 16 <= 120);

impl Drop for Storage {
    fn drop(&mut self) {
        if let Some(slot) = self.take_slot() {
            self.owner.dead_list().push(Dead::Slot(slot));
        }
    }
}
