//! The lines of JSON that a measuring program prints, and their form as a table.

use serde_json::{Value, json};

/// The result of one case by one library: an object with the fields `case`, `by`, `adapter`,
/// `driver`, and an `error`, or a `value` with its `unit` and the `seconds` of one call. Without
/// both, the library lacks the case. The machine's limit for the same work is a `limit` with its
/// `limit_value`, of which the value is a `share`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row(pub(crate) Value);

impl Row {
    /// None if the line is not a row.
    pub(crate) fn parse(line: &str) -> Option<Row> {
        let row: Value = serde_json::from_str(line).ok()?;
        (row["case"].is_string() && row["by"].is_string()).then_some(Row(row))
    }

    /// A case that this program does not have.
    pub(crate) fn missing(by: &str, case: &str) -> Row {
        Row(json!({ "case": case, "by": by }))
    }

    pub(crate) fn failed(by: &str, case: &str, error: &str) -> Row {
        Row(json!({ "case": case, "by": by, "error": error }))
    }

    /// A figure that is not a time of calls.
    pub(crate) fn counted(case: &str, value: f64, unit: &str) -> Row {
        let by = "lapidary";
        Row(json!({ "case": case, "by": by, "value": value, "unit": unit, "seconds": value }))
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_default()
    }

    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        self.0[key].as_f64()
    }

    /// The time of one call, if it was measured.
    pub(crate) fn seconds(&self) -> Option<f64> {
        self.number("value").and(self.number("seconds"))
    }

    pub(crate) fn has_error(&self) -> bool {
        self.0["error"].is_string()
    }

    /// The device and library of the figures, in words.
    pub(crate) fn adapter(&self) -> String {
        match self.text("adapter") {
            "" => "no adapter".into(),
            adapter => format!("{adapter} ({})", self.text("driver")),
        }
    }

    /// The figure, or the text in its place.
    pub(crate) fn figure(&self) -> String {
        match (self.number("value"), self.has_error()) {
            (Some(value), _) => format!("{} {}", digits(value), self.text("unit")),
            (None, true) => format!("ERROR: {}", self.text("error")),
            (None, false) => "–".into(),
        }
    }

    /// The limit and its name, if there is one.
    pub(crate) fn limit(&self) -> String {
        let limit = self.number("limit_value");
        let named = |value| format!("{} ({})", digits(value), self.text("limit"));
        limit.map(named).unwrap_or_default()
    }

    pub(crate) fn share(&self) -> String {
        let share = self.number("share");
        share.map_or("–".into(), |share| format!("{} %", digits(100.0 * share)))
    }

    /// The row on a terminal, below [`HEADER`].
    pub(crate) fn line(&self) -> String {
        let (case, figure, share) = (self.text("case"), self.figure(), self.share());
        format!("{case:<42} {figure:>16} {share:>8}  {}", self.limit())
    }
}

pub(crate) const HEADER: &str =
    "case                                                 figure    share  of";

/// A table of one library's figures, with the device that they were measured on.
pub(crate) fn markdown(rows: &[Row]) -> String {
    let adapter = rows.first().map(Row::adapter).unwrap_or_default();
    let mut text =
        format!("On {adapter}:\n\n| case | figure | share | of |\n| --- | ---: | ---: | --- |\n");
    for row in rows {
        let (case, figure, share) = (escaped(row.text("case")), row.figure(), row.share());
        text += &format!("| {case} | {figure} | {share} | {} |\n", row.limit());
    }
    text
}

/// Escapes asterisks, which Markdown would interpret.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('*', "\\*").replace('|', "\\|")
}

/// Three significant digits, without an exponent.
pub(crate) fn digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = (2 - magnitude).clamp(0, 9) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let values = [123456.0, 1490.4, 51.23, 0.4137, 0.05, 62.0, 0.0];
        let texts = ["123456", "1490", "51.2", "0.414", "0.05", "62", "0"];
        assert_eq!(values.map(digits), texts);
    }

    #[test]
    fn a_row_is_shown_with_its_limit_and_an_error_in_the_place_of_a_figure() {
        let line = r#"{"case":"add*","by":"lapidary","adapter":"a","driver":"d","value":1.5e1,
            "unit":"GB/s","seconds":1e-2,"share":0.25,"limit":"loops","limit_value":60}"#;
        let row = Row::parse(line).expect("a row");
        assert_eq!((row.seconds(), row.adapter()), (Some(0.01), "a (d)".into()));
        let failed = Row::failed("lapidary", "sum", "wrong: 1 and not 2");
        let table = markdown(&[row, failed, Row::missing("lapidary", "b")]);
        for line in [
            "add\\* | 15 GB/s | 25 % | 60 (loops)",
            "sum | ERROR: wrong: 1 and not 2 | – | ",
        ] {
            assert!(table.contains(&format!("\n| {line} |\n")), "{table}");
        }
        assert!(table.contains("\n| b | – | – |  |\n"), "{table}");
        for line in ["", "{}", "warning: x", "{\"case\":\"a\"}", "{\"case\":\"a"] {
            assert_eq!(Row::parse(line), None, "{line}");
        }
    }
}
