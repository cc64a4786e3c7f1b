//! The server as a process, until it is told to stop.

use std::env::consts::EXE_SUFFIX;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::thread::{self, JoinHandle};

use crate::driver::with_gpu;
use crate::model;
use crate::process::{Result, command, run_quietly, target_dir};

/// A running server, which is killed if this is dropped.
pub(crate) struct Program {
    child: Child,
    pub(crate) address: String,
    /// Reads its output to the end.
    rest: Option<JoinHandle<Vec<String>>>,
}

impl Program {
    /// Starts the server on a free port, and waits until it listens.
    pub(crate) fn start(args: &[&str]) -> Result<Program> {
        let file = target_dir()
            .join("debug")
            .join(format!("serve{EXE_SUFFIX}"));
        let mut serve = with_gpu(command(&file.display().to_string()))?;
        serve.args(["--address", "127.0.0.1:0", "--tenants"]);
        serve.arg(super::folder().join("tenants.json"));
        serve.args(args).env("EMBED_MODEL", model::folder());
        // As its README tells operators: otherwise glibc keeps memory for each thread.
        serve.env("MALLOC_ARENA_MAX", "2");
        let child = serve.stdout(Stdio::piped()).spawn();
        let child = child.map_err(|error| format!("`serve` cannot be run: {error}."))?;
        let mut program = Program {
            child,
            address: String::new(),
            rest: None,
        };
        let out = program
            .child
            .stdout
            .take()
            .ok_or("`serve` has no output.")?;
        let mut lines = BufReader::new(out).lines().map_while(std::io::Result::ok);
        for line in lines.by_ref() {
            println!("{line}");
            if let Some((_, address)) = line.split_once("listening on ") {
                program.address = address.to_owned();
                program.rest = Some(thread::spawn(move || lines.collect()));
                return Ok(program);
            }
        }
        Err("`serve` ended before it listened.".into())
    }

    /// The resident memory of the process. Only Linux tells.
    pub(crate) fn resident_bytes(&self) -> Result<f64> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}."))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        let kib: Option<f64> = kib.and_then(|kib| kib.parse().ok());
        Ok(kib.ok_or(format!("{path} has no VmRSS."))? * 1024.0)
    }

    /// Asks it to stop, as a system does, and returns its last lines.
    pub(crate) fn stop(mut self) -> Result<Vec<String>> {
        run_quietly(command("kill").args(["-TERM", &self.child.id().to_string()]))?;
        let status = self
            .child
            .wait()
            .map_err(|error| format!("`serve`: {error}."))?;
        let rest = self.rest.take().map(JoinHandle::join);
        let lines = rest.and_then(std::result::Result::ok).unwrap_or_default();
        lines.iter().for_each(|line| println!("{line}"));
        match status.success() {
            true => Ok(lines),
            false => Err(format!("`serve` ended with {status}.")),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
