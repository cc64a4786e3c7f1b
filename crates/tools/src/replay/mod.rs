//! Recorded allocations through our engine on a simulated device, beside what other allocators
//! would make of them.
//!
//! Each storage of a trace becomes a buffer on the simulated device (sizes only, so that traces of
//! many GiB fit), placed at once, by the engine that runs everything else. A trace that says what
//! its operators read is replayed operator by operator, so that buffers can be evicted in between.

pub mod outcome;
pub mod policy;
pub mod rmm;
pub mod run;
pub mod spilling;
pub mod trace;
