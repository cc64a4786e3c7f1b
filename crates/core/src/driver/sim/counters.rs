//! What a simulated device counts, and a hash of all that it was asked for.

use std::hash::{Hash, Hasher};

use super::faults::{SITES, Site};

/// The counters of a simulated device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimCounters {
    pub(super) calls: [u64; SITES],
    /// Buffers created.
    pub buffers_created: u64,
    /// Buffers destroyed.
    pub buffers_destroyed: u64,
    /// Existing buffers.
    pub buffers_live: u64,
    /// Kernels compiled.
    pub pipelines_created: u64,
    /// Existing kernels.
    pub pipelines_live: u64,
    /// Bind groups created.
    pub bind_groups_created: u64,
    /// Existing bind groups.
    pub bind_groups_live: u64,
    /// Submissions accepted.
    pub submissions: u64,
    /// Submissions that are accepted and not executed yet.
    pub submissions_pending: u64,
    /// Copies in the accepted submissions.
    pub copies: u64,
    /// The bytes of those copies.
    pub copied_bytes: u64,
    /// Clears in the accepted submissions.
    pub clears: u64,
    /// Dispatches in the accepted submissions.
    pub dispatches: u64,
    /// The time that the accepted submissions take, in nanoseconds. 0 unless the device
    /// [keeps time](super::SimOptions::keeps_time).
    pub busy_ns: u64,
    /// Bytes of all existing buffers.
    pub reserved_bytes: u64,
    /// Bytes of destroyed buffers that submissions still use.
    pub retiring_bytes: u64,
    /// The highest sum of reserved and retiring bytes.
    pub peak_bytes: u64,
    /// Calls that faults struck.
    pub faults: u64,
    /// Refusals and misuses: see [`SimHandle::complaints`](super::SimHandle::complaints).
    pub complaints: u64,
}

impl SimCounters {
    /// The number of calls of this kind so far, failed ones included.
    pub fn calls(&self, site: Site) -> u64 {
        self.calls[site as usize]
    }

    pub(super) fn count(&mut self, site: Site) {
        self.calls[site as usize] += 1;
        if site != Site::MapDone {
            self.calls[Site::AnyCall as usize] += 1;
        }
    }
}

/// A hash over numbers of fixed width, so that it does not depend on the size of `usize`.
pub(super) struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    pub(super) fn note(&mut self, what: impl Hash) {
        what.hash(self);
    }
}

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            self.write_u64(u64::from_le_bytes(padded));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        // 2^64 divided by the golden ratio.
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }
}
