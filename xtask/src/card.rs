//! `card`: one command for people with a GPU. It runs the suite and the benches of a card, and
//! writes one file to send to us: Markdown that people can read before they send it. It has the
//! names of tests and the output of benches, but no message of an error, which could have names of
//! files.

use std::env::{
    self,
    consts::{ARCH, OS},
};

use pico_args::Arguments;
use serde_json::Value;

use crate::driver::ensure_gpu;
use crate::process::nothing_else;
use crate::process::{Context, Result, Shell, cmd, each_line, ensure, root, target_dir, watch};
use crate::suite::{PROGRAM, is_result, plain, tests};

pub(crate) const ABOUT: &str = "\
Run the whole suite and the benches `card` and `transfers` on this machine's GPU, and write the
results to one file under target/card: the adapter, its driver and limits, passed and failed tests,
figures. It takes a quarter of an hour to an hour. The file holds no names and no paths: look at it,
then send it back. LAPIDARY_ADAPTER chooses the adapter, as it does for every program of lapidary.
  --small    a part of the suite and small sizes, to see whether it all works: its figures say nothing";

/// Runs everything and writes the file. Failed tests are a result and not a failure of this verb.
pub(crate) fn card(sh: &Shell, mut args: Arguments) -> Result<()> {
    let is_small = args.contains("--small");
    nothing_else(args)?;
    ensure_gpu(sh)?;
    let info = cmd!(sh, "cargo run --quiet {PROGRAM...} -- info --json").read()?;
    let adapter = chosen_of(&info).context("`lapidary info` chooses no adapter")?;
    println!("{}", words(&adapter, &["name", "backend", "driver"]));
    ensure!(
        is_small || adapter["kind"] != "cpu",
        "that is no GPU, and `card` is about them. `card --small` tries whether it works"
    );
    let selected = match is_small {
        true => "--no-fail-fast --test device -- --skip custom_kernels::",
        false => "--no-fail-fast",
    };
    let mut results = watch(tests(sh, selected)?)?.1;
    results.iter_mut().for_each(|line| *line = plain(line));
    results.retain(|line| is_result(line));
    ensure!(!results.is_empty(), "no test ran; see above");
    let mut text = report(&adapter, &revision(sh), is_small);
    text += &format!("\n## Tests\n\n```text\n{}\n```\n", results.join("\n"));
    for name in ["card", "transfers"] {
        text += &bench(sh, name, is_small)?;
    }
    let own = [root(), target_dir()].map(|path| path.display().to_string());
    let homes =
        ["HOME", "USERPROFILE", "CARGO_HOME"].map(|name| env::var(name).unwrap_or_default());
    for folder in own.iter().chain(&homes).filter(|folder| folder.len() > 1) {
        text = text.replace(folder, "FOLDER");
    }
    let name = words(&adapter, &["name", "backend"]).to_lowercase();
    let parts = name.split(|c: char| !c.is_ascii_alphanumeric());
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    let path = target_dir().join("card").join(parts.join("-") + ".md");
    sh.write_file(&path, &text)?;
    println!(
        "\nWritten to {}: look at it, then send it back.",
        path.display()
    );
    Ok(())
}

/// The adapter that programs use, from the output of `lapidary info --json`.
fn chosen_of(listed: &str) -> Option<Value> {
    let listed: Value = serde_json::from_str(listed).ok()?;
    let mut adapters = listed["adapters"].as_array()?.iter();
    adapters.find(|adapter| adapter["chosen"] == true).cloned()
}

fn words(adapter: &Value, keys: &[&str]) -> String {
    let words = keys
        .iter()
        .map(|key| adapter[key].as_str().unwrap_or_default());
    words.collect::<Vec<_>>().join(", ")
}

/// The output of a bench, as a section.
fn bench(sh: &Shell, name: &str, is_small: bool) -> Result<String> {
    let small: &[&str] = if is_small { &["--", "--small"] } else { &[] };
    let mut text = format!("\n## Bench `{name}`\n\n```text\n");
    let succeeded = each_line(cmd!(sh, "cargo bench --bench {name} {small...}"), |line| {
        println!("{line}");
        text += &format!("{line}\n");
    })?;
    let end = if succeeded {
        "```\n"
    } else {
        "```\n\nIt did not end well.\n"
    };
    Ok(text + end)
}

/// The measured commit, if this is a clone.
fn revision(sh: &Shell) -> String {
    let describe = cmd!(sh, "git describe --always --abbrev=12 --exclude=* --dirty");
    describe
        .ignore_stderr()
        .read()
        .unwrap_or("no commit".into())
}

fn report(adapter: &Value, revision: &str, is_small: bool) -> String {
    let title = words(adapter, &["name", "backend", "driver"]);
    let mut text = format!("# {title}\n\nlapidary {revision}, {OS}, {ARCH}.\n");
    if is_small {
        text += "A short run: a part of the suite, and sizes whose figures say nothing.\n";
    }
    text += "\n## Limits\n\n| what | value |\n| --- | --- |\n";
    for (name, value) in adapter.as_object().into_iter().flatten() {
        let value = match value {
            _ if ["name", "backend", "driver", "chosen", "index"].contains(&&**name) => continue,
            Value::Null => "not told".into(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        text += &format!("| {name} | {value} |\n");
    }
    text
}

#[test]
fn the_report_has_the_chosen_adapter_and_its_limits() {
    let listed = r#"{"adapters":[{"backend":"gl","chosen":false,"name":"Mesa"},
        {"backend":"vulkan","budget_bytes":null,"chosen":true,"driver":"NVIDIA 580.1","index":1,
         "max_buffer_bytes":4294967040,"name":"GeForce RTX 4090","subgroup_lanes":[32,32]}]}"#;
    let text = report(
        &chosen_of(listed).expect("one is chosen"),
        "0123456789ab",
        true,
    );
    for part in [
        "# GeForce RTX 4090, vulkan, NVIDIA 580.1\n\nlapidary 0123456789ab",
        "| budget_bytes | not told |\n| max_buffer_bytes | 4294967040 |\n| subgroup_lanes | [32,32] |\n",
    ] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
    for listed in ["", "{}", r#"{"adapters":[{"name":"a","chosen":false}]}"#] {
        assert_eq!(chosen_of(listed), None, "{listed}");
    }
}
