//! What a dry run counts beside the statistics.

/// Work and transfers since a dry run began.
#[derive(Debug, Default)]
pub(crate) struct DryRunAccount {
    pub(crate) launches: u64,
    /// The time of the program's launches on the device, estimated.
    pub(crate) compute_ns: f64,
    /// The time of launches that compute dropped storages again, estimated.
    pub(crate) recompute_ns: f64,
    /// The time of evictions and restores, estimated.
    pub(crate) transfer_ns: u64,
    /// Bytes that came from the app.
    pub(crate) uploaded_bytes: u64,
}

impl DryRunAccount {
    /// A launch was encoded. The prediction is that of the device.
    pub(crate) fn launched(&mut self, predicted_ns: f64, is_of_program: bool) {
        match is_of_program {
            true => {
                self.launches += 1;
                self.compute_ns += predicted_ns;
            }
            false => self.recompute_ns += predicted_ns,
        }
    }
}
