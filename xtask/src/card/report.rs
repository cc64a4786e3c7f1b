//! The file that `card` writes: Markdown that people can read before they send it.

use std::env::consts::{ARCH, OS};
use std::fmt::Write as _;

use super::seen::Tests;
use crate::bench::row::fields;

/// The fields of `lapidary info` for an adapter, in order.
#[derive(Debug, PartialEq)]
pub(crate) struct Adapter {
    fields: Vec<(String, String)>,
}

impl Adapter {
    /// The adapter that programs use, from the output of `lapidary info --json`.
    pub(crate) fn chosen_of(listed: &str) -> Option<Adapter> {
        let list = listed.split_once('[')?.1;
        let objects = list.split('{').skip(1).filter_map(|text| {
            let (inside, _) = text.split_once('}')?;
            fields(&format!("{{{}}}", without_lists(inside)))
        });
        let mut adapters = objects.map(|fields| Adapter { fields });
        adapters.find(|adapter| adapter.field("chosen") == "true")
    }

    fn field(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(field, _)| field == name);
        found.map_or("", |(_, value)| value)
    }

    pub(crate) fn title(&self) -> String {
        let [name, backend, driver] = ["name", "backend", "driver"].map(|name| self.field(name));
        format!("{name}, {backend}, {driver}")
    }
}

/// Removes lists from an object: `[8,8]` becomes `"8 to 8"`.
fn without_lists(object: &str) -> String {
    let mut text = String::new();
    let mut rest = object;
    while let Some((before, list)) = rest.split_once('[') {
        let Some((inside, after)) = list.split_once(']') else {
            break;
        };
        text += &format!("{before}\"{}\"", inside.replace(',', " to "));
        rest = after;
    }
    text + rest
}

/// The output of a bench.
pub(crate) struct Figures {
    pub(crate) name: &'static str,
    pub(crate) has_ended_well: bool,
    pub(crate) lines: Vec<String>,
}

pub(crate) struct Card {
    pub(crate) adapter: Adapter,
    pub(crate) revision: Option<String>,
    pub(crate) tests: Tests,
    pub(crate) figures: Vec<Figures>,
    pub(crate) is_small: bool,
}

impl Card {
    /// The adapter's name and API, in characters that every file system accepts.
    pub(crate) fn file_name(&self) -> String {
        let words = format!(
            "{} {}",
            self.adapter.field("name"),
            self.adapter.field("backend")
        );
        let parts = words.split(|c: char| !c.is_ascii_alphanumeric());
        let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
        format!("{}.md", parts.join("-").to_lowercase())
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n", self.adapter.title());
        let revision = self.revision.as_deref().unwrap_or("no commit");
        let _ = writeln!(text, "lapidary {revision}, {OS}, {ARCH}.");
        if self.is_small {
            text += "A short run: a part of the suite, and sizes whose figures say nothing.\n";
        }
        text += "\n## Limits\n\n| what | value |\n| --- | --- |\n";
        for (name, value) in &self.adapter.fields {
            if !["name", "backend", "driver", "chosen", "index"].contains(&name.as_str()) {
                let value = if value == "null" { "not told" } else { value };
                let _ = writeln!(text, "| {name} | {value} |");
            }
        }
        let _ = write!(text, "\n## Tests\n\n{}", self.summary());
        for name in &self.tests.failed {
            let _ = writeln!(text, "* failed: `{name}`");
        }
        for figures in &self.figures {
            let _ = writeln!(text, "\n## Bench `{}`\n\n```text", figures.name);
            for line in &figures.lines {
                let _ = writeln!(text, "{line}");
            }
            text += "```\n";
            if !figures.has_ended_well {
                text += "\nIt did not end well.\n";
            }
        }
        text
    }

    /// The counts in one line.
    pub(crate) fn summary(&self) -> String {
        let Tests {
            passed,
            skipped,
            failed,
        } = &self.tests;
        format!(
            "{passed} passed, {} failed, {skipped} skipped\n",
            failed.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = r#"{"adapters":[
        {"backend":"gl","chosen":false,"driver":"","index":0,"name":"Mesa","subgroup_lanes":null},
        {"backend":"vulkan","budget_bytes":null,"chosen":true,"driver":"NVIDIA 580.1","index":1,
         "max_buffer_bytes":4294967040,"name":"NVIDIA GeForce RTX 4090","subgroup_lanes":[32,32]}]}"#;

    fn card() -> Card {
        Card {
            adapter: Adapter::chosen_of(LISTED).expect("one is chosen"),
            revision: Some("0123456789ab".into()),
            tests: Tests {
                passed: 7,
                skipped: 1,
                failed: vec!["lapidary::device order::reads".into()],
            },
            figures: vec![Figures {
                name: "card",
                has_ended_well: false,
                lines: vec!["| matmul | 1 |".into()],
            }],
            is_small: true,
        }
    }

    #[test]
    fn the_report_has_the_chosen_adapter_its_limits_tests_and_figures() {
        let text = card().markdown();
        for part in [
            "# NVIDIA GeForce RTX 4090, vulkan, NVIDIA 580.1\n",
            "lapidary 0123456789ab",
            "A short run",
            "| max_buffer_bytes | 4294967040 |\n",
            "| subgroup_lanes | 32 to 32 |\n",
            "7 passed, 1 failed, 1 skipped\n",
            "* failed: `lapidary::device order::reads`\n",
            "## Bench `card`\n\n```text\n| matmul | 1 |\n```\n\nIt did not end well.\n",
        ] {
            assert!(text.contains(part), "{part} in:\n{text}");
        }
        assert!(!text.contains("Mesa"), "{text}");
    }

    #[test]
    fn its_name_is_the_adapters() {
        assert_eq!(card().file_name(), "nvidia-geforce-rtx-4090-vulkan.md");
    }

    #[test]
    fn a_list_without_a_choice_has_no_adapter() {
        for listed in [
            "",
            "{}",
            r#"{"adapters":[]}"#,
            r#"{"adapters":[{"name":"a","chosen":false}]}"#,
        ] {
            assert_eq!(Adapter::chosen_of(listed), None, "{listed}");
        }
    }
}
