//! The reasons for which a device refuses.

#[cfg(any(test, feature = "sim"))]
use std::sync::Arc;

#[cfg(any(test, feature = "sim"))]
use crate::error::KernelError;

/// The reason for a driver's refusal. The engine turns it into the crate's error, with tags and
/// numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DriverError {
    /// The device has no memory for it now.
    OutOfMemory,
    /// The device may have memory, but the budget has no room.
    OverBudget,
    /// The device is lost, with the reason.
    Lost(String),
    /// The device calls the request invalid, with its message.
    Invalid(String),
    /// A kernel is wrong at a place in its text. Only a simulated device looks at what kernels do.
    #[cfg(any(test, feature = "sim"))]
    Kernel(Arc<KernelError>),
}

impl DriverError {
    /// The refusal for a caller whose device was replaced meanwhile.
    pub(super) fn replaced() -> Self {
        DriverError::Lost("the device was replaced before it was done".to_owned())
    }
}

pub(crate) type DriverResult<T> = Result<T, DriverError>;

/// The refusal of an invalid request.
pub(super) fn invalid<T>(message: impl Into<String>) -> DriverResult<T> {
    Err(DriverError::Invalid(message.into()))
}
