//! The table: everything that lapidary is measured by, beside what this machine's cores can do, in
//! one run.
//!
//! ```text
//! cargo xtask bench                 # all of it, as a table, Markdown and a plot
//! cargo bench --features sim --bench table -- [--json] [--list] [PART OF A NAME]…
//! ```
//!
//! Rounds alternate between lapidary and the cores (OpenBLAS, loops over all cores, memcpy); a
//! figure is the best of each. A result that is wrong is an error and gives no figure. What is
//! measured and how is in [`harness`], which `benches/peers` uses for other libraries; [`ours`] is
//! how lapidary does it.

mod churn;
mod harness;
mod ours;

use std::process::ExitCode;

fn main() -> ExitCode {
    harness::main(|| Ok(Box::new(ours::Ours::open()?)))
}
