//! What happened and what is there, for people: reads everything, changes nothing.

mod history;
#[cfg(feature = "snapshot")]
mod json;
mod measure;
#[cfg(feature = "serde")]
mod rows;
mod snapshot;
mod stats;

pub use history::History;
pub use measure::{Measure, Measured};
pub use snapshot::Snapshot;
pub use stats::MemoryStats;
