//! Semantic search on the command line: what a folder's texts say, found by what it means.
//!
//! ```text
//! cargo xtask fetch-model
//! cd examples && cargo run --release -p embed -- index
//! cargo run --release -p embed -- search "give memory back to the driver"
//! ```
//!
//! `--weights f16`, `int8` or `int8:64` keeps the weights in fewer bits.
//!
//! Without `--folder` the texts are the comments of documentation in the sources of the packages
//! that this was built from, which are on this machine anyway.

mod program;

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match program::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Line by line, since what cargo says has several; and whether anybody reads it is all
            // the same.
            for line in format!("embed: {error}").lines() {
                let _ = writeln!(std::io::stderr(), "{}", program::printable(line));
            }
            ExitCode::FAILURE
        }
    }
}
