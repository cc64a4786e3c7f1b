//! What happened and what is there, for people: reads everything, changes nothing.

mod stats;

pub use stats::MemoryStats;
