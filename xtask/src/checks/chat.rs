//! `examples/chat`: it talks within its budget, and OpenAI's own client talks with it as a server.

use crate::command::{self, command};
use crate::packages;
use crate::process::{Background, Result, Shell, cmd, ensure, lines_of, target_dir};

const CLIENT: &str = "openai==3.57.0";
const PROMPT: &str = "The memory of the device";

pub(crate) fn check(sh: &Shell) -> Result<String> {
    command::run(sh, "gpu")?;
    command::run(sh, "cargo test {examples} --package chat")?;
    let said = |budget: &str| {
        let chat = "{target}/debug/chat --temperature 0 --tokens 24 --budget";
        let mut lines = lines_of(command(sh, chat)?.args([budget, "--prompt", PROMPT]))?;
        let report = lines.pop().unwrap_or_default();
        ensure!(report.starts_with("[24 tokens"), "it said {report:?}");
        Ok(lines)
    };
    // More than the weights and pages take, and less.
    let (free, short) = (said("64MiB")?, said("600KiB")?);
    ensure!(free == short, "{free:?}, and in a small budget {short:?}");
    let server = Background::start(command(sh, "{target}/debug/chat --serve 127.0.0.1:0")?)?;
    let address = format!("http://{}", server.said("http://")?);
    let client = target_dir().join(CLIENT);
    packages::pip(sh, "install --target", &client, CLIENT)?;
    let talk = cmd!(sh, "python3 xtask/src/checks/chat.py {address}").env("PYTHONPATH", client);
    talk.env("PYTHONDONTWRITEBYTECODE", "1").run()?;
    Ok(format!("the same in any budget, and by {CLIENT}"))
}
