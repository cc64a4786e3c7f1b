//! A virtual screen, for programs with a window.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::process::{Context, Result, Shell, cmd, ensure};

/// A screen in memory that exists until this value is dropped.
pub(crate) struct Screen {
    server: Child,
    /// Its name for the environment variable `DISPLAY`.
    pub(crate) name: String,
}

impl Screen {
    pub(crate) fn start(sh: &Shell) -> Result<Screen> {
        // The server prints the free number that it took.
        let server = cmd!(sh, "Xvfb -displayfd 1 -screen 0 1280x800x24 -nolisten tcp");
        let mut server = Command::from(server)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("Xvfb")?;
        let output = server.stdout.take().context("Xvfb has no output")?;
        let mut number = String::from(":");
        let mut screen = Screen {
            server,
            name: String::new(),
        };
        BufReader::new(output).read_line(&mut number)?;
        ensure!(number.trim() != ":", "Xvfb ended at once");
        screen.name = number.trim().to_owned();
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
