//! Holders: a level for every call site that makes storages, and for every name and scope.

use rustc_hash::FxHashMap;

use super::storage::{Maker, Storage};
use super::tag::Tag;
use crate::units::Level;

/// Most entries. Further makers share one entry, because a million named tensors should not cost a
/// million levels.
const MOST_TAGS: usize = 1 << 14;

/// What the storages of one maker take on the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
#[non_exhaustive]
pub struct TagUse {
    /// The call site, with name and scope. `None` for all makers without an entry.
    pub tag: Option<Tag>,
    /// Bytes of their storages.
    pub bytes: Level,
    /// Number of their storages; views share one.
    pub storages: Level,
    /// The part of `bytes` that is saved for backward now, as
    /// [`MemoryStats::saved_bytes`](crate::stats::MemoryStats::saved_bytes) says.
    pub saved_bytes: u64,
}

/// The levels of all makers.
#[derive(Clone, Debug)]
pub(super) struct Tags {
    numbers: FxHashMap<Maker, u32>,
    /// The maker that was looked up last: loops make storage after storage at one call site.
    last: Option<(Maker, u32)>,
    /// The first entry is that of all makers without their own.
    entries: Vec<TagUse>,
}

impl Tags {
    pub(super) fn new() -> Self {
        Tags {
            numbers: FxHashMap::default(),
            last: None,
            entries: vec![TagUse::default()],
        }
    }

    /// The index of the entry of a storage's maker.
    #[inline]
    pub(super) fn number(&mut self, storage: &Storage) -> u32 {
        match &self.last {
            Some((last, number)) if storage.is_nameless_of(last) => *number,
            _ => self.look_up(storage),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, storage: &Storage) -> u32 {
        let maker = storage.maker();
        let known = self.numbers.get(&maker).copied();
        let number = known.unwrap_or_else(|| self.enter(storage, maker.clone()));
        self.last = Some((maker, number));
        number
    }

    #[cold]
    fn enter(&mut self, storage: &Storage, maker: Maker) -> u32 {
        if self.entries.len() >= MOST_TAGS {
            return 0;
        }
        let number = self.entries.len() as u32;
        self.entries.push(TagUse {
            tag: Some(storage.tag()),
            ..TagUse::default()
        });
        self.numbers.insert(maker, number);
        number
    }

    pub(super) fn gained(&mut self, number: u32, size_bytes: u64) {
        let entry = &mut self.entries[number as usize];
        entry.bytes.raise(size_bytes);
        entry.storages.raise(1);
    }

    pub(super) fn lost(&mut self, number: u32, size_bytes: u64) {
        let entry = &mut self.entries[number as usize];
        entry.bytes.lower(size_bytes);
        entry.storages.lower(1);
    }

    /// The device was lost, with everything on it.
    pub(super) fn all_lost(&mut self) {
        for entry in &mut self.entries {
            entry.bytes.set(0);
            entry.storages.set(0);
        }
    }

    pub(super) fn reset_peaks(&mut self) {
        for entry in &mut self.entries {
            entry.bytes.reset_peak();
            entry.storages.reset_peak();
        }
    }

    /// The levels. Nobody counts the saved bytes there: they are 0.
    pub(super) fn entries(&self) -> &[TagUse] {
        &self.entries
    }
}
