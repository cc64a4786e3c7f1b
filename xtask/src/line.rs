//! Last lines of programs, which report results.

use crate::process::Result;

/// A last line for programs: `NAME: KEY=VALUE KEY=VALUE …`.
pub(crate) struct Line<'a> {
    pub(crate) text: &'a str,
}

impl<'a> Line<'a> {
    /// The last line that begins with the program's name. A driver may have printed a warning after
    /// it.
    pub(crate) fn last(name: &str, lines: &'a [String]) -> Result<Line<'a>> {
        let is_it = |line: &&String| line.starts_with(&format!("{name}: "));
        match lines.iter().rfind(is_it) {
            Some(text) => Ok(Line { text }),
            None => Err(format!("the example `{name}` has no line for programs.")),
        }
    }

    pub(crate) fn complain<T>(&self, fault: &str) -> Result<T> {
        Err(format!("a last line {fault}: {}", self.text))
    }

    pub(crate) fn text(&self, key: &str) -> Result<&'a str> {
        let mut pairs = (self.text.split_whitespace()).filter_map(|field| field.split_once('='));
        match pairs.find(|(name, _)| *name == key) {
            Some((_, value)) => Ok(value),
            None => self.complain(&format!("has no `{key}`")),
        }
    }

    pub(crate) fn number(&self, key: &str) -> Result<f64> {
        match self.text(key)?.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => self.complain(&format!("has no number `{key}`")),
        }
    }

    /// An error unless the key has this value.
    pub(crate) fn expect(&self, key: &str, value: &str) -> Result<()> {
        match self.text(key)? == value {
            true => Ok(()),
            false => self.complain(&format!("does not say {key}={value}")),
        }
    }
}
