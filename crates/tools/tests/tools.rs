//! The program `lapidary`, snapshots in other formats, and traces through the allocator and the
//! whole engine.

#[cfg(feature = "cli")]
mod cli;
mod snapshots;
#[cfg(feature = "replay")]
mod traces;
