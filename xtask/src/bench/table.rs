//! Rows as lines for the terminal and as Markdown.

use super::row::Row;

pub(crate) fn header() -> String {
    format!("{:<42} {:>16} {:>8}  of", "case", "figure", "share")
}

pub(crate) fn line(row: &Row) -> String {
    let Some(figure) = &row.figure else {
        return format!("{:<42} {:>16}", row.case, none(row));
    };
    let value = format!("{} {}", digits(figure.value), figure.unit);
    match &figure.limit {
        Some(limit) => format!(
            "{:<42} {value:>16} {:>8}  {} ({})",
            row.case,
            percent(limit.share),
            digits(limit.value),
            limit.name
        ),
        None => format!("{:<42} {value:>16} {:>8}", row.case, "–"),
    }
}

/// A table of one library's figures, with the device that they were measured on.
pub(crate) fn markdown(rows: &[Row]) -> String {
    let adapter = rows.first().map(Row::adapter).unwrap_or_default();
    let mut text =
        format!("On {adapter}:\n\n| case | figure | share | of |\n| --- | ---: | ---: | --- |\n");
    for row in rows {
        let cells = match &row.figure {
            None => [none(row), String::new(), String::new()],
            Some(figure) => {
                let limit = figure.limit.as_ref();
                [
                    format!("{} {}", digits(figure.value), figure.unit),
                    limit.map_or("–".into(), |limit| percent(limit.share)),
                    limit.map_or(String::new(), |limit| {
                        format!("{} ({})", digits(limit.value), limit.name)
                    }),
                ]
            }
        };
        text += &format!("| {} | {} |\n", escaped(&row.case), cells.join(" | "));
    }
    text
}

/// The text in place of a figure.
pub(crate) fn none(row: &Row) -> String {
    match &row.error {
        Some(error) => format!("ERROR: {error}"),
        None => "–".into(),
    }
}

/// Escapes asterisks, which Markdown would interpret.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('*', "\\*").replace('|', "\\|")
}

pub(crate) fn percent(share: f64) -> String {
    format!("{} %", digits(100.0 * share))
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
        for (value, text) in [
            (123456.0, "123456"),
            (1490.4, "1490"),
            (51.23, "51.2"),
            (0.4137, "0.414"),
            (0.05, "0.05"),
            (62.0, "62"),
            (0.0, "0"),
        ] {
            assert_eq!(digits(value), text);
        }
    }

    #[test]
    fn a_wrong_result_is_told_in_the_place_of_its_figure() {
        let row = Row::failed("lapidary", "sum 16M", "wrong: element 0 is 1 and not 2");
        assert!(line(&row).contains("ERROR: wrong"));
        assert!(markdown(&[row]).contains("| sum 16M | ERROR: wrong: element 0 is 1 and not 2 |"));
    }
}
