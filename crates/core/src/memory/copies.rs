//! Copies of a storage's bytes outside the device. Invalid copies are not kept.

use std::sync::Arc;

use super::budget::{HostAccount, HostCharge, HostUse};
use super::dead::{Dead, DeadList, HeapPart};
use super::source::Source;
use super::storage::{Residency, Storage};
use crate::alloc::BlockId;
use crate::transfer::{SpillBlock, StoreBlock};

/// Bytes in the host's memory.
#[derive(Debug)]
pub(crate) enum HostCopy {
    /// Memory of the host alone.
    Plain {
        /// Empty on a simulated device without contents.
        bytes: Vec<u8>,
        /// Frees the bytes in the host's account when the copy is dropped.
        charge: HostCharge,
    },
    /// A block of the heap that the device addresses. It is lost with the device.
    Heap(HeapBlock),
}

impl HostCopy {
    /// The bytes that become free when the copy is dropped.
    pub(super) fn size_bytes(&self) -> u64 {
        match self {
            HostCopy::Plain { charge, .. } => charge.size_bytes(),
            HostCopy::Heap(block) => block.part.size_bytes,
        }
    }
}

/// The tiers that keep evicted bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    Host,
    /// A store of the app, by its number.
    Store(u8),
    /// The disk, and a source.
    Disk,
}

/// A block of the heap. It is freed on drop, at the next look at the dead list.
#[derive(Debug)]
pub(crate) struct HeapBlock {
    pub(super) part: HeapPart,
    _charge: Option<HostCharge>,
    dead: Arc<DeadList>,
}

impl HeapBlock {
    pub(super) fn new(part: HeapPart, account: &Arc<HostAccount>, dead: &Arc<DeadList>) -> Self {
        HeapBlock {
            part,
            _charge: account.charge(HostUse::Block, part.size_bytes),
            dead: dead.clone(),
        }
    }
}

impl Drop for HeapBlock {
    fn drop(&mut self) {
        self.dead.push(Dead::HeapBlock(self.part));
    }
}

/// Number of a rematerializer of the engine, with its inputs and the last write to each input.
/// Dropping the token drops the rematerializer.
#[derive(Debug)]
pub(crate) struct RematerializerToken {
    pub(super) id: u64,
    pub(crate) inputs: Vec<(Arc<Storage>, u64)>,
    /// The engine registered it for an eviction, and not the app. Then the value must not be lost:
    /// before a write to an input, the storage is computed.
    pub(super) is_automatic: bool,
    pub(super) dead: Arc<DeadList>,
}

impl RematerializerToken {
    /// The rematerializer's number.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for RematerializerToken {
    fn drop(&mut self) {
        for (input, _) in &self.inputs {
            input.unfeed_rematerializer();
        }
        self.dead.push(Dead::Rematerializer(self.id));
    }
}

/// Where a storage's bytes are besides the device. A write on the device invalidates all copies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copies {
    pub(crate) host: Option<Arc<HostCopy>>,
    /// The number of a store of the app, and the block there.
    pub(crate) store: Option<(u8, Arc<StoreBlock>)>,
    pub(crate) disk: Option<Arc<SpillBlock>>,
    pub(crate) source: Option<Source>,
    pub(crate) rematerializer: Option<Arc<RematerializerToken>>,
}

/// Outdated copies. The engine drops them later, where no thread waits.
#[allow(
    clippy::vec_box,
    reason = "they come boxed, one or two at a time; to unbox them would be to copy them"
)]
pub(crate) type Gone = Vec<Box<Copies>>;

impl Copies {
    pub(crate) fn is_empty(&self) -> bool {
        self.rematerializer.is_none() && !self.has_bytes()
    }

    /// Can the bytes be read, without computing them again?
    pub(crate) fn has_bytes(&self) -> bool {
        self.host.is_some() || self.has_bytes_below_host()
    }

    /// Can the bytes be read in a store, on disk or from a source?
    pub(super) fn has_bytes_below_host(&self) -> bool {
        self.store.is_some() || self.disk.is_some() || self.source.is_some()
    }

    /// Does nothing but the host's memory have the bytes, or give them again?
    pub(super) fn is_only_on_host(&self) -> bool {
        let is_elsewhere = self.has_bytes_below_host() || self.rematerializer.is_some();
        self.host.is_some() && !is_elsewhere
    }

    /// The block in the heap of the host's memory, if the bytes are there.
    pub(crate) fn heap_block(&self) -> Option<&HeapBlock> {
        match self.host.as_deref()? {
            HostCopy::Heap(block) => Some(block),
            HostCopy::Plain { .. } => None,
        }
    }

    /// Are bytes in this tier? A source counts as no disk here.
    pub(super) fn is_in(&self, tier: Tier) -> bool {
        match tier {
            Tier::Host => self.host.is_some(),
            Tier::Store(number) => self.store.as_ref().is_some_and(|(of, _)| *of == number),
            Tier::Disk => self.disk.is_some(),
        }
    }

    /// Takes the copy in this tier out.
    pub(super) fn take(&mut self, tier: Tier) -> Copies {
        let mut taken = Copies::default();
        match tier {
            Tier::Host => taken.host = self.host.take(),
            Tier::Store(_) => taken.store = self.store.take(),
            Tier::Disk => taken.disk = self.disk.take(),
        }
        taken
    }

    /// Takes over the copies of another, which hold the same bytes.
    pub(crate) fn add(&mut self, other: Copies) {
        self.host = other.host.or_else(|| self.host.take());
        self.store = other.store.or_else(|| self.store.take());
        self.disk = other.disk.or_else(|| self.disk.take());
        self.source = other.source.or_else(|| self.source.take());
        self.rematerializer = other.rematerializer.or_else(|| self.rematerializer.take());
    }

    /// The tier that gives the bytes first.
    pub(crate) fn tier(&self) -> Tier {
        match (&self.host, &self.store) {
            (Some(_), _) => Tier::Host,
            (None, Some((number, _))) => Tier::Store(*number),
            (None, None) => Tier::Disk,
        }
    }

    /// The residency of a storage that has only these copies.
    pub(crate) fn residency(&self) -> Residency {
        if self.host.is_some() {
            Residency::Host
        } else if self.store.is_some() {
            Residency::Store
        } else if self.disk.is_some() {
            Residency::Disk
        } else if !self.is_empty() {
            Residency::Backed
        } else {
            Residency::Pending
        }
    }
}

/// Where a storage's bytes are kept beside the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) on_host: bool,
    /// The block, if the host's copy is in the heap that the device addresses.
    pub(crate) in_heap: Option<BlockId>,
    pub(crate) in_store: Option<u8>,
    pub(crate) on_disk: bool,
    pub(crate) at_source: bool,
}

impl Kept {
    /// Is nothing kept?
    pub(crate) fn is_nothing(self) -> bool {
        self == Kept::default()
    }
}
