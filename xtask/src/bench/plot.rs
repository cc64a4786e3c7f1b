//! The table as a picture: a dot for each figure, on logarithmic scales.

use std::fmt::Write as _;

use super::row::Row;
use super::table::{digits, percent};

const WIDTH: f64 = 800.0;
/// Left and right end of the scales. Names are left of them, figures right.
const LEFT: f64 = 290.0;
const RIGHT: f64 = 690.0;
const LINE: f64 = 19.0;
/// Space above each scale, and below the last.
const HEAD: f64 = 54.0;
const FOOT: f64 = 12.0;

const COLOURS: [&str; 4] = ["#0b62a8", "#c9541a", "#2f8a3c", "#8a4fae"];

/// The rows on one scale.
struct Panel<'a> {
    title: &'static str,
    value: fn(&Row) -> Option<f64>,
    shown: fn(&Row, f64) -> String,
    mark: fn(f64) -> String,
    /// The ends of the scale as powers of ten.
    least: i32,
    most: i32,
    lines: Vec<(&'a str, Vec<&'a Row>)>,
}

/// An SVG of all rows that are shares or times.
pub(crate) fn plot(rows: &[Row]) -> String {
    let panels: Vec<_> = [
        panel(
            rows,
            "share of what the cores do (100 %)",
            share,
            |_, value| percent(value),
            percent,
        ),
        panel(rows, "time", time, figure, duration),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&row.by.as_str()) {
            names.push(&row.by);
        }
    }
    let lines: usize = panels.iter().map(|panel| panel.lines.len()).sum();
    let height = 46.0 + HEAD * panels.len() as f64 + LINE * lines as f64 + FOOT;
    let adapter = rows.first().map(Row::adapter).unwrap_or_default();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(
        &mut svg,
        [16.0, 24.0],
        "start",
        &adapter,
        "font-weight=\"bold\"",
    );
    let mut x = 16.0;
    for (index, name) in names.iter().enumerate() {
        dot(&mut svg, [x + 5.0, 42.0], index);
        text(&mut svg, [x + 14.0, 46.0], "start", name, "");
        x += 40.0 + 7.0 * name.chars().count() as f64;
    }
    let mut top = 46.0;
    for panel in &panels {
        draw(&mut svg, panel, &names, top);
        top += HEAD + LINE * panel.lines.len() as f64;
    }
    svg + "</svg>\n"
}

fn share(row: &Row) -> Option<f64> {
    let limit = row.figure.as_ref()?.limit.as_ref()?;
    Some(limit.share).filter(|share| *share > 0.0)
}

/// The time of a row without a limit.
fn time(row: &Row) -> Option<f64> {
    let figure = row
        .figure
        .as_ref()
        .filter(|figure| figure.limit.is_none())?;
    let unit = match figure.unit.as_str() {
        "s" => 1.0,
        "us" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    };
    Some(figure.value * unit).filter(|seconds| *seconds > 0.0)
}

fn figure(row: &Row, _: f64) -> String {
    let figure = row.figure.as_ref();
    figure.map_or(String::new(), |figure| {
        format!("{} {}", digits(figure.value), figure.unit)
    })
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 0.99e-6 => format!("{} ns", digits(s * 1e9)),
        s if s < 0.99e-3 => format!("{} us", digits(s * 1e6)),
        s if s < 0.99 => format!("{} ms", digits(s * 1e3)),
        s => format!("{} s", digits(s)),
    }
}

fn panel<'a>(
    rows: &'a [Row],
    title: &'static str,
    value: fn(&Row) -> Option<f64>,
    shown: fn(&Row, f64) -> String,
    mark: fn(f64) -> String,
) -> Option<Panel<'a>> {
    let mut lines: Vec<(&str, Vec<&Row>)> = Vec::new();
    let mut powers = Vec::new();
    for row in rows {
        let Some(value) = value(row) else {
            continue;
        };
        powers.push(value.log10());
        match lines.iter_mut().find(|(case, _)| *case == row.case) {
            Some((_, of_case)) => of_case.push(row),
            None => lines.push((&row.case, vec![row])),
        }
    }
    let least = powers.iter().copied().reduce(f64::min)?.floor() as i32;
    let most = powers
        .iter()
        .copied()
        .fold(f64::from(least) + 1.0, f64::max)
        .ceil() as i32;
    Some(Panel {
        title,
        value,
        shown,
        mark,
        least,
        most,
        lines,
    })
}

fn draw(svg: &mut String, panel: &Panel<'_>, names: &[&str], top: f64) {
    let place = |value: f64| {
        let span = f64::from(panel.most - panel.least);
        LEFT + (RIGHT - LEFT) * (value.log10() - f64::from(panel.least)) / span
    };
    let first = top + HEAD;
    let bottom = first + LINE * panel.lines.len() as f64 - LINE / 2.0;
    text(
        svg,
        [16.0, top + 34.0],
        "start",
        panel.title,
        "font-weight=\"bold\"",
    );
    for power in panel.least..=panel.most {
        let value = 10_f64.powi(power);
        let x = place(value);
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"{}\"/>",
            top + 40.0,
            if value == 1.0 { "#888" } else { "#ddd" }
        );
        // With many powers of ten, only every second mark has a name.
        if panel.most - panel.least < 6 || (power - panel.least) % 2 == 0 {
            let mark = (panel.mark)(value);
            text(svg, [x, top + 34.0], "middle", &mark, "fill=\"#555\"");
        }
    }
    for (index, (case, rows)) in panel.lines.iter().enumerate() {
        let y = first + LINE * index as f64;
        text(svg, [16.0, y + 4.0], "start", case, "");
        for (number, row) in rows.iter().enumerate() {
            let Some(value) = (panel.value)(row) else {
                continue;
            };
            let x = place(value);
            if number == 0 {
                let _ = writeln!(
                    svg,
                    "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{x:.1}\" y2=\"{y:.1}\" stroke=\"#b8cfe0\" stroke-width=\"3\"/>"
                );
                text(
                    svg,
                    [WIDTH - 16.0, y + 4.0],
                    "end",
                    &(panel.shown)(row, value),
                    "",
                );
            }
            let by = names.iter().position(|name| *name == row.by).unwrap_or(0);
            dot(svg, [x, y], by);
        }
    }
}

fn dot(svg: &mut String, [x, y]: [f64; 2], series: usize) {
    let colour = COLOURS[series % COLOURS.len()];
    let _ = writeln!(
        svg,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{colour}\"/>"
    );
}

fn text(svg: &mut String, [x, y]: [f64; 2], anchor: &str, words: &str, style: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {style}>{words}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::row::{Figure, Limit};

    fn row(case: &str, value: f64, unit: &str, share: Option<f64>) -> Row {
        let limit = share.map(|share| Limit {
            name: "loops".into(),
            value: 1.0,
            share,
        });
        let figure = Some(Figure {
            value,
            unit: unit.into(),
            seconds: 1.0,
            limit,
        });
        Row {
            case: case.into(),
            by: "lapidary".into(),
            figure,
            ..Row::default()
        }
    }

    #[test]
    fn every_share_and_every_time_has_its_dot() {
        let rows = [
            row("a", 1.0, "GB/s", Some(0.25)),
            row("b<c", 3.0, "us", None),
            row("d", 60.0, "crates", None),
            Row::failed("lapidary", "e", "wrong"),
        ];
        let svg = plot(&rows);
        // And one dot in the legend.
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("b&lt;c") && svg.contains("25 %") && svg.contains("3 us"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn nothing_is_a_picture_too() {
        assert!(plot(&[]).ends_with("</svg>\n"));
    }
}
