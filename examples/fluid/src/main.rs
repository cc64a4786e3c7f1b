//! A fluid that is computed in lapidary's tensors on the device of a program with a window. The
//! program's own render pass draws it from the tensor's range. The program also keeps the fluid's
//! past, which needs more than the budget. So the memory manager evicts old frames, and restores
//! them when the user looks back.
//!
//! ```text
//! cd examples
//! cargo run --release -p fluid
//! cargo run --release -p fluid -- --png fluid.png   # the same without a window
//! ```

mod args;
mod device;
mod headless;
mod pace;
mod panel;
mod picture;
mod scene;
mod times;
mod window;

use std::error::Error;
use std::process::ExitCode;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let args = match args::read(std::env::args().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            print!("{}", args::HELP);
            return ExitCode::SUCCESS;
        }
        Err(sentence) => {
            eprintln!("fluid: {sentence}\n\n{}", args::HELP);
            return ExitCode::from(2);
        }
    };
    let done = match &args.png {
        Some(path) => headless::run(&args, path),
        None => window::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fluid: {error}");
            ExitCode::FAILURE
        }
    }
}
