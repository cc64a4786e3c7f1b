//! Recorded allocations through our engine on a simulated device, beside the rules of other
//! allocators.
//!
//! Each storage of a trace becomes a buffer on the simulated device, placed at once by the same
//! engine that runs everything else. Buffers have sizes but no contents, so traces of many GiB fit.
//! A trace that says what its operators read is replayed by operator, so the engine can evict in
//! between.

pub mod outcome;
pub mod policy;
pub mod rmm;
pub mod run;
pub mod spilling;
pub mod trace;
