//! What a dry run counts beside the statistics.

use crate::memory::TransferCost;

/// Work and transfers since a dry run began.
#[derive(Debug)]
pub(in crate::engine) struct DryRunAccount {
    launches: u64,
    /// The predicted time of the launches of the program, and of those that compute dropped
    /// storages again.
    compute_ns: f64,
    recompute_ns: f64,
    transfer_ns: u64,
    uploaded_bytes: u64,
    /// Bytes that were moved before.
    moved_before_bytes: u64,
}

impl DryRunAccount {
    pub(in crate::engine) fn new(moved_before_bytes: u64) -> Self {
        DryRunAccount {
            launches: 0,
            compute_ns: 0.0,
            recompute_ns: 0.0,
            transfer_ns: 0,
            uploaded_bytes: 0,
            moved_before_bytes,
        }
    }

    /// A launch was encoded. The prediction is that of the device.
    pub(in crate::engine) fn launched(&mut self, predicted_ns: f64, is_of_program: bool) {
        match is_of_program {
            true => {
                self.launches += 1;
                self.compute_ns += predicted_ns;
            }
            false => self.recompute_ns += predicted_ns,
        }
    }

    /// Bytes were evicted or restored.
    pub(super) fn transferred(&mut self, bytes: u64, cost: TransferCost) {
        self.transfer_ns = self.transfer_ns.saturating_add(cost.ns(bytes));
    }

    /// Bytes came from the app.
    pub(in crate::engine) fn uploaded(&mut self, bytes: u64) {
        self.uploaded_bytes += bytes;
    }

    pub(in crate::engine) fn launches(&self) -> u64 {
        self.launches
    }

    pub(in crate::engine) fn uploaded_bytes(&self) -> u64 {
        self.uploaded_bytes
    }

    /// Of all bytes that were ever moved, those that were moved since.
    pub(in crate::engine) fn moved_bytes(&self, all_bytes: u64) -> u64 {
        all_bytes.saturating_sub(self.moved_before_bytes)
    }

    /// The time of the program's launches on the device, estimated.
    pub(in crate::engine) fn compute_ns(&self) -> u64 {
        self.compute_ns as u64
    }

    /// The time of launches that compute dropped storages again, estimated.
    pub(in crate::engine) fn recompute_ns(&self) -> u64 {
        self.recompute_ns as u64
    }

    /// The time of evictions and restores, estimated.
    pub(in crate::engine) fn transfer_ns(&self) -> u64 {
        self.transfer_ns
    }
}
