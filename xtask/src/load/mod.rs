//! The server of `examples/serve` under load: builds it, starts it, and sends it requests with wrk.

mod program;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::apt;
use crate::driver::cargo_with_gpu;
use crate::line::Line;
use crate::model;
use crate::process::{Result, capture, command, run, target_dir};

pub(crate) use program::Program;

/// The requests, in the language of wrk.
const SCRIPT: &str = include_str!("load.lua");

/// The tenants: names and keys.
pub(crate) const LOUD: (&str, &str) = ("loud", "the-key-of-loud-0");
pub(crate) const QUIET: (&str, &str) = ("quiet", "the-key-of-quiet-0");
pub(crate) const LONG: (&str, &str) = ("long", "the-key-of-long-0");

/// One load: who asks how, on how many connections, for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) tenant: (&'static str, &'static str),
    pub(crate) connections: u32,
    pub(crate) seconds: u64,
    /// Words of a text.
    pub(crate) words: u32,
    /// The pause before each request.
    pub(crate) pause_ms: u32,
}

/// Installs wrk and the model, and runs the tests of the server, which builds it too.
pub(crate) fn prepare() -> Result {
    apt::install(&["wrk"])?;
    model::fetched()?;
    let folder = folder();
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}.", folder.display()))?;
    let tenants =
        [LOUD, QUIET, LONG].map(|(name, key)| format!(r#"{{"name": "{name}", "key": "{key}"}}"#));
    write("tenants.json", &format!("[{}]", tenants.join(", ")))?;
    write("load.lua", SCRIPT)?;
    let mut test = cargo_with_gpu()?;
    test.args(["test", "--package", "serve", "--manifest-path"]);
    run(test
        .arg(model::manifest())
        .env("CARGO_TARGET_DIR", target_dir()))
}

fn folder() -> std::path::PathBuf {
    target_dir().join("load")
}

fn write(name: &str, text: &str) -> Result {
    let path = folder().join(name);
    fs::write(&path, text).map_err(|error| format!("{}: {error}.", path.display()))
}

impl Load {
    fn command(&self, address: &str) -> Command {
        let mut wrk = command("wrk");
        wrk.args(["--threads", "1", "--timeout", "30s", "--connections"]);
        wrk.args([self.connections.to_string(), "--duration".into()]);
        wrk.args([format!("{}s", self.seconds), "--script".into()]);
        wrk.arg(folder().join("load.lua"));
        wrk.arg(format!("http://{address}"));
        wrk.env("KEY", self.tenant.1);
        wrk.env("WORDS", self.words.to_string());
        wrk.env("PAUSE", self.pause_ms.to_string());
        wrk
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, address: &str) -> Result<Found> {
        Found::read(self, &capture(&mut self.command(address))?)
    }

    /// Starts it beside others.
    pub(crate) fn start(self, address: &str) -> Result<Running> {
        let child = self.command(address).stdout(Stdio::piped()).spawn();
        match child {
            Ok(child) => Ok(Running { load: self, child }),
            Err(error) => Err(format!("`wrk` cannot be run: {error}.")),
        }
    }
}

/// A load under way.
pub(crate) struct Running {
    load: Load,
    child: Child,
}

impl Running {
    /// Waits for its end.
    pub(crate) fn end(mut self) -> Result<Found> {
        let mut text = String::new();
        if let Some(mut out) = self.child.stdout.take() {
            let read = out.read_to_string(&mut text);
            read.map_err(|error| format!("wrk says nothing: {error}."))?;
        }
        Found::read(&self.load, &text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a load found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) ok: f64,
    pub(crate) full: f64,
    pub(crate) unavailable: f64,
    pub(crate) per_second: f64,
    pub(crate) p95_ms: f64,
}

impl Found {
    /// Reads the last line of the script. Answers that a server must never give are an error.
    fn read(load: &Load, text: &str) -> Result<Found> {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let line = Line::last("load", &lines)?;
        let Load {
            tenant: (name, _),
            connections,
            ..
        } = load;
        let last = text.lines().last().unwrap_or_default();
        println!("{name}, {connections} connections, {last}");
        for key in ["other", "without_retry_after", "broken"] {
            line.expect(key, "0")?;
        }
        let found = Found {
            ok: line.number("ok")?,
            full: line.number("full")?,
            unavailable: line.number("unavailable")?,
            per_second: line.number("per_second")?,
            p95_ms: line.number("p95_ms")?,
        };
        match found.ok > 0.0 {
            true => Ok(found),
            false => line.complain("has no answer"),
        }
    }
}

/// Sends bytes to the server, and returns what it answers until it closes the connection.
pub(crate) fn talk(address: &str, bytes: &[u8]) -> Result<String> {
    let explain = |error: std::io::Error| format!("{address}: {error}.");
    let mut stream = TcpStream::connect(address).map_err(explain)?;
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .map_err(explain)?;
    stream.write_all(bytes).map_err(explain)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(explain)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The page at a path.
pub(crate) fn page(address: &str, path: &str) -> Result<String> {
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let answer = talk(address, head.as_bytes())?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
        _ => Err(format!("{path} answers: {answer}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_no_client_should_get_are_found() {
        let good = "load: ok=9 full=2 unavailable=0 other=0 without_retry_after=0 broken=0 \
                    per_second=1.5 p50_ms=2.00 p95_ms=3.25";
        let load = Load {
            tenant: QUIET,
            connections: 1,
            seconds: 1,
            words: 1,
            pause_ms: 0,
        };
        let found = Found::read(&load, good).expect("a good line");
        assert_eq!((found.full, found.p95_ms), (2.0, 3.25));
        for [from, to] in [
            ["other=0", "other=1"],
            ["without_retry_after=0", "without_retry_after=1"],
            ["broken=0", "broken=3"],
            ["ok=9", "ok=0"],
            ["p95_ms=3.25", "p95_ms=nan"],
        ] {
            assert!(Found::read(&load, &good.replace(from, to)).is_err(), "{to}");
        }
    }
}
