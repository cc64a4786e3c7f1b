//! Traces of what programs allocate and use, made up and recorded: who leaves when memory is short,
//! against one who knows the future, and what the whole engine reserves, moves and puts out.
//!
//! `LAPIDARY_SEED` sets the seed.

#[path = "../src/bin/lapidary/replay/outcome.rs"]
#[allow(dead_code, reason = "shared with the program, which prints more of it")]
mod outcome;
#[path = "traces/patterns.rs"]
mod patterns;
#[path = "../src/bin/lapidary/replay/policy/mod.rs"]
#[allow(dead_code, reason = "shared with the program, which names them")]
mod policy;
#[path = "traces/recorded.rs"]
mod recorded;
#[path = "../src/bin/lapidary/replay/run.rs"]
#[allow(dead_code, reason = "shared with the program, which prints more of it")]
mod run;
#[path = "../src/bin/lapidary/replay/spilling.rs"]
mod spilling;
#[path = "../src/bin/lapidary/replay/trace/mod.rs"]
#[allow(dead_code, reason = "shared with benches, which print more of it")]
mod trace;
#[path = "../src/memory/victims.rs"]
mod victims;
