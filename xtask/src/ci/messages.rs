//! Messages of the validation layer, and the list of accepted ones.

use std::fs;
use std::path::Path;

use crate::process::Result;

/// Accepted messages that we cannot fix, each with its reason.
pub(super) struct AllowList {
    patterns: Vec<String>,
}

impl AllowList {
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(file).map_err(|error| format!("{}: {error}.", file.display()))?;
        Self::parse(&text)
    }

    /// One entry a line: `part of the message | reason`. Lines with `#` are comments.
    fn parse(text: &str) -> Result<Self> {
        let entries = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let patterns = entries.map(|line| match line.split_once(" | ") {
            Some((pattern, reason)) if pattern.trim().len() >= 8 && !reason.trim().is_empty() => {
                Ok(pattern.trim().to_owned())
            }
            _ => Err(format!(
                "an allowed message is `part of it | reason`, and this is not: {line}"
            )),
        });
        Ok(Self {
            patterns: patterns.collect::<Result<_>>()?,
        })
    }

    pub(super) fn covers(&self, message: &str) -> bool {
        self.patterns
            .iter()
            .any(|pattern| message.contains(pattern))
    }
}

/// Whether a line of output is a message of the layer. The colon and the bracket distinguish it
/// from wgpu's own error of the same name, which tests provoke.
pub(super) fn is_message(line: &str) -> bool {
    const MARKS: [&str; 4] = [
        "VUID-",
        "Validation Error: [",
        "Validation Warning: [",
        "Validation Performance Warning: [",
    ];
    MARKS.iter().any(|mark| line.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str =
        "VUID-VkBufferCreateInfo-size-00912(ERROR / SPEC): msgNum: 1 - Validation Error: [ … ]";

    #[test]
    fn a_message_is_told_from_other_output() {
        assert!(is_message(MESSAGE));
        assert!(is_message(
            "UNASSIGNED-x(WARN): Validation Warning: [ UNASSIGNED-x ]"
        ));
        assert!(!is_message("Validation Error"));
        assert!(!is_message("test a_message ... ok"));
    }

    #[test]
    fn a_listed_message_is_covered_and_no_other() {
        let list = "# comment\n\nVUID-VkBufferCreateInfo-size-00912 | known, driver bug 7\n";
        let list = AllowList::parse(list).expect("the list is well formed");
        assert!(list.covers(MESSAGE));
        assert!(!list.covers("VUID-VkImageCreateInfo-format"));
    }

    #[test]
    fn an_entry_without_a_reason_is_refused() {
        assert!(AllowList::parse("VUID-VkBufferCreateInfo-size-00912").is_err());
        assert!(AllowList::parse("VUID-VkBufferCreateInfo-size-00912 | ").is_err());
        assert!(AllowList::parse("V | a pattern that covers everything").is_err());
    }
}
