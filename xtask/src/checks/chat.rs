//! `examples/chat`: it talks within its budget, and OpenAI's own client talks with it as a server.

use std::env::consts::EXE_SUFFIX;

use crate::driver::ensure_gpu;
use crate::packages;
use crate::process::{
    Background, Result, Shell, cmd, ensure, lines_of, run_persistently, target_dir,
};
use crate::source::EXAMPLES;

const CLIENT: &str = "openai==3.57.0";
const PROMPT: &str = "The memory of the device";

/// More than the weights and pages take, and less.
const BUDGETS: [&str; 2] = ["64MiB", "600KiB"];

pub(crate) fn check(sh: &Shell) -> Result<String> {
    ensure_gpu(sh)?;
    cmd!(sh, "cargo test --package chat").args(EXAMPLES).run()?;
    let chat = target_dir().join(format!("debug/chat{EXE_SUFFIX}"));
    let mut answers = Vec::new();
    for budget in BUDGETS {
        let words = "--temperature 0 --tokens 24".split(' ');
        let chat = cmd!(sh, "{chat} --budget {budget} --prompt {PROMPT}").args(words);
        let mut lines = lines_of(chat)?;
        let report = lines.pop().unwrap_or_default();
        ensure!(report.starts_with("[24 tokens"), "it said {report:?}");
        answers.push(lines);
    }
    ensure!(
        answers[0] == answers[1],
        "in {} it said {:?}, in {} {:?}",
        BUDGETS[0],
        answers[0],
        BUDGETS[1],
        answers[1]
    );
    let server = Background::start(cmd!(sh, "{chat} --serve 127.0.0.1:0"))?;
    let address = format!("http://{}", server.said("http://")?);
    let client = target_dir().join(CLIENT);
    if !client.exists() {
        packages::provide_pip(sh)?;
        run_persistently(cmd!(
            sh,
            "python3 -m pip install --quiet --target {client} {CLIENT}"
        ))?;
    }
    let talk = cmd!(sh, "python3 xtask/src/checks/chat.py {address}").env("PYTHONPATH", client);
    talk.env("PYTHONDONTWRITEBYTECODE", "1").run()?;
    Ok(format!(
        "the same within {}, and by {CLIENT}",
        BUDGETS.join(" and ")
    ))
}
