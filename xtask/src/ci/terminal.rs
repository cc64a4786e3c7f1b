//! `lapidary top` in a real terminal. tmux provides one of a known size, and its screen is read
//! back.
//!
//! No step waits for a fixed time. After each key the test reads the screen until it shows the
//! effect, or until the time limit.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::apt;
use crate::process::{Result, capture, command};
use crate::suite::built;

/// Time limit for an effect on the screen, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two reads of the screen.
const PAUSE: Duration = Duration::from_millis(50);

/// Starts a program that trains and serves its statistics, watches it with `lapidary top`, presses
/// keys, and ends the program during that.
pub(crate) fn top() -> Result<String> {
    if cfg!(not(unix)) {
        return Ok("skipped: sockets are for Unix".into());
    }
    if capture(command("tmux").arg("-V")).is_err() {
        apt::install(&["tmux"])?;
    }
    let mut served = Served::start()?;
    let screen = Screen::start(&served.path)?;
    look(&screen, &mut served)
}

fn look(screen: &Screen, served: &mut Served) -> Result<String> {
    let budget = |text: &str| text.contains("of a budget of 24.0 MiB");
    let works = |text: &str| text.contains(" commands/s") && !text.contains(" 0 commands/s");
    let first = screen.until("live numbers of a program at work", |text| {
        budget(text) && works(text) && text.contains("`weights`")
    })?;
    screen.until("numbers that change", |text| budget(text) && text != first)?;
    if !first.contains("bytes▼") || first.lines().count() != 32 {
        return Err(format!("the picture is not as it should be:\n{first}"));
    }

    screen.press("s")?;
    screen.until("holders by their peak", |text| text.contains("peak▼"))?;
    screen.press("/")?;
    screen.until("a filter to be typed", |text| {
        text.contains("holders with: _")
    })?;
    screen.press("momen")?;
    screen.name_key("Enter")?;
    screen.until("filtered holders", |text| {
        text.contains("holders with `momen`: 1") && !text.contains("`weights`")
    })?;
    screen.name_key("Escape")?;
    screen.until("all holders again", |text| {
        text.contains(" holders: ") && text.contains("`weights`")
    })?;
    screen.press("?")?;
    screen.until("help", |text| text.contains("any key closes it"))?;
    screen.press("x")?;
    screen.until("help closed", |text| !text.contains("any key closes it"))?;

    screen.tmux(&["resize-window", "-t", "top", "-x", "90", "-y", "24"])?;
    screen.until("the picture in its new size", |text| {
        let mut lines = text.lines();
        text.lines().count() == 24
            && lines
                .next_back()
                .is_some_and(|keys| keys.contains("q quit"))
    })?;

    served.end();
    let why = "the process has ended";
    screen.until("that nobody is there any more", |text| text.contains(why))?;
    screen.press("q")?;
    screen.until("the terminal as it was", |text| {
        text.contains("it ended with 0") && !text.contains("holders")
    })?;
    Ok("numbers move, keys are answered, the terminal is left as it was".into())
}

/// The watched program.
struct Served {
    child: Child,
    /// Path of its socket.
    path: String,
}

impl Served {
    fn start() -> Result<Served> {
        let mut program = built("examples/monitor")?;
        program.arg("--serve").stdout(Stdio::piped());
        let child = program
            .spawn()
            .map_err(|error| format!("the example `monitor` cannot be run: {error}."))?;
        let mut served = Served {
            child,
            path: String::new(),
        };
        let out = served.child.stdout.take();
        let out = out.ok_or("the example `monitor` has no output.")?;
        // The program prints its socket at the start. If it ends, its output ends too.
        let mut lines = BufReader::new(out).lines().map_while(std::io::Result::ok);
        let path = lines.find_map(|line| Some(line.strip_prefix("lapidary top ")?.to_owned()));
        served.path = path.ok_or("the example `monitor` does not serve.")?;
        Ok(served)
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}

/// A terminal of 120 columns and 32 lines, with its own tmux server.
struct Screen {
    server: String,
}

impl Screen {
    fn start(path: &str) -> Result<Screen> {
        let screen = Screen {
            server: format!("lapidary-{}", std::process::id()),
        };
        let program = built("lapidary")?;
        let program = PathBuf::from(program.get_program());
        // The words are arguments of the shell, so the shell does not interpret them.
        let script = r#""$0" top "$1"; echo "it ended with $?"; exec sleep 600"#;
        let size = ["-x", "120", "-y", "32"];
        let mut start = screen.command();
        start
            .args(["-f", "/dev/null", "new-session", "-d", "-s", "top"])
            .args(size)
            .args(["sh", "-c", script])
            .arg(program)
            .arg(path);
        capture(&mut start)?;
        Ok(screen)
    }

    fn command(&self) -> Command {
        let mut tmux = command("tmux");
        tmux.env("LC_ALL", "C.UTF-8").env_remove("TMUX");
        tmux.args(["-u", "-L", &self.server]);
        tmux
    }

    fn tmux(&self, args: &[&str]) -> Result<String> {
        capture(self.command().args(args))
    }

    /// Types these characters.
    fn press(&self, keys: &str) -> Result {
        self.tmux(&["send-keys", "-t", "top", "-l", keys]).map(drop)
    }

    /// Presses a key by its name.
    fn name_key(&self, name: &str) -> Result {
        self.tmux(&["send-keys", "-t", "top", name]).map(drop)
    }

    /// Reads the screen until the condition holds. The error has the last screen.
    fn until(&self, what: &str, is_there: impl Fn(&str) -> bool) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = self.tmux(&["capture-pane", "-p", "-t", "top"])?;
            if is_there(&text) {
                return Ok(text);
            }
            if Instant::now() >= deadline {
                return Err(format!(
                    "`lapidary top` has not shown {what} within {} s, but:\n{text}",
                    PATIENCE.as_secs()
                ));
            }
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}
