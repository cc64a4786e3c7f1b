//! What can go wrong while somebody looks on.

/// Why something cannot be shown, in words for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The memory cannot be served at a socket, or a socket does not tell of it.
    #[error("monitor socket: {reason}")]
    Socket {
        /// What is the matter, where, and what to do.
        reason: String,
    },
    /// A log of RMM's cannot be read.
    #[error("the log of RMM's cannot be read: line {line}: {reason}")]
    Rmm {
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
}

/// What the calls of this library return.
pub type Result<T> = std::result::Result<T, Error>;
