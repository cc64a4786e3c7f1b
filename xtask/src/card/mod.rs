//! `card`: one command for people with a GPU. It runs the suite and the benches of a card, and
//! writes one file to send to us: Markdown that people can read before they send it. [`private`]
//! removes personal data.

mod private;

use std::env::consts::{ARCH, OS};

use pico_args::Arguments;
use serde_json::Value;

use crate::driver::ensure_gpu;
use crate::outcome::{Tests, is_telling, plain};
use crate::process::{Context, Result, Shell, cmd, ensure, target_dir, watch};
use crate::steps::nothing_else;
use crate::suite::{PROGRAM, tests};
use private::Private;

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
    let info = cmd!(sh, "cargo run --quiet")
        .args(PROGRAM)
        .args(["--", "info", "--json"])
        .read()?;
    let adapter = chosen_of(&info).context("`lapidary info` chooses no adapter")?;
    println!("{}", title(&adapter));
    let selected = match is_small {
        true => "--no-fail-fast --test device -- --skip custom_kernels::",
        false => "--no-fail-fast",
    };
    let tests = Tests::of(&watch(tests(sh, selected)?, is_telling)?.lines);
    ensure!(
        tests.passed + tests.failed.len() > 0,
        "no test ran; see above"
    );
    let figures = [
        bench(sh, "card", is_small)?,
        bench(sh, "transfers", is_small)?,
    ];
    let private = Private::of_this_machine(sh);
    let report = report(
        &adapter,
        revision(sh).as_deref(),
        &tests,
        &figures.concat(),
        is_small,
    );
    let text = private.without(&report);
    let left = private.found_in(&text);
    ensure!(
        left.is_none(),
        "the report still holds {left:?}; nothing was written"
    );
    let path = target_dir().join("card").join(file_name(&adapter));
    sh.write_file(&path, &text)?;
    println!(
        "\n{}\nWritten to {}: look at it, then send it back.",
        tests.summary(),
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

fn title(adapter: &Value) -> String {
    let words = ["name", "backend", "driver"].map(|key| adapter[key].as_str().unwrap_or_default());
    words.join(", ")
}

/// The adapter's name and API, in characters that every file system accepts.
fn file_name(adapter: &Value) -> String {
    let words = ["name", "backend"]
        .map(|key| adapter[key].as_str().unwrap_or_default())
        .join(" ");
    let parts = words
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|part| !part.is_empty());
    format!("{}.md", parts.collect::<Vec<_>>().join("-").to_lowercase())
}

/// The output of a bench, as a section.
fn bench(sh: &Shell, name: &str, is_small: bool) -> Result<String> {
    let small: &[&str] = if is_small { &["--", "--small"] } else { &[] };
    let watched = watch(cmd!(sh, "cargo bench --bench {name} {small...}"), |_| true)?;
    let lines = watched.lines.iter().filter(|line| !is_of_cargo(line));
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    let end = if watched.succeeded {
        ""
    } else {
        "\nIt did not end well.\n"
    };
    Ok(format!("\n## Bench `{name}`\n\n```text\n{lines}```\n{end}"))
}

/// Whether the line is one of cargo's messages about building and running. They are indented.
fn is_of_cargo(line: &str) -> bool {
    let line = plain(line);
    let verbs = "Compiling Finished Running Downloading Downloaded Locking Blocking Updating";
    let is_verb = |word| verbs.split(' ').any(|verb| verb == word);
    line.starts_with("warning:") || line.split_whitespace().next().is_some_and(is_verb)
}

/// The measured commit; none if this is not a clone.
fn revision(sh: &Shell) -> Option<String> {
    let commit = cmd!(sh, "git rev-parse --short=12 HEAD")
        .ignore_stderr()
        .read()
        .ok()?;
    let status = cmd!(sh, "git status --porcelain").read().ok()?;
    Some(commit + if status.is_empty() { "" } else { ", changed" })
}

fn report(
    adapter: &Value,
    revision: Option<&str>,
    tests: &Tests,
    figures: &str,
    is_small: bool,
) -> String {
    let revision = revision.unwrap_or("no commit");
    let mut text = format!(
        "# {}\n\nlapidary {revision}, {OS}, {ARCH}.\n",
        title(adapter)
    );
    if is_small {
        text += "A short run: a part of the suite, and sizes whose figures say nothing.\n";
    }
    text += "\n## Limits\n\n| what | value |\n| --- | --- |\n";
    for (name, value) in adapter.as_object().into_iter().flatten() {
        if !["name", "backend", "driver", "chosen", "index"].contains(&name.as_str()) {
            let value = match value {
                Value::Null => "not told".into(),
                Value::String(text) => text.clone(),
                Value::Array(ends) => {
                    let ends: Vec<_> = ends.iter().map(Value::to_string).collect();
                    ends.join(" to ")
                }
                other => other.to_string(),
            };
            text += &format!("| {name} | {value} |\n");
        }
    }
    let failed = tests
        .failed
        .iter()
        .map(|name| format!("* failed: `{name}`\n"));
    let failed: String = failed.collect();
    format!("{text}\n## Tests\n\n{}\n{failed}{figures}", tests.summary())
}

#[cfg(test)]
mod tests_of_the_report {
    use super::*;

    const LISTED: &str = r#"{"adapters":[
        {"backend":"gl","chosen":false,"driver":"","index":0,"name":"Mesa","subgroup_lanes":null},
        {"backend":"vulkan","budget_bytes":null,"chosen":true,"driver":"NVIDIA 580.1","index":1,
         "max_buffer_bytes":4294967040,"name":"NVIDIA GeForce RTX 4090","subgroup_lanes":[32,32]}]}"#;

    #[test]
    fn it_has_the_chosen_adapter_its_limits_tests_and_figures() {
        let adapter = chosen_of(LISTED).expect("one is chosen");
        let tests = Tests {
            passed: 7,
            skipped: 1,
            failed: vec!["lapidary::device order::reads".into()],
            fallen: 0,
        };
        let text = report(
            &adapter,
            Some("0123456789ab"),
            &tests,
            "\n## Bench `card`\n",
            true,
        );
        for part in [
            "# NVIDIA GeForce RTX 4090, vulkan, NVIDIA 580.1\n",
            "lapidary 0123456789ab",
            "A short run",
            "| budget_bytes | not told |\n",
            "| max_buffer_bytes | 4294967040 |\n",
            "| subgroup_lanes | 32 to 32 |\n",
            "7 passed, 1 failed, 1 skipped\n",
            "* failed: `lapidary::device order::reads`\n\n## Bench `card`\n",
        ] {
            assert!(text.contains(part), "{part} in:\n{text}");
        }
        assert!(!text.contains("Mesa"), "{text}");
        assert_eq!(file_name(&adapter), "nvidia-geforce-rtx-4090-vulkan.md");
    }

    #[test]
    fn a_list_without_a_choice_has_no_adapter() {
        let none = r#"{"adapters":[{"name":"a","chosen":false}]}"#;
        for listed in ["", "{}", r#"{"adapters":[]}"#, none] {
            assert_eq!(chosen_of(listed), None, "{listed}");
        }
    }

    #[test]
    fn lines_of_cargo_are_left_out() {
        assert!(is_of_cargo(
            "\u{1b}[1m\u{1b}[32m   Compiling\u{1b}[0m half v2.7.1"
        ));
        assert!(is_of_cargo("    Finished `bench` profile") && is_of_cargo("warning: unused"));
        assert!(!is_of_cargo("| matmul | 1 |") && !is_of_cargo(""));
    }
}
