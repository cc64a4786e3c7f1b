//! The table: all figures of lapidary beside what this machine's cores can do, in one run.
//!
//! ```text
//! cargo xtask bench                 # all of it, as a table and as Markdown
//! cargo bench --bench table -- [--json] [--list] [PART OF A NAME]…
//! ```
//!
//! Rounds alternate between lapidary and the cores (OpenBLAS, loops over all cores, memcpy), and
//! the best round of each counts. A wrong result is an error and gives no figure.
//! [`lapidary_harness`] has the cases and the method, which `benches/peers` uses for other
//! libraries. [`ours`] has lapidary's side.

mod churn;
mod ours;

use std::process::ExitCode;

fn main() -> ExitCode {
    lapidary_harness::main(|| Ok(Box::new(ours::Ours::open()?)))
}
