//! The server of `examples/serve` under load: builds it, starts it, and sends it requests with wrk.

use std::env::consts::EXE_SUFFIX;
use std::fs;

use crate::driver::ensure_gpu;
use crate::line::Line;
use crate::process::{Background, Context, Result, Shell, cmd, target_dir};
use crate::source::EXAMPLES;
use crate::{model, packages};

/// The tenants. The key of one is `the-key-of-NAME-0`.
pub(super) const LOUD: &str = "loud";
pub(super) const QUIET: &str = "quiet";
pub(super) const LONG: &str = "long";

const SCRIPT: &str = "xtask/src/checks/load.lua";

/// One load: the tenant who asks, the connections, the seconds, the words of a text, and the
/// milliseconds of a pause before each request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load(pub &'static str, pub u32, pub u64, pub u32, pub u32);

/// A running server.
pub(super) struct Server {
    program: Background,
    pub(super) address: String,
}

/// Installs wrk and the model, and runs the tests of the server, which builds it too.
pub(crate) fn prepare(sh: &Shell) -> Result<()> {
    packages::install(sh, "wrk curl")?;
    model::fetch(sh)?;
    ensure_gpu(sh)?;
    Ok(cmd!(sh, "cargo test --package serve")
        .args(EXAMPLES)
        .run()?)
}

impl Server {
    /// Starts the server on a free port, and waits until it listens.
    pub(crate) fn start(sh: &Shell, args: &[&str]) -> Result<Server> {
        let tenants = target_dir().join("load-tenants.json");
        let named = [LOUD, QUIET, LONG]
            .map(|name| serde_json::json!({ "name": name, "key": format!("the-key-of-{name}-0") }));
        sh.write_file(&tenants, serde_json::to_string(&named)?)?;
        let file = target_dir().join(format!("debug/serve{EXE_SUFFIX}"));
        let serve = cmd!(sh, "{file} --address 127.0.0.1:0 {args...}");
        let serve = serve.arg("--tenants").arg(&tenants);
        let serve = serve.env("EMBED_MODEL", model::folder());
        // As its README tells operators: otherwise glibc keeps memory for each thread.
        let program = Background::start(serve.env("MALLOC_ARENA_MAX", "2"))?;
        let address = program.said("listening on ")?;
        Ok(Server { program, address })
    }

    /// The page of the server at a path.
    pub(crate) fn page(&self, sh: &Shell, path: &str) -> Result<String> {
        let url = format!("http://{}{path}", self.address);
        let page = cmd!(sh, "curl --silent --show-error --fail --max-time 30 {url}").quiet();
        Ok(page.read()?)
    }

    /// The resident memory of the process. Only Linux tells.
    pub(crate) fn resident_bytes(&self) -> Result<f64> {
        let path = format!("/proc/{}/status", self.program.child.id());
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        Ok(kib.with_context(|| format!("{path} has no VmRSS"))? * 1024.0)
    }

    /// Asks it to stop, as a system does, and checks the conditions on its last line.
    pub(crate) fn stop(mut self, sh: &Shell, conditions: &str) -> Result<()> {
        let id = self.program.child.id().to_string();
        cmd!(sh, "kill -TERM {id}").run()?;
        let lines = self.program.end().context("`serve`")?;
        lines.iter().for_each(|line| println!("{line}"));
        Line::last("serve", &lines)?.expect(conditions)
    }
}

impl Load {
    /// Starts it beside others.
    pub(crate) fn start(self, sh: &Shell, server: &Server) -> Result<Background> {
        let Load(tenant, connections, seconds, words, pause_ms) = self;
        let connections = connections.to_string();
        let wrk = cmd!(
            sh,
            "wrk --threads 1 --timeout 30s --connections {connections}"
        );
        let wrk = wrk.args(["--duration", &format!("{seconds}s"), "--script", SCRIPT]);
        let wrk = wrk.arg(format!("http://{}", server.address));
        let wrk = wrk.env("KEY", format!("the-key-of-{tenant}-0"));
        let wrk = wrk.env("WORDS", words.to_string());
        Background::start(wrk.env("PAUSE", pause_ms.to_string()))
    }

    /// Runs it to its end.
    pub(crate) fn run(self, sh: &Shell, server: &Server) -> Result<Line> {
        ended(self.start(sh, server)?)
    }
}

/// Waits for the end of a load, and returns the last line of the script. Answers that a server must
/// never give are an error.
pub(crate) fn ended(mut load: Background) -> Result<Line> {
    let line = Line::last("load", &load.end().context("wrk")?)?;
    println!("{}", line.0);
    line.expect("other is 0, without_retry_after is 0, broken is 0, ok > 0")?;
    Ok(line)
}
