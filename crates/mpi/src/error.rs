//! What can go wrong between ranks.

use std::time::Duration;

/// An error of a collective operation, or of the program on another rank.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of this rank's own device or tensors. The other ranks get [`Failed`](Self::Failed).
    #[error(transparent)]
    Lapidary(#[from] lapidary::Error),
    /// Another rank makes another call, or the same call with other shapes or types. No tensor has
    /// changed, and the next call may be right.
    #[error(
        "call {number} of rank {rank} is {here}, and that of rank {other} is {there}. Make the \
         same calls with the same shapes and types on all ranks, in the same order"
    )]
    Differs {
        /// The number of the call, counted from 1.
        number: u64,
        /// This rank.
        rank: usize,
        /// What this rank calls.
        here: String,
        /// The first rank that makes another call.
        other: usize,
        /// What that rank calls.
        there: String,
    },
    /// Another rank refused a call, or its program failed. If it refused a call, no tensor has
    /// changed, and the next call may be right.
    #[error("{name} failed: {reason}")]
    Failed {
        /// The rank that failed.
        rank: usize,
        /// Its number, host and process, for people.
        name: String,
        /// Its error.
        reason: String,
    },
    /// A call took longer than [`RanksOptions::timeout`](crate::RanksOptions::timeout).
    #[error(
        "{operation} took longer than {} s. {}",
        .waited.as_secs_f32(),
        silence(.silent, .names)
    )]
    TimedOut {
        /// The call.
        operation: String,
        /// How long this rank waited.
        waited: Duration,
        /// The ranks that do not answer: they compute, are stopped, or cannot be reached.
        silent: Vec<usize>,
        /// Their numbers, hosts and processes, for people.
        names: Vec<String>,
    },
    /// An argument that no rank may give.
    #[error("{operation}: {reason}")]
    Argument {
        /// The operation.
        operation: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// MPI is not there, or in use already.
    #[error("MPI cannot be used: {reason}")]
    Start {
        /// What is in the way.
        reason: String,
    },
    /// A function of MPI failed.
    #[error("{function} failed: {reason}")]
    Mpi {
        /// The function.
        function: &'static str,
        /// MPI's own words.
        reason: String,
    },
}

/// The result of a collective operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Who does not answer, and what to do.
fn silence(silent: &[usize], names: &[String]) -> String {
    match silent {
        [] => "All ranks answer, so some compute for longer, or the network is slow: raise the \
               time-out"
            .into(),
        _ => format!(
            "No answer from {}: computing, stopped or cut off. If that is expected, raise the \
             time-out",
            names.join(", ")
        ),
    }
}
