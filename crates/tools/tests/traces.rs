//! Generated and recorded traces of programs. The tests compare the choice of victims with Belady's
//! algorithm, and check what the whole engine reserves, moves and evicts.
//!
//! `LAPIDARY_SEED` sets the seed.

mod patterns;
mod recorded;
