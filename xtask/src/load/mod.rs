//! The server of `examples/serve` under load: builds it, starts it, and sends it requests with wrk.

mod program;

use std::process::{Child, Command, Stdio};

use crate::apt;
use crate::ci::source::EXAMPLES;
use crate::driver::ensure_gpu;
use crate::line::Line;
use crate::model;
use crate::process::{Cmd, Context, Result, Shell, cmd, target_dir};

pub(crate) use program::Program;

/// The tenants. The key of one is `the-key-of-NAME-0`.
pub(crate) const LOUD: &str = "loud";
pub(crate) const QUIET: &str = "quiet";
pub(crate) const LONG: &str = "long";

/// One load: who asks how, on how many connections, for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) tenant: &'static str,
    pub(crate) connections: u32,
    pub(crate) seconds: u64,
    /// Words of a text.
    pub(crate) words: u32,
    /// The pause before each request.
    pub(crate) pause_ms: u32,
}

/// Installs wrk and the model, and runs the tests of the server, which builds it too.
pub(crate) fn prepare(sh: &Shell) -> Result<()> {
    apt::install(sh, &["wrk", "curl"])?;
    model::fetch(sh)?;
    let tenants = [LOUD, QUIET, LONG]
        .map(|name| serde_json::json!({ "name": name, "key": format!("the-key-of-{name}-0") }));
    sh.write_file(tenants_file(), serde_json::to_string(&tenants)?)?;
    ensure_gpu(sh)?;
    Ok(cmd!(sh, "cargo test --package serve")
        .args(EXAMPLES)
        .run()?)
}

fn tenants_file() -> std::path::PathBuf {
    target_dir().join("load-tenants.json")
}

impl Load {
    fn command<'a>(&self, sh: &'a Shell, address: &str) -> Cmd<'a> {
        let Load {
            tenant,
            connections,
            seconds,
            words,
            pause_ms,
        } = self;
        let [connections, seconds] = [connections.to_string(), format!("{seconds}s")];
        let script = "xtask/src/load/load.lua";
        let wrk = cmd!(
            sh,
            "wrk --threads 1 --timeout 30s --connections {connections}"
        );
        let wrk = wrk.args(["--duration", &seconds, "--script", script]);
        let wrk = wrk.arg(format!("http://{address}"));
        let wrk = wrk.env("KEY", format!("the-key-of-{tenant}-0"));
        wrk.env("WORDS", words.to_string())
            .env("PAUSE", pause_ms.to_string())
    }

    /// Starts it beside others.
    pub(crate) fn start(self, sh: &Shell, address: &str) -> Result<Running> {
        let mut command = Command::from(self.command(sh, address));
        let child = command.stdout(Stdio::piped()).spawn();
        Ok(Running {
            load: self,
            child: Some(child.context("wrk")?),
        })
    }

    /// Runs it to its end.
    pub(crate) fn run(self, sh: &Shell, address: &str) -> Result<Found> {
        self.start(sh, address)?.end()
    }
}

/// A load under way, which is killed if this is dropped.
pub(crate) struct Running {
    load: Load,
    child: Option<Child>,
}

impl Running {
    /// Waits for its end.
    pub(crate) fn end(mut self) -> Result<Found> {
        let child = self.child.take().context("it has ended already")?;
        let out = child.wait_with_output()?.stdout;
        Found::read(&self.load, &String::from_utf8_lossy(&out))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
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
        let last = text.lines().last().unwrap_or_default();
        println!("{}, {} connections, {last}", load.tenant, load.connections);
        line.expect("other is 0, without_retry_after is 0, broken is 0, ok > 0")?;
        Ok(Found {
            ok: line.number("ok")?,
            full: line.number("full")?,
            unavailable: line.number("unavailable")?,
            per_second: line.number("per_second")?,
            p95_ms: line.number("p95_ms")?,
        })
    }
}

/// The page of the server at a path.
pub(crate) fn page(sh: &Shell, address: &str, path: &str) -> Result<String> {
    let url = format!("http://{address}{path}");
    Ok(cmd!(sh, "curl --silent --show-error --fail --max-time 30 {url}").read()?)
}
