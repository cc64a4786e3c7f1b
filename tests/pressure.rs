//! Memory under pressure on a simulated device. Random programs run under random budgets, with
//! evictions, moves, drops, rematerialization and device losses. Every byte is compared with plain
//! vectors. Also every call of the driver and of the file system fails once, and bad input is
//! tried.
//!
//! `LAPIDARY_SEED` also chooses which calls fail, and `LAPIDARY_PROGRAMS` makes more calls fail, up
//! to all of them.

mod faults;
mod input;
mod programs;
mod training;
