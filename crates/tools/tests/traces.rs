//! Traces of what programs allocate and use, made up and recorded: who leaves when memory is short,
//! against one who knows the future, and what the whole engine reserves, moves and evicts.
//!
//! `LAPIDARY_SEED` sets the seed.

mod patterns;
mod recorded;
