//! The lines of JSON that a measuring program prints: one object each, without nested objects.

/// The result of one case by one library.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) by: String,
    pub(crate) adapter: String,
    pub(crate) driver: String,
    pub(crate) figure: Option<Figure>,
    /// Why there is no figure; empty if the library lacks the case.
    pub(crate) error: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) value: f64,
    pub(crate) unit: String,
    /// The time of one call.
    pub(crate) seconds: f64,
    pub(crate) limit: Option<Limit>,
}

/// The machine's limit for the same work.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limit {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) share: f64,
}

impl Row {
    /// None if the line is not a row.
    pub(crate) fn parse(line: &str) -> Option<Row> {
        let fields = fields(line)?;
        let text = |name: &str| {
            fields
                .iter()
                .find(|(field, _)| field == name)
                .map(|(_, value)| value.clone())
        };
        let number = |name: &str| text(name)?.parse::<f64>().ok();
        let limit = || {
            Some(Limit {
                name: text("limit")?,
                value: number("limit_value")?,
                share: number("share")?,
            })
        };
        let figure = || {
            Some(Figure {
                value: number("value")?,
                unit: text("unit")?,
                seconds: number("seconds")?,
                limit: limit(),
            })
        };
        Some(Row {
            case: text("case")?,
            by: text("by")?,
            adapter: text("adapter").unwrap_or_default(),
            driver: text("driver").unwrap_or_default(),
            figure: figure(),
            error: text("error"),
        })
    }

    /// A case that this program does not have.
    pub(crate) fn missing(by: &str, case: &str) -> Row {
        Row {
            case: case.into(),
            by: by.into(),
            ..Row::default()
        }
    }

    pub(crate) fn failed(by: &str, case: &str, error: &str) -> Row {
        Row {
            error: Some(error.into()),
            ..Row::missing(by, case)
        }
    }

    /// A figure that is not a time of calls.
    pub(crate) fn counted(case: &str, value: f64, unit: &str) -> Row {
        Row {
            case: case.into(),
            by: "lapidary".into(),
            figure: Some(Figure {
                value,
                unit: unit.into(),
                seconds: value,
                limit: None,
            }),
            ..Row::default()
        }
    }

    /// The device and library of the figures, in words.
    pub(crate) fn adapter(&self) -> String {
        match self.adapter.is_empty() {
            true => "no adapter".into(),
            false => format!("{} ({})", self.adapter, self.driver),
        }
    }

    /// The row as a line of JSON.
    pub(crate) fn json(&self) -> String {
        let mut fields = Vec::new();
        let mut text = |name: &str, value: &str| {
            if !value.is_empty() {
                fields.push(format!("\"{name}\":{}", quoted(value)));
            }
        };
        text("case", &self.case);
        text("by", &self.by);
        text("adapter", &self.adapter);
        text("driver", &self.driver);
        text("error", self.error.as_deref().unwrap_or_default());
        let limit = self
            .figure
            .as_ref()
            .and_then(|figure| figure.limit.as_ref());
        if let Some(figure) = &self.figure {
            text("unit", &figure.unit);
        }
        if let Some(limit) = limit {
            text("limit", &limit.name);
        }
        let mut number = |name: &str, value: f64| fields.push(format!("\"{name}\":{value:.6e}"));
        if let Some(figure) = &self.figure {
            number("value", figure.value);
            number("seconds", figure.seconds);
        }
        if let Some(limit) = limit {
            number("share", limit.share);
            number("limit_value", limit.value);
        }
        format!("{{{}}}", fields.join(","))
    }
}

pub(crate) fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .flat_map(|c| match c {
            '"' | '\\' => vec!['\\', c],
            c if c.is_control() => vec![' '],
            c => vec![c],
        })
        .collect();
    format!("\"{escaped}\"")
}

/// The names and values of a flat object of strings, numbers and booleans.
pub(crate) fn fields(line: &str) -> Option<Vec<(String, String)>> {
    let mut rest = line.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let (name, after) = string(rest)?;
        let after = after.trim_start().strip_prefix(':')?.trim_start();
        let (value, after) = match after.starts_with('"') {
            true => string(after)?,
            false => {
                let end = after.find(',').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        fields.push((name, value));
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(more) => more.trim_start(),
            None if after.is_empty() => after,
            None => return None,
        };
    }
    Some(fields)
}

/// The string at the beginning, and the rest.
fn string(text: &str) -> Option<(String, &str)> {
    let inside = text.strip_prefix('"')?;
    let mut read = String::new();
    let mut is_escaped = false;
    for (offset, c) in inside.char_indices() {
        match c {
            _ if is_escaped => {
                read.push(c);
                is_escaped = false;
            }
            '\\' => is_escaped = true,
            '"' => return Some((read, &inside[offset + 1..])),
            c => read.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_with_its_limit() {
        let line = r#"{"case":"add, \"16M\"","by":"lapidary","adapter":"a","driver":"d","value":1.5e1,
            "unit":"GB/s","seconds":1e-2,"share":0.25,"limit":"loops, 2 threads","limit_value":60}"#;
        let row = Row::parse(line).expect("a row");
        assert_eq!(Row::parse(&row.json()), Some(row.clone()));
        let figure = row.figure.expect("it was measured");
        assert_eq!((row.case.as_str(), figure.value), ("add, \"16M\"", 15.0));
        let limit = figure.limit.expect("the host does it too");
        assert_eq!(
            (limit.name.as_str(), limit.share),
            ("loops, 2 threads", 0.25)
        );
    }

    #[test]
    fn what_was_not_measured_says_why() {
        let absent = Row::parse(r#"{"case":"a","by":"b","absent":true}"#).expect("a row");
        assert!(absent.figure.is_none() && absent.error.is_none());
        let failed = Row::failed("b", "a", "two \"words\"");
        assert_eq!(Row::parse(&failed.json()), Some(failed));
    }

    #[test]
    fn other_lines_are_no_rows() {
        for line in [
            "",
            "{}",
            "warning: x",
            "{\"case\":\"a\"}",
            "{\"case\":\"a\" \"by\":\"b\"}",
            "{\"case\":\"a",
        ] {
            assert_eq!(Row::parse(line), None, "{line}");
        }
    }
}
