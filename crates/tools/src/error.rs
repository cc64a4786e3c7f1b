//! The errors of this library.

/// Why memory cannot be shown. The messages are for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The socket cannot be opened, or the process behind a socket does not answer as expected.
    #[error("monitor socket: {reason}")]
    Socket {
        /// What is wrong, where, and what to do.
        reason: String,
    },
    /// A log in RMM's format cannot be read.
    #[error("the log in RMM's format cannot be read: line {line}: {reason}")]
    Rmm {
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
}

/// The result of this library's calls.
pub type Result<T> = std::result::Result<T, Error>;
