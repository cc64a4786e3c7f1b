//! Copies of a storage's bytes that are not on the device: each of them is valid, or it is not
//! kept.

use std::sync::Arc;

use super::budget::HostCharge;
use super::{Dead, DeadList, Residency, Source, Storage};
use crate::transfer::SpillBlock;

/// Bytes in the host's memory, paid for.
#[derive(Debug)]
pub(crate) struct HostCopy {
    /// None of a device that has none.
    pub(crate) bytes: Vec<u8>,
    /// Takes the bytes off the account when the copy goes.
    pub(crate) charge: HostCharge,
}

/// A rematerializer of the engine's, by number, and what it computes from, with the last write to
/// each of those. When it goes, the rematerializer goes too.
#[derive(Debug)]
pub(crate) struct RematerializerToken {
    pub(super) id: u64,
    pub(super) inputs: Vec<(Arc<Storage>, u64)>,
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

/// Where a storage's bytes are besides the device. A write on the device ends them all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copies {
    pub(crate) host: Option<Arc<HostCopy>>,
    pub(crate) disk: Option<Arc<SpillBlock>>,
    pub(crate) source: Option<Source>,
    pub(crate) rematerializer: Option<Arc<RematerializerToken>>,
}

/// Copies that are out of date, until they are dropped where nobody waits for that.
#[allow(
    clippy::vec_box,
    reason = "they come boxed, one or two at a time; to unbox them would be to copy them"
)]
pub(crate) type Gone = Vec<Box<Copies>>;

impl Copies {
    pub(crate) fn is_empty(&self) -> bool {
        self.rematerializer.is_none() && !self.has_bytes()
    }

    /// Are the bytes to be had as they are, without computing them again?
    pub(crate) fn has_bytes(&self) -> bool {
        self.host.is_some() || self.disk.is_some() || self.source.is_some()
    }

    /// Takes over the copies of another, which hold the same.
    pub(crate) fn add(&mut self, other: Copies) {
        self.host = other.host.or_else(|| self.host.take());
        self.disk = other.disk.or_else(|| self.disk.take());
        self.source = other.source.or_else(|| self.source.take());
        self.rematerializer = other.rematerializer.or_else(|| self.rematerializer.take());
    }

    /// Where a storage is that is nowhere else.
    pub(crate) fn residency(&self) -> Residency {
        if self.host.is_some() {
            Residency::Host
        } else if self.disk.is_some() {
            Residency::Disk
        } else if !self.is_empty() {
            Residency::Backed
        } else {
            Residency::Pending
        }
    }
}
