//! Snapshots in the formats of others: each file here writes one, from the value alone.

mod memory_viz;
mod pickle;
mod places;
mod rmm;
mod trace;

pub use rmm::{RmmEvent, RmmRow, read_rmm};
