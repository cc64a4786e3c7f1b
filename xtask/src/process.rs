//! Programs are started by xshell, which prints their commands. Here is what it lacks.

use std::env;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

pub(crate) use anyhow::{Context, Result, bail, ensure};
pub(crate) use xshell::{Cmd, Shell, cmd};

/// The repository's root, in which every program is started.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = manifest.parent();
    root.expect("xtask lies inside the workspace").to_owned()
}

/// The folder of build outputs, where the chores also keep unpacked files.
pub(crate) fn target_dir() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into()))
}

/// A folder in it, which is empty.
pub(crate) fn emptied(sh: &Shell, name: &str) -> Result<PathBuf> {
    let folder = target_dir().join(name);
    sh.remove_path(&folder)?;
    Ok(sh.create_dir(folder)?)
}

/// A shell in the root. All workspaces of the repository share a folder of build outputs.
pub(crate) fn shell() -> Result<Shell> {
    let sh = Shell::new()?;
    sh.change_dir(root());
    sh.set_var("CARGO_TARGET_DIR", target_dir());
    Ok(sh)
}

/// Whether a program exists and runs.
pub(crate) fn has(sh: &Shell, program: &str, args: &[&str]) -> bool {
    let command = cmd!(sh, "{program} {args...}").ignore_stderr();
    command.read().is_ok()
}

/// Runs a program that uses a registry, and again after a failure: connections break.
pub(crate) fn run_persistently(command: Cmd<'_>) -> Result<()> {
    for pause in [5, 20] {
        match command.run() {
            Ok(()) => return Ok(()),
            Err(error) => eprintln!("{error}. Once more in {pause} s."),
        }
        thread::sleep(Duration::from_secs(pause));
    }
    Ok(command.run()?)
}

/// Runs a program and passes each line to `take` when it comes. Errors go to our terminal. Returns
/// whether the program succeeded.
pub(crate) fn each_line(command: Command, take: impl FnMut(&str)) -> Result<bool> {
    let (out, into) = io::pipe()?;
    read_lines(command, out, into, take)
}

fn read_lines(
    mut command: Command,
    out: io::PipeReader,
    into: io::PipeWriter,
    mut take: impl FnMut(&str),
) -> Result<bool> {
    let started = command.stdin(Stdio::null()).stdout(into).spawn();
    let program = command.get_program().to_owned();
    let mut child = started.with_context(|| format!("{program:?}"))?;
    // The command holds the other end of the pipe.
    drop(command);
    for line in BufReader::new(out).split(b'\n') {
        take(String::from_utf8_lossy(&line?).trim_end());
    }
    Ok(child.wait()?.success())
}

/// The output of a watched program, and whether it succeeded.
pub(crate) struct Watched {
    pub(crate) succeeded: bool,
    pub(crate) lines: Vec<String>,
}

/// Runs a program, prints the lines that `is_shown` selects, and keeps all lines.
pub(crate) fn watch(command: Cmd<'_>, is_shown: fn(&str) -> bool) -> Result<Watched> {
    eprintln!("$ {command}");
    let (out, into) = io::pipe()?;
    let mut command = Command::from(command);
    command.stderr(into.try_clone()?);
    let mut lines = Vec::new();
    let succeeded = read_lines(command, out, into, |line| {
        if is_shown(line) {
            println!("{line}");
        }
        lines.push(line.to_owned());
    })?;
    Ok(Watched { succeeded, lines })
}

/// Runs a program to its end, and returns its lines.
pub(crate) fn lines_of(command: Cmd<'_>) -> Result<Vec<String>> {
    let name = command.to_string();
    let watched = watch(command, |_| true)?;
    ensure!(watched.succeeded, "`{name}` failed");
    Ok(watched.lines)
}
