//! The command line: `lapidary COMMAND`. Each command has its own file. Commands use the library as
//! an app does.
//!
//! Exit codes: 0 for success, 1 for a failure, 2 for wrong arguments.

mod cli;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use cli::failure::{Failure, Result};
use cli::style::{Style, When};

/// Show the memory of GPU programs: adapters, snapshots, recorded allocations, running programs
#[derive(Debug, Parser)]
#[command(name = "lapidary", version, max_term_width = 100)]
struct Cli {
    /// When to print in colours
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "auto",
        value_name = "WHEN"
    )]
    color: When,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Info(cli::info::Args),
    View(cli::view::Args),
    Diff(cli::diff::Args),
    Replay(cli::replay::Args),
    #[cfg(unix)]
    Top(cli::top::Args),
    Completions(cli::completions::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let style = Style::new(cli.color);
    match run(&cli.command, style) {
        Ok(()) | Err(Failure::NobodyReads) => ExitCode::SUCCESS,
        Err(failure) => {
            // If stderr is closed too, the message is lost.
            let _ = writeln!(io::stderr(), "lapidary: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command, style: Style) -> Result {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        Command::Info(args) => cli::info::info(args, style, &mut out)?,
        Command::View(args) => cli::view::view(args, style, &mut out)?,
        Command::Diff(args) => cli::diff::diff(args, style, &mut out)?,
        #[cfg(unix)]
        Command::Top(args) => cli::top::top(args, &mut out)?,
        Command::Replay(args) => cli::replay::replay(args, style, &mut out)?,
        Command::Completions(args) => cli::completions::completions(args, &mut out)?,
    }
    Ok(out.flush()?)
}
