//! The program's output. It stops when the reader closes it, and contains no terminal control
//! characters.

use std::fmt::Display;
use std::io::{ErrorKind, Result as Written, Write};

use embed::{Error, Result};

/// The receiver of lines.
#[derive(Debug)]
pub(super) struct Output<W> {
    to: W,
    is_closed: bool,
}

impl<W: Write> Output<W> {
    pub(super) fn new(to: W) -> Output<W> {
        Output {
            to,
            is_closed: false,
        }
    }

    /// Has the reader closed the output? Later lines are dropped.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Prints a line.
    pub(super) fn line(&mut self, line: impl Display) -> Result<()> {
        let line = printable(&line.to_string());
        self.write(|to| writeln!(to, "{line}"))
    }

    /// Prints a prompt for an answer in the same line.
    pub(super) fn prompt(&mut self, text: &str) -> Result<()> {
        self.write(|to| write!(to, "{text}").and_then(|()| to.flush()))
    }

    fn write(&mut self, write: impl FnOnce(&mut W) -> Written<()>) -> Result<()> {
        if self.is_closed {
            return Ok(());
        }
        match write(&mut self.to) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            written => written.map_err(|error| {
                Error::Input(format!(
                    "the output cannot be written: {error}. Is there room where it goes?"
                ))
            }),
        }
    }
}

/// A text in one line, safe for a terminal. Texts and file names come from strangers. Characters
/// that move the cursor, change colours, or reverse the order of text are shown as `\u001b`, which
/// means the same in JSON.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        match c {
            '\t' => shown.push(c),
            _ if c.is_control() || turns => shown += &format!("\\u{:04x}", u32::from(c)),
            _ => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes one line, and then closes.
    struct Head {
        lines: Vec<String>,
        error: ErrorKind,
    }

    impl Write for Head {
        fn write(&mut self, bytes: &[u8]) -> Written<usize> {
            if self.lines.concat().ends_with('\n') {
                return Err(self.error.into());
            }
            self.lines.push(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> Written<()> {
            Ok(())
        }
    }

    fn head(error: ErrorKind) -> Output<Head> {
        Output::new(Head {
            lines: Vec::new(),
            error,
        })
    }

    #[test]
    fn a_reader_that_has_seen_enough_is_no_error() {
        let mut out = head(ErrorKind::BrokenPipe);
        out.line("one").unwrap();
        assert!(!out.is_closed());
        out.line("two").unwrap();
        assert!(out.is_closed());
        out.prompt("> ").unwrap();
        assert_eq!(out.to.lines.concat(), "one\n");
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let mut out = head(ErrorKind::StorageFull);
        out.line("one").unwrap();
        let refused = out.line("two").unwrap_err().to_string();
        assert!(refused.contains("Is there room"), "{refused}");
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        for (text, shown) in [
            (
                "Ünïcode, 日本 and a tab\t stay.",
                "Ünïcode, 日本 and a tab\t stay.",
            ),
            ("\u{1b}[31mred\u{7}", "\\u001b[31mred\\u0007"),
            ("a\r\nb\u{7f}", "a\\u000d\\u000ab\\u007f"),
            ("\u{9b}2J\u{202e}txt.", "\\u009b2J\\u202etxt."),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn json_means_the_same_afterwards() {
        let text = "\u{1b}[31m \u{9b} \u{7f} \u{2066} \\ \t\n";
        let line = printable(&serde_json::json!(text).to_string());
        let read: String = serde_json::from_str(&line).unwrap();
        assert_eq!(read, text);
    }
}
