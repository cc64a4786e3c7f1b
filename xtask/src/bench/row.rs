//! The lines of JSON that a measuring program prints, and their form in a table.

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

    /// The figure with its share of the limit, or the text in its place.
    pub(crate) fn figure(&self) -> String {
        let share = |share| format!(" ({} %)", digits(100.0 * share));
        let share = self.number("share").map(share);
        match self.number("value") {
            Some(value) => {
                let unit = self.text("unit");
                format!("{} {unit}{}", digits(value), share.unwrap_or_default())
            }
            None if self.has_error() => format!("ERROR: {}", self.text("error")),
            None => "–".into(),
        }
    }

    /// The limit and its name, if there is one.
    pub(crate) fn limit(&self) -> String {
        let named = |value| format!("{} ({})", digits(value), self.text("limit"));
        self.number("limit_value").map_or("–".into(), named)
    }
}

/// Escapes what Markdown would interpret.
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

#[test]
fn figures_have_three_digits() {
    let values = [123456.0, 1490.4, 51.23, 0.4137, 0.05, 62.0, 0.0];
    let texts = ["123456", "1490", "51.2", "0.414", "0.05", "62", "0"];
    assert_eq!(values.map(digits), texts);
}

#[test]
fn only_rows_are_read() {
    for line in ["", "{}", "warning: x", "{\"case\":\"a\"}", "{\"case\":\"a"] {
        assert_eq!(Row::parse(line), None, "{line}");
    }
}
