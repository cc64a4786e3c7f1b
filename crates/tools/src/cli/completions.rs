//! `lapidary completions`: scripts that complete command lines in a shell.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::failure::Result;

/// Print a script that completes command lines in a shell
///
/// For bash: `lapidary completions bash > ~/.local/share/bash-completion/completions/lapidary`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which shell
    shell: Shell,
}

pub(crate) fn completions(args: &Args, out: &mut dyn Write) -> Result {
    // clap panics if stdout is closed. Writing to a vector does not fail.
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut crate::Cli::command(),
        "lapidary",
        &mut script,
    );
    Ok(out.write_all(&script)?)
}
