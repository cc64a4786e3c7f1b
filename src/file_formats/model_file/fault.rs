//! What is wrong with a file or a request.

use lapidary_core::{Error, failure::ModelFailure};

/// A problem with a file or a request: its kind and its description.
#[derive(Debug)]
pub(crate) struct ModelFault(pub(crate) ModelFailure, pub(crate) String);

impl ModelFault {
    pub(super) fn damaged(reason: impl Into<String>) -> ModelFault {
        ModelFault(ModelFailure::Damaged, reason.into())
    }
}

/// The crate's error.
pub(super) fn error(path: &str, ModelFault(failure, reason): ModelFault) -> Error {
    Error::Model {
        path: path.to_owned(),
        failure,
        reason,
    }
}

/// Refuses systems where numbers would need their bytes swapped.
pub(super) fn check_system() -> Result<(), ModelFault> {
    if cfg!(target_endian = "big") {
        let reason = "this machine is big-endian, and the file is little-endian";
        return Err(ModelFault(ModelFailure::Unavailable, reason.into()));
    }
    Ok(())
}
