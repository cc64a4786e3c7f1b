//! A virtual screen, for programs with a window.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use crate::process::{Result, command};

/// A screen in memory that exists until this value is dropped.
pub(crate) struct Screen {
    server: Child,
    /// Its name for the environment variable `DISPLAY`.
    pub(crate) name: String,
}

impl Screen {
    pub(crate) fn start() -> Result<Screen> {
        let mut server = command("Xvfb");
        // The server prints the free number that it took.
        server.args(["-displayfd", "1", "-screen", "0", "1280x800x24"]);
        server.args(["-nolisten", "tcp"]);
        let server = server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let server = server.map_err(|error| format!("`Xvfb` cannot be run: {error}."))?;
        let mut screen = Screen {
            server,
            name: String::new(),
        };
        let mut number = String::new();
        if let Some(output) = screen.server.stdout.take() {
            let read = BufReader::new(output).read_line(&mut number);
            read.map_err(|error| format!("Xvfb says nothing: {error}."))?;
        }
        match number.trim() {
            "" => Err("Xvfb ended at once.".into()),
            number => {
                screen.name = format!(":{number}");
                Ok(screen)
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
