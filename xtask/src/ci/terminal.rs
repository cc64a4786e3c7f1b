//! `lapidary top` in a real terminal. tmux provides one of a known size, and its screen is read
//! back.
//!
//! No step waits for a fixed time. After each key the test reads the screen until it shows the
//! effect, or until the time limit.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::apt;
use crate::process::{Context, Result, Shell, cmd, ensure, has};
use crate::suite::built;

/// Time limit for an effect on the screen, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two reads of the screen.
const PAUSE: Duration = Duration::from_millis(50);

/// Starts a program that trains and serves its statistics, watches it with `lapidary top`, presses
/// keys, and ends the program during that.
pub(crate) fn check(sh: &Shell) -> Result<String> {
    if cfg!(not(unix)) {
        return Ok("skipped: sockets are for Unix".into());
    }
    if !has(sh, "tmux", &["-V"]) {
        apt::install(sh, &["tmux"])?;
    }
    let (mut served, path) = Served::start(sh)?;
    let screen = Screen::start(sh, &path)?;
    let budget = |text: &str| text.contains("of a budget of 24.0 MiB");
    let works = |text: &str| text.contains(" commands/s") && !text.contains(" 0 commands/s");
    let first = screen.until("live numbers of a program at work", |text| {
        budget(text) && works(text) && text.contains("`weights`")
    })?;
    screen.until("numbers that change", |text| budget(text) && text != first)?;
    let is_whole = first.contains("bytes▼") && first.lines().count() == 32;
    ensure!(is_whole, "the picture is not as it should be:\n{first}");

    screen.press(&["-l", "s"], "holders by their peak", |text| {
        text.contains("peak▼")
    })?;
    screen.press(&["-l", "/"], "a filter to be typed", |text| {
        text.contains("holders with: _")
    })?;
    screen.press(&["-l", "momen"], "the filter", |text| {
        text.contains("momen")
    })?;
    screen.press(&["Enter"], "filtered holders", |text| {
        text.contains("holders with `momen`: 1") && !text.contains("`weights`")
    })?;
    screen.press(&["Escape"], "all holders again", |text| {
        text.contains(" holders: ") && text.contains("`weights`")
    })?;
    let help = "any key closes it";
    screen.press(&["-l", "?"], "help", |text| text.contains(help))?;
    screen.press(&["-l", "x"], "help closed", |text| !text.contains(help))?;

    screen.tmux(&["resize-window", "-t", "top", "-x", "90", "-y", "24"])?;
    screen.until("the picture in its new size", |text| {
        let keys = text.lines().nth(23).filter(|keys| keys.contains("q quit"));
        text.lines().count() == 24 && keys.is_some()
    })?;

    served.end();
    let why = "the process has ended";
    screen.until("that nobody is there any more", |text| text.contains(why))?;
    screen.press(&["-l", "q"], "the terminal as it was", |text| {
        text.contains("it ended with 0") && !text.contains("holders")
    })?;
    Ok("numbers move, keys are answered, the terminal is left as it was".into())
}

/// The watched program.
struct Served(Child);

impl Served {
    /// Starts it. Returns the path of its socket too, which it prints at the start.
    fn start(sh: &Shell) -> Result<(Served, String)> {
        let mut program = Command::from(built(sh, "examples/monitor")?.arg("--serve"));
        let mut served = Served(program.stdout(Stdio::piped()).spawn()?);
        let out = served
            .0
            .stdout
            .take()
            .context("the example `monitor` has no output")?;
        let mut lines = BufReader::new(out).lines().map_while(std::io::Result::ok);
        let path = lines.find_map(|line| Some(line.strip_prefix("lapidary top ")?.to_owned()));
        Ok((
            served,
            path.context("the example `monitor` does not serve")?,
        ))
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}

/// A terminal of 120 columns and 32 lines, with its own tmux server.
struct Screen<'a>(&'a Shell);

impl Screen<'_> {
    fn start<'a>(sh: &'a Shell, path: &str) -> Result<Screen<'a>> {
        let screen = Screen(sh);
        let program = built(sh, "lapidary")?.to_string();
        // The words are arguments of the shell, so the shell does not interpret them.
        let script = r#""$0" top "$1"; echo "it ended with $?"; exec sleep 600"#;
        let new = [
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-s",
            "top",
            "-x",
            "120",
            "-y",
            "32",
        ];
        screen.tmux(&[&new[..], &["sh", "-c", script, &program, path]].concat())?;
        Ok(screen)
    }

    fn tmux(&self, args: &[&str]) -> Result<String> {
        let (sh, server) = (self.0, format!("lapidary-{}", std::process::id()));
        let tmux = cmd!(sh, "tmux -u -L {server} {args...}");
        Ok(tmux.env("LC_ALL", "C.UTF-8").env_remove("TMUX").read()?)
    }

    /// Presses a key by its name, or types characters behind `-l`, and waits for the effect.
    fn press(&self, keys: &[&str], effect: &str, is_there: impl Fn(&str) -> bool) -> Result<()> {
        self.tmux(&[&["send-keys", "-t", "top"], keys].concat())?;
        self.until(effect, is_there).map(drop)
    }

    /// Reads the screen until the condition holds. The error has the last screen.
    fn until(&self, what: &str, is_there: impl Fn(&str) -> bool) -> Result<String> {
        let start = Instant::now();
        loop {
            let text = self.tmux(&["capture-pane", "-p", "-t", "top"])?;
            if is_there(&text) {
                return Ok(text);
            }
            let is_late = start.elapsed() >= PATIENCE;
            ensure!(
                !is_late,
                "`lapidary top` has not shown {what} within {PATIENCE:?}:\n{text}"
            );
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}
