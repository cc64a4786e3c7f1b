//! Copies of a storage's bytes that are not on the device: each of them is valid, or it is not kept.

use std::sync::Arc;

use super::budget::HostCharge;
use super::{Residency, Source};
use crate::transfer::SpillBlock;

/// Bytes in the host's memory, paid for.
#[derive(Debug)]
pub(crate) struct HostCopy {
    pub(crate) bytes: Vec<u8>,
    /// Takes the bytes off the account when the copy goes.
    pub(crate) _charge: HostCharge,
}

/// Where a storage's bytes are besides the device. A write on the device ends them all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copies {
    pub(crate) host: Option<Arc<HostCopy>>,
    pub(crate) disk: Option<Arc<SpillBlock>>,
    pub(crate) source: Option<Source>,
}

impl Copies {
    pub(crate) fn is_empty(&self) -> bool {
        self.host.is_none() && self.disk.is_none() && self.source.is_none()
    }

    /// Takes over the copies of another, which hold the same.
    pub(crate) fn add(&mut self, other: Copies) {
        self.host = other.host.or_else(|| self.host.take());
        self.disk = other.disk.or_else(|| self.disk.take());
        self.source = other.source.or_else(|| self.source.take());
    }

    /// Where a storage is that is nowhere else.
    pub(crate) fn residency(&self) -> Residency {
        if self.host.is_some() {
            Residency::Host
        } else if self.disk.is_some() {
            Residency::Disk
        } else if self.source.is_some() {
            Residency::Backed
        } else {
            Residency::Pending
        }
    }
}
