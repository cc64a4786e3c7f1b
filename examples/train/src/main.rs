//! The program: see the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    train::program(std::env::args().skip(1))
}
