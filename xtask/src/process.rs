//! Programs are started by xshell, which prints their commands. Here is what it lacks, and what
//! pico-args lacks.

use std::env;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use pico_args::Arguments;

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

/// The result of a check that has nothing to tell.
pub(crate) const PASSED: String = String::new();

/// The arguments for a program, without the dashes in front of them.
pub(crate) fn words(args: Arguments) -> Vec<String> {
    let mut rest = args.finish().into_iter().peekable();
    rest.next_if(|arg| arg == "--");
    rest.map(|arg| arg.to_string_lossy().into_owned()).collect()
}

/// An error if arguments are left.
pub(crate) fn nothing_else(args: Arguments) -> Result<()> {
    let rest = args.finish();
    ensure!(rest.is_empty(), "{rest:?}: see `cargo xtask VERB --help`");
    Ok(())
}

/// Whether a command runs without an error.
pub(crate) fn has(sh: &Shell, command: &str) -> bool {
    let mut words = command.split(' ');
    let program = words.next().unwrap_or_default();
    let command = cmd!(sh, "{program} {words...}");
    command.ignore_stderr().read().is_ok()
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

/// Runs a program and passes each line to `take` when it comes, also those of errors if wanted.
/// Those go to our terminal otherwise. Returns whether the program succeeded.
pub(crate) fn each_line(
    command: Cmd<'_>,
    errors_too: bool,
    mut take: impl FnMut(&str),
) -> Result<bool> {
    let mut command = Command::from(command);
    let (out, into) = io::pipe()?;
    if errors_too {
        command.stderr(into.try_clone()?);
    }
    let started = command.stdin(Stdio::null()).stdout(into).spawn();
    let mut child = started.with_context(|| format!("{:?}", command.get_program()))?;
    // The command holds the other end of the pipe.
    drop(command);
    for line in BufReader::new(out).split(b'\n') {
        take(String::from_utf8_lossy(&line?).trim_end());
    }
    Ok(child.wait()?.success())
}

/// Runs a program, prints its lines, and keeps them. Returns whether it succeeded, too.
pub(crate) fn watch(command: Cmd<'_>, errors_too: bool) -> Result<(bool, Vec<String>)> {
    eprintln!("$ {command}");
    let mut lines = Vec::new();
    let succeeded = each_line(command, errors_too, |line| {
        println!("{line}");
        lines.push(line.to_owned());
    })?;
    Ok((succeeded, lines))
}

/// Runs a program to its end, and returns its lines.
pub(crate) fn lines_of(command: Cmd<'_>) -> Result<Vec<String>> {
    let name = command.to_string();
    let (succeeded, lines) = watch(command, true)?;
    ensure!(succeeded, "`{name}` failed");
    Ok(lines)
}

/// A program beside us, which is killed if this is dropped.
pub(crate) struct Background {
    pub(crate) child: Child,
    lines: mpsc::Receiver<String>,
}

impl Background {
    pub(crate) fn start(command: Cmd<'_>) -> Result<Background> {
        eprintln!("$ {command} &");
        let mut command = Command::from(command);
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("{:?}", command.get_program()))?;
        let out = child.stdout.take().context("it has no output")?;
        let (into, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut told = BufReader::new(out).lines().map_while(Result::ok);
            told.try_for_each(|line| into.send(line))
        });
        Ok(Background { child, lines })
    }

    /// The rest of the next line that has these words.
    pub(crate) fn said(&self, words: &str) -> Result<String> {
        let mut lines = self.lines.iter();
        let rest = lines.find_map(|line| Some(line.split_once(words)?.1.to_owned()));
        rest.with_context(|| format!("a program ended, and never said `{words}`"))
    }

    /// Waits until it ends, and returns the other lines.
    pub(crate) fn end(&mut self) -> Result<Vec<String>> {
        let status = self.child.wait()?;
        ensure!(status.success(), "a program ended with {status}");
        Ok(self.lines.iter().collect())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
