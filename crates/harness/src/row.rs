//! A line of the table, for people and for programs.

use crate::cases::Work;
use crate::subject::{About, Figures};

/// The result of a case.
pub(crate) enum Outcome {
    Measured(Figures),
    /// This subject lacks the case on this adapter.
    Absent,
    Failed(String),
}

pub(crate) struct Row<'a> {
    pub(crate) case: &'static str,
    pub(crate) work: Work,
    pub(crate) about: &'a About,
    pub(crate) outcome: Outcome,
}

pub(crate) fn header() -> String {
    format!(
        "{:<42} {:>10} {:<8} {:>7}  {}",
        "case", "figure", "", "share", "of"
    )
}

impl Row<'_> {
    pub(crate) fn text(&self) -> String {
        let figures = match &self.outcome {
            Outcome::Measured(figures) => figures,
            Outcome::Absent => return format!("{:<42} {:>10}", self.case, "–"),
            Outcome::Failed(error) => return format!("{:<42} ERROR: {error}", self.case),
        };
        let unit = self.work.unit();
        let (share, of) = match &figures.limit {
            Some((seconds, name)) => (
                format!("{:.1} %", 100.0 * seconds / figures.seconds),
                format!("{name}: {:.4}", unit.figure(*seconds)),
            ),
            None => ("–".into(), String::new()),
        };
        format!(
            "{:<42} {:>10.4} {:<8} {share:>7}  {of}",
            self.case,
            unit.figure(figures.seconds),
            unit.name()
        )
    }

    /// One object with `case`, `by`, `adapter`, `driver`. Then come `value`, `unit`, `seconds`,
    /// `first_seconds`, `rounds` and, if the host does the same work, `share`, `limit`,
    /// `limit_value`. Or `absent`, or `error`.
    pub(crate) fn json(&self) -> String {
        let unit = self.work.unit();
        let mut fields = vec![
            text("case", self.case),
            text("by", self.about.by),
            text("adapter", &self.about.adapter),
            text("driver", &self.about.driver),
        ];
        match &self.outcome {
            Outcome::Measured(figures) => {
                fields.extend([
                    number("value", unit.figure(figures.seconds)),
                    text("unit", unit.name()),
                    number("seconds", figures.seconds),
                    number("first_seconds", figures.first_seconds),
                    number("rounds", figures.rounds.into()),
                ]);
                if let Some((seconds, name)) = &figures.limit {
                    fields.extend([
                        number("share", seconds / figures.seconds),
                        text("limit", name),
                        number("limit_value", unit.figure(*seconds)),
                    ]);
                }
            }
            Outcome::Absent => fields.push("\"absent\":true".into()),
            Outcome::Failed(error) => fields.push(text("error", error)),
        }
        format!("{{{}}}", fields.join(","))
    }
}

fn text(name: &str, value: &str) -> String {
    let mut escaped = String::new();
    for c in value.chars() {
        match c {
            '"' | '\\' => escaped.extend(['\\', c]),
            // Joins a message of several lines into one line.
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    format!("\"{name}\":\"{escaped}\"")
}

fn number(name: &str, value: f64) -> String {
    format!("\"{name}\":{value:.6e}")
}
