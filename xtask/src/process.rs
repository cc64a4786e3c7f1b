//! Starts programs. Each command is printed, and each failure becomes a sentence.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The error is a sentence for the person at the terminal.
pub(crate) type Result<T = ()> = std::result::Result<T, String>;

/// The output of a watched program, and whether it succeeded.
pub(crate) struct Watched {
    pub(crate) succeeded: bool,
    pub(crate) lines: Vec<String>,
}

/// The repository's root, in which every program is started.
pub(crate) fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest
        .parent()
        .expect("xtask lies inside the workspace")
        .to_owned()
}

/// The folder of build outputs, where the chores also keep unpacked files.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// A command that starts in the repository's root and has no input.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// The cargo that started this program.
pub(crate) fn cargo() -> Command {
    command(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
}

/// Whether `cargo NAME` is installed.
pub(crate) fn has_cargo_command(name: &str) -> bool {
    capture(cargo().args([name, "--version"])).is_ok()
}

/// Runs a program, which writes to our terminal. Fails if the program fails.
pub(crate) fn run(command: &mut Command) -> Result {
    announce(command);
    let status = command
        .status()
        .map_err(|error| cannot_start(command, &error))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{}` failed ({status}).", shown(command)))
    }
}

/// Runs a program whose output is of no interest. A failure shows its error output.
pub(crate) fn run_quietly(command: &mut Command) -> Result {
    announce(command);
    capture(command).map(drop)
}

/// Runs a program that uses a registry, quietly, and again after a failure: connections break.
pub(crate) fn run_persistently(command: &mut Command) -> Result {
    const PAUSES: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(20)];
    for pause in PAUSES {
        match run_quietly(command) {
            Ok(()) => return Ok(()),
            Err(sentence) => eprintln!("{sentence} Once more in {pause:?}."),
        }
        thread::sleep(pause);
    }
    run_quietly(command)
}

/// Runs a program and passes each line to `take` when it comes. Errors go to our terminal. Returns
/// whether the program succeeded.
pub(crate) fn each_line(command: &mut Command, mut take: impl FnMut(&str)) -> Result<bool> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| cannot_start(command, &error))?;
    if let Some(stdout) = child.stdout.take() {
        let lines = BufReader::new(stdout)
            .lines()
            .map_while(std::io::Result::ok);
        lines.for_each(|line| take(&line));
    }
    let status = child
        .wait()
        .map_err(|error| cannot_start(command, &error))?;
    Ok(status.success())
}

/// Runs a program silently and returns its output; fails with its error output.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .map_err(|error| cannot_start(command, &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "`{}` failed ({}): {}",
        shown(command),
        output.status,
        complaint.trim()
    ))
}

/// Runs a program, prints the lines that `is_shown` selects, and keeps all lines.
pub(crate) fn watch(command: &mut Command, is_shown: fn(&str) -> bool) -> Result<Watched> {
    announce(command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| cannot_start(command, &error))?;
    let (sender, receiver) = mpsc::channel();
    let stdout = child
        .stdout
        .take()
        .expect("the child was started with a pipe");
    let stderr = child
        .stderr
        .take()
        .expect("the child was started with a pipe");
    let readers = [forward(stdout, sender.clone()), forward(stderr, sender)];
    let mut lines = Vec::new();
    for line in receiver {
        if is_shown(&line) {
            println!("{line}");
        }
        lines.push(line);
    }
    for reader in readers {
        reader
            .join()
            .expect("reading lines from a pipe does not panic");
    }
    let status = child
        .wait()
        .map_err(|error| cannot_start(command, &error))?;
    Ok(Watched {
        succeeded: status.success(),
        lines,
    })
}

fn forward(
    stream: impl Read + Send + 'static,
    lines: mpsc::Sender<String>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while stream
            .read_until(b'\n', &mut line)
            .is_ok_and(|length| length > 0)
        {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if lines.send(text).is_err() {
                return;
            }
            line.clear();
        }
    })
}

fn announce(command: &Command) {
    eprintln!("\n$ {}", shown(command));
}

/// The command as a person would type it, with the variables that we set, except for the long
/// search path.
fn shown(command: &Command) -> String {
    let mut text = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value.filter(|_| name != "PATH") {
            let _ = write!(
                text,
                "{}={} ",
                name.to_string_lossy(),
                quoted(&value.to_string_lossy())
            );
        }
    }
    let program = PathBuf::from(command.get_program());
    let is_cargo = program.file_stem().is_some_and(|stem| stem == "cargo");
    text += if is_cargo {
        "cargo"
    } else {
        program.to_str().unwrap_or("program")
    };
    for arg in command.get_args() {
        let _ = write!(text, " {}", quoted(&arg.to_string_lossy()));
    }
    text
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,+@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    let quote = if word.contains('\'') { '"' } else { '\'' };
    format!("{quote}{word}{quote}")
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    format!("`{}` cannot be run: {error}.", shown(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let mut command = command("echo");
        command.env("A", "1").args(["two words", "plain"]);
        assert_eq!(shown(&command), "A=1 echo 'two words' plain");
    }

    #[test]
    fn a_failing_program_is_an_error_that_names_it() {
        let complaint =
            capture(cargo().arg("no-such-command")).expect_err("there is no such command");
        assert!(complaint.contains("cargo no-such-command"), "{complaint}");
    }

    #[test]
    fn a_watched_program_keeps_every_line() {
        let seen = watch(cargo().arg("--version"), |_| false).expect("cargo runs");
        assert!(
            seen.succeeded && seen.lines[0].starts_with("cargo "),
            "{:?}",
            seen.lines
        );
    }
}
