//! What happened and what is there, for people: reads everything, changes nothing.

mod history;
mod measure;
mod stats;

pub use history::History;
pub use measure::{Measure, Measured};
pub use stats::MemoryStats;
