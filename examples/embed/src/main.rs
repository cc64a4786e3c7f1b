//! Semantic search on the command line: finds sentences in a folder's texts by their meaning.
//!
//! ```text
//! cargo xtask fetch-model
//! cd examples && cargo run --release -p embed -- index
//! cargo run --release -p embed -- search "give memory back to the driver"
//! ```
//!
//! `--weights f16`, `int8` or `int8:64` keeps the weights in fewer bits.
//!
//! Without `--folder` the texts are the documentation comments in the sources of the packages that
//! this program was built from. They are on this machine anyway.

mod program;

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match program::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Print line by line, because cargo's messages have several lines. A closed output does
            // not matter.
            for line in format!("embed: {error}").lines() {
                let _ = writeln!(std::io::stderr(), "{}", program::printable(line));
            }
            ExitCode::FAILURE
        }
    }
}
