//! The server as a process, until it is told to stop.

use std::env::consts::EXE_SUFFIX;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

use crate::line::Line;
use crate::model;
use crate::process::{Context, Result, Shell, bail, cmd, ensure, target_dir};

/// A running server, which is killed if this is dropped.
pub(crate) struct Program {
    child: Child,
    pub(crate) address: String,
    /// Reads its output to the end.
    rest: Option<JoinHandle<Vec<String>>>,
}

impl Program {
    /// Starts the server on a free port, and waits until it listens.
    pub(crate) fn start(sh: &Shell, args: &[&str]) -> Result<Program> {
        let (file, tenants) = (format!("debug/serve{EXE_SUFFIX}"), super::tenants_file());
        let file = target_dir().join(file);
        let serve = cmd!(
            sh,
            "{file} --address 127.0.0.1:0 --tenants {tenants} {args...}"
        );
        // As its README tells operators: otherwise glibc keeps memory for each thread.
        let serve = serve
            .env("EMBED_MODEL", model::folder())
            .env("MALLOC_ARENA_MAX", "2");
        let child = Command::from(serve).stdout(Stdio::piped()).spawn();
        let mut program = Program {
            child: child.context("`serve`")?,
            address: String::new(),
            rest: None,
        };
        let out = program
            .child
            .stdout
            .take()
            .context("`serve` has no output")?;
        let mut lines = BufReader::new(out).lines().map_while(std::io::Result::ok);
        for line in lines.by_ref() {
            println!("{line}");
            if let Some((_, address)) = line.split_once("listening on ") {
                program.address = address.to_owned();
                program.rest = Some(thread::spawn(move || lines.collect()));
                return Ok(program);
            }
        }
        bail!("`serve` ended before it listened")
    }

    /// The resident memory of the process. Only Linux tells.
    pub(crate) fn resident_bytes(&self) -> Result<f64> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        Ok(kib.with_context(|| format!("{path} has no VmRSS"))? * 1024.0)
    }

    /// Asks it to stop, as a system does, and checks the conditions on its last line.
    pub(crate) fn stop(mut self, sh: &Shell, conditions: &str) -> Result<()> {
        let id = self.child.id().to_string();
        cmd!(sh, "kill -TERM {id}").run()?;
        let status = self.child.wait()?;
        let lines = self
            .rest
            .take()
            .and_then(|rest| rest.join().ok())
            .unwrap_or_default();
        lines.iter().for_each(|line| println!("{line}"));
        ensure!(status.success(), "`serve` ended with {status}");
        Line::last("serve", &lines)?.expect(conditions)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
