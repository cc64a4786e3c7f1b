//! Errors of the program, and refusals that clients get.

use std::path::PathBuf;

use thiserror::Error as ThisError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the server cannot start.
#[derive(Debug, ThisError)]
pub enum Error {
    /// The file of tenants cannot be read.
    #[error("{}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    /// The tenants contradict each other.
    #[error("{0}")]
    Tenants(String),
    /// A limit makes no sense.
    #[error("`{option}`: {reason}")]
    Option {
        option: &'static str,
        reason: String,
    },
    /// The address cannot be used.
    #[error("{address}: {cause}")]
    Address {
        address: String,
        cause: std::io::Error,
    },
    /// The system has no thread for us.
    #[error("no thread could be started: {0}")]
    Thread(std::io::Error),
    /// An error of the model.
    #[error(transparent)]
    Model(#[from] embed::Error),
    /// An error of lapidary.
    #[error(transparent)]
    Gpu(#[from] lapidary::Error),
}

/// Why a client gets no vectors. None of these tells a client about the device's memory.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub(crate) enum Refusal {
    #[error("give a key: `Authorization: Bearer KEY`")]
    NoKey,
    #[error("this key is unknown")]
    UnknownKey,
    #[error("a body has at most {limit_bytes} bytes")]
    TooLarge { limit_bytes: usize },
    #[error("the body did not arrive within {seconds} s")]
    TooSlow { seconds: u64 },
    #[error("{0}")]
    Invalid(String),
    /// The tenant has as much waiting as it may have.
    #[error("{waiting} texts of yours wait, of at most {most}: ask again in {retry_after_s} s")]
    Full {
        waiting: usize,
        most: usize,
        retry_after_s: u64,
    },
    /// The device was lost, or has no room now, or the server stops.
    #[error("{why}: ask again in {retry_after_s} s")]
    Unavailable {
        why: &'static str,
        retry_after_s: u64,
    },
    /// A fault of ours, which the log has.
    #[error("the server failed")]
    Failed,
}

impl Refusal {
    /// The status code of HTTP.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Refusal::NoKey | Refusal::UnknownKey => 401,
            Refusal::TooLarge { .. } => 413,
            Refusal::TooSlow { .. } => 408,
            Refusal::Invalid(_) => 400,
            Refusal::Full { .. } => 429,
            Refusal::Unavailable { .. } => 503,
            Refusal::Failed => 500,
        }
    }

    /// When the client may try again, in seconds.
    pub(crate) fn retry_after_s(&self) -> Option<u64> {
        match *self {
            Refusal::Full { retry_after_s, .. } | Refusal::Unavailable { retry_after_s, .. } => {
                Some(retry_after_s)
            }
            _ => None,
        }
    }
}
