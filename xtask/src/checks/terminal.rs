//! `lapidary top` in a real terminal. tmux provides one of a known size, and its screen is read
//! back.
//!
//! No step waits for a fixed time. After each key the test reads the screen until it shows the
//! effect, or until the time limit.

use std::thread;
use std::time::{Duration, Instant};

use crate::packages;
use crate::process::{Background, Result, Shell, cmd, ensure};
use crate::suite::built;

/// Time limit for an effect on the screen, even on a busy machine, and time between two reads.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// Keys by their names, or characters behind `-l`; what the screen then has, and what it has not.
#[rustfmt::skip]
const KEYS: &[(&[&str], &str, &str)] = &[
    (&["-l", "s"], "peak▼", "\0"),
    (&["-l", "/"], "holders with: _", "\0"),
    (&["-l", "momen"], "momen", "\0"),
    (&["Enter"], "holders with `momen`: 1", "`weights`"),
    (&["Escape"], " holders: ", "holders with"),
    (&["-l", "?"], "any key closes it", "\0"),
    (&["-l", "x"], " holders: ", "any key closes it"),
];

/// Starts a program that trains and serves its statistics, watches it with `lapidary top`, presses
/// keys, and ends the program during that.
pub(crate) fn check(sh: &Shell) -> Result<String> {
    if cfg!(not(unix)) {
        return Ok("skipped: sockets are for Unix".into());
    }
    packages::install(sh, "tmux")?;
    let served = Background::start(built(sh, "examples/monitor")?.arg("--serve"))?;
    let path = served.said("lapidary top ")?;
    let screen = Screen::start(sh, &path)?;
    let works = |text: &str| {
        text.contains("of a budget of 24.0 MiB")
            && text.contains(" commands/s")
            && !text.contains(" 0 commands/s")
    };
    let first = screen.until("live numbers of a program at work", |text| {
        works(text) && text.contains("`weights`")
    })?;
    screen.until("numbers that change", |text| works(text) && text != first)?;
    let is_whole = first.contains("bytes▼") && first.lines().count() == 32;
    ensure!(is_whole, "the picture is not as it should be:\n{first}");
    for (keys, there, gone) in KEYS {
        screen.press(keys, there, gone)?;
    }
    screen.tmux(&["resize-window", "-t", "top", "-x", "90", "-y", "24"])?;
    screen.until("the picture in its new size", |text| {
        let keys = text.lines().nth(23).filter(|keys| keys.contains("q quit"));
        text.lines().count() == 24 && keys.is_some()
    })?;
    drop(served);
    screen.until("that nobody is there any more", |text| {
        text.contains("the process has ended")
    })?;
    screen.press(&["-l", "q"], "it ended with 0", "holders")?;
    Ok("numbers move, keys are answered, the terminal is left as it was".into())
}

/// A terminal of 120 columns and 32 lines, with its own tmux server.
struct Screen<'a>(&'a Shell);

impl Screen<'_> {
    fn start<'a>(sh: &'a Shell, path: &str) -> Result<Screen<'a>> {
        let screen = Screen(sh);
        let program = built(sh, "lapidary")?.to_string();
        // The words are arguments of the shell, so the shell does not interpret them.
        let script = r#""$0" top "$1"; echo "it ended with $?"; exec sleep 600"#;
        let new = "-f /dev/null new-session -d -s top -x 120 -y 32 sh -c".split(' ');
        screen.tmux(&new.chain([script, &program, path]).collect::<Vec<_>>())?;
        Ok(screen)
    }

    fn tmux(&self, args: &[&str]) -> Result<String> {
        let (sh, server) = (self.0, format!("lapidary-{}", std::process::id()));
        let tmux = cmd!(sh, "tmux -u -L {server} {args...}").quiet();
        Ok(tmux.env("LC_ALL", "C.UTF-8").env_remove("TMUX").read()?)
    }

    /// Presses keys, and waits for the effect.
    fn press(&self, keys: &[&str], there: &str, gone: &str) -> Result<()> {
        self.tmux(&[&["send-keys", "-t", "top"], keys].concat())?;
        let effect = format!("`{there}` without `{gone}` after {keys:?}");
        self.until(&effect, |text| text.contains(there) && !text.contains(gone))
            .map(drop)
    }

    /// Reads the screen until the condition holds. The error has the last screen.
    fn until(&self, what: &str, is_there: impl Fn(&str) -> bool) -> Result<String> {
        let start = Instant::now();
        loop {
            let text = self.tmux(&["capture-pane", "-p", "-t", "top"])?;
            if is_there(&text) {
                return Ok(text);
            }
            ensure!(
                start.elapsed() < PATIENCE,
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
