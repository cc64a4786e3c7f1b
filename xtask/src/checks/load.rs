//! The server of `examples/serve` under load: builds it, starts it, and sends it requests with hey.

use std::fs;

use crate::command::{self, command};
use crate::line::Line;
use crate::process::{Background, Context, Result, Shell, bail, cmd, ensure, target_dir};
use crate::{model, packages};

/// The tenants. The key of one is `the-key-of-NAME-0`.
pub(super) const LOUD: &str = "loud";
pub(super) const QUIET: &str = "quiet";
pub(super) const LONG: &str = "long";

/// One load: the tenant who asks, the connections, the seconds, the words of a text, and the most
/// requests that a connection makes in a second, or 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load(pub &'static str, pub u32, pub u64, pub usize, pub u32);

/// The answers to a load: those with results, refusals of a full queue, and times.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) ok: f64,
    pub(super) full: f64,
    pub(super) per_second: f64,
    pub(super) p95_seconds: f64,
}

/// A running server.
pub(super) struct Server {
    program: Background,
    pub(super) address: String,
}

/// Installs hey and the model, and runs the tests of the server, which builds it too.
pub(super) fn prepare(sh: &Shell) -> Result<()> {
    packages::install(sh, "hey curl")?;
    model::fetch(sh)?;
    command::run(sh, "gpu")?;
    command::run(sh, "cargo test {examples} --package serve")
}

impl Server {
    /// Starts the server on a free port, and waits until it listens.
    pub(super) fn start(sh: &Shell, args: &[&str]) -> Result<Server> {
        let tenants = [LOUD, QUIET, LONG]
            .map(|name| serde_json::json!({ "name": name, "key": format!("the-key-of-{name}-0") }));
        let tenants = serde_json::to_string(&tenants)?;
        sh.write_file(target_dir().join("load-tenants.json"), tenants)?;
        // As its README tells operators: otherwise glibc keeps memory for each thread.
        let serve = "MALLOC_ARENA_MAX=2 {target}/debug/serve --address 127.0.0.1:0 \
            --tenants {target}/load-tenants.json";
        let serve = command(sh, serve)?.args(args);
        let program = Background::start(serve.env("EMBED_MODEL", model::folder()))?;
        let address = program.said("listening on ")?;
        Ok(Server { program, address })
    }

    /// The page of the server at a path.
    pub(super) fn page(&self, sh: &Shell, path: &str) -> Result<String> {
        let url = format!("http://{}{path}", self.address);
        let page = cmd!(sh, "curl --silent --show-error --fail --max-time 30 {url}").quiet();
        Ok(page.read()?)
    }

    /// The resident memory of the process. Only Linux tells.
    pub(super) fn resident_bytes(&self) -> Result<f64> {
        let path = format!("/proc/{}/status", self.program.child.id());
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        Ok(kib.with_context(|| format!("{path} has no VmRSS"))? * 1024.0)
    }

    /// Asks it to stop, as a system does, and checks the conditions on its last line.
    pub(super) fn stop(mut self, sh: &Shell, conditions: &str) -> Result<()> {
        let id = self.program.child.id().to_string();
        cmd!(sh, "kill -TERM {id}").run()?;
        let lines = self.program.end().context("`serve`")?;
        lines.iter().for_each(|line| println!("{line}"));
        Line::of("serve", &lines)?.expect(conditions)
    }
}

impl Load {
    /// Starts it beside others, with one thread.
    pub(super) fn start(self, sh: &Shell, server: &Server) -> Result<Background> {
        let Load(tenant, connections, seconds, words, rate) = self;
        let key = format!("Authorization: Bearer the-key-of-{tenant}-0");
        let texts = serde_json::json!({ "texts": [vec!["water"; words].join(" ")] }).to_string();
        let options = format!("-z {seconds}s -c {connections} -q {rate} -t 30 -m POST");
        let hey = format!("GOMAXPROCS=1 hey -T application/json {options}");
        let url = format!("http://{}/embed", server.address);
        Background::start(command(sh, &hey)?.args(["-H", &key, "-d", &texts, &url]))
    }

    /// Runs it to its end. Only the answers to a flood may be refusals.
    pub(super) fn run(self, sh: &Shell, server: &Server) -> Result<Answers> {
        let answers = ended(self.start(sh, server)?)?;
        ensure!(answers.full == 0.0, "{answers:?}");
        Ok(answers)
    }
}

/// Waits for the end of a load. No answers, other ones and broken connections are errors.
pub(super) fn ended(mut load: Background) -> Result<Answers> {
    let (lines, mut answers) = (load.end().context("hey")?, Answers::default());
    for line in &lines {
        let number = |word: &str| word.trim_matches(['[', ']']).parse::<f64>();
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["Requests/sec:", rate] => answers.per_second = number(rate)?,
            ["95%", "in", seconds, "secs"] => answers.p95_seconds = number(seconds)?,
            ["[200]", count, "responses"] => answers.ok = number(count)?,
            ["[429]", count, "responses"] => answers.full = number(count)?,
            [status, _, "responses"] => bail!("a load had an answer {status}: {lines:?}"),
            ["Error", ..] => bail!("a load had broken connections: {lines:?}"),
            _ => {}
        }
    }
    println!("{answers:?}");
    ensure!(answers.ok > 0.0, "a load had no answer: {lines:?}");
    Ok(answers)
}
