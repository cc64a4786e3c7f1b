//! What goes wrong with a store: the answer of the store, and the error of the tensor concerned.

use std::fmt;

use crate::units::Bytes;

/// Why a [`Store`](crate::stores::Store) did not do as it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreFailure {
    /// It has no room for the value.
    Full,
    /// It did not answer in time.
    TimedOut,
    /// It cannot be reached. The text says more, and may be empty.
    Gone(String),
    /// It answers, and cannot do it now. It keeps what it has. The text says why, and what must
    /// happen before.
    Later(String),
    /// It has no value under the key. The bytes are lost.
    NotFound,
    /// It has another value under the key than was written. The bytes are lost.
    Damaged(String),
    /// What held the bytes is lost, and the bytes with it. The text says more, and may be empty.
    Lost(String),
    /// Something else.
    Other(String),
}

impl StoreFailure {
    /// Whether the store answered that it does not have the bytes any more.
    pub(crate) fn is_loss(&self) -> bool {
        matches!(
            self,
            StoreFailure::NotFound | StoreFailure::Damaged(_) | StoreFailure::Lost(_)
        )
    }
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, more) = match self {
            StoreFailure::Full => ("it is full", ""),
            StoreFailure::TimedOut => ("it did not answer in time", ""),
            StoreFailure::Gone(more) => ("it cannot be reached", more.as_str()),
            StoreFailure::Later(more) => ("it cannot do that now", more.as_str()),
            StoreFailure::NotFound => ("it does not have the bytes any more", ""),
            StoreFailure::Damaged(more) => ("it has other bytes than were written", more.as_str()),
            StoreFailure::Lost(more) => ("it has lost the bytes", more.as_str()),
            StoreFailure::Other(more) => ("it failed", more.as_str()),
        };
        f.write_str(what)?;
        match more {
            "" => Ok(()),
            more => write!(f, " ({more})"),
        }
    }
}

impl std::error::Error for StoreFailure {}

/// A store did not take the bytes of a tensor, or does not give them back.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreError {
    /// The name that the app gave to the store.
    pub store: String,
    /// The operation that failed: `write` or `read`.
    pub operation: &'static str,
    /// The answer of the store.
    pub failure: StoreFailure,
    /// The size of the tensor in bytes.
    pub requested_bytes: u64,
    /// The bytes of all tensors in the store.
    pub used_bytes: u64,
    /// The most bytes that the app allows there.
    pub most_bytes: u64,
    /// Whether the engine leaves the store alone for a while, because it failed before.
    pub rests: bool,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the store `{}` could not {} a tensor of {} ({} of {} in use): {}",
            self.store,
            self.operation,
            Bytes(self.requested_bytes),
            Bytes(self.used_bytes),
            Bytes(self.most_bytes),
            self.failure,
        )?;
        if self.rests {
            f.write_str("; it is left alone for a while after failures")?;
        }
        let when = match &self.failure {
            StoreFailure::Full => {
                return f.write_str(". Drop tensors, or allow the store more bytes");
            }
            failure if failure.is_loss() => {
                return f.write_str(". Make the tensor again; give tensors that matter a source");
            }
            StoreFailure::Later(_) => "after that",
            _ => "once the store answers",
        };
        let place = match self.operation {
            "write" => "stays where it was",
            _ => "keeps its bytes there",
        };
        write!(f, ". The tensor {place}: try again {when}")
    }
}
