//! The program `lapidary`, snapshots as others see them, and traces through the allocator and the
//! whole engine.

#[cfg(feature = "cli")]
mod cli;
mod snapshots;
#[cfg(feature = "replay")]
mod traces;
