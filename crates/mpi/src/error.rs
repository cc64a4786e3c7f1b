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
    /// A call took longer than [`RanksOptions::timeout`](crate::RanksOptions::timeout): on this
    /// rank, or on another one that told this one.
    #[error("{operation} took longer than {:.1} s on rank {rank}. {reason}", .waited.as_secs_f32())]
    TimedOut {
        /// The call.
        operation: String,
        /// The rank that waited, and found out about the others.
        rank: usize,
        /// How long it waited.
        waited: Duration,
        /// The ranks that do not answer: they compute, are stopped, dead, or cannot be reached.
        silent: Vec<usize>,
        /// The ranks that answer and have not come to the call: the backward of a
        /// [`Replica`](crate::Replica) computes or hangs, or they wait for others in an earlier
        /// call.
        late: Vec<usize>,
        /// The numbers, hosts and processes of those ranks, where they are, and what to do.
        reason: String,
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
