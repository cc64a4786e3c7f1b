//! Tensors over several machines, by MPI.
//!
#![doc = include_str!("../README.md")]

mod checked;
mod collectives;
mod cut;
mod error;
mod exchange;
mod flight;
mod header;
mod late;
mod mailbox;
mod moves;
mod notes;
mod place;
mod ranks;
mod replica;
mod run;

/// Compiles the examples of the guide `on_a_cluster` of `lapidary`.
#[cfg(doctest)]
#[doc = include_str!("../../../src/guides/on_a_cluster.md")]
pub struct Guide;

pub use error::{Error, Result};
pub use ranks::{Ranks, RanksOptions};
pub use replica::{Backward, Replica};
pub use run::run;
