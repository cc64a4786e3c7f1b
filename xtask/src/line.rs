//! Last lines of programs, which report results, and conditions on them.

use crate::process::{Cmd, Context, Result, bail, ensure, lines_of};

/// A last line for programs: `NAME: KEY=VALUE KEY=VALUE …`.
#[derive(Debug)]
pub(crate) struct Line(pub(crate) String);

impl Line {
    /// Runs a program to its end. Returns the last line that begins with its name; a driver may
    /// have printed a warning after it.
    pub(crate) fn last(name: &str, program: Cmd<'_>) -> Result<Line> {
        Line::of(name, &lines_of(program)?)
    }

    pub(crate) fn of(name: &str, lines: &[String]) -> Result<Line> {
        let start = format!("{name}: ");
        let line = lines.iter().rfind(|line| line.starts_with(&start)).cloned();
        let none = || format!("`{name}` has no line for programs");
        line.map(Line).with_context(none)
    }

    fn text(&self, key: &str) -> Option<&str> {
        let fields = self.0.split_whitespace();
        let mut pairs = fields.filter_map(|field| field.split_once('='));
        pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    pub(crate) fn number(&self, key: &str) -> Result<f64> {
        let number = self.text(key).and_then(|text| text.parse::<f64>().ok());
        let number = number.filter(|number| number.is_finite());
        number.with_context(|| format!("a last line has no number `{key}`: {}", self.0))
    }

    /// Conditions with commas between them: `key is text`, `key is not text`, and `key <= limit`,
    /// or with `>=`, `<` and `>`. A limit is a product of numbers and keys: `0.95 * first_loss`.
    pub(crate) fn expect(&self, conditions: &str) -> Result<()> {
        for condition in conditions.split(", ") {
            let holds = match condition.split_whitespace().collect::<Vec<_>>()[..] {
                [key, "is", text] => self.text(key) == Some(text),
                [key, "is", "not", text] => self.text(key).is_some_and(|known| known != text),
                [key, sign, ref factors @ ..] => {
                    let (number, mut limit) = (self.number(key)?, 1.0);
                    for factor in factors.iter().filter(|factor| **factor != "*") {
                        limit *= factor.parse().or_else(|_| self.number(factor))?;
                    }
                    match sign {
                        "<=" => number <= limit,
                        ">=" => number >= limit,
                        "<" => number < limit,
                        ">" => number > limit,
                        _ => bail!("`{condition}` is no condition"),
                    }
                }
                _ => bail!("`{condition}` is no condition"),
            };
            ensure!(holds, "a last line has not `{condition}`: {}", self.0);
        }
        Ok(())
    }
}

#[test]
fn conditions_hold_or_are_told_with_the_line() {
    let told = "demo: moved=1
demo: equal=true moved=104 least=100 nan=NaN
WARNING";
    let told: Vec<_> = told.lines().map(String::from).collect();
    let line = Line::of("demo", &told).expect("there is one");
    let holding = "equal is true, equal is not false, moved <= 104, moved <= 1.04 * least, \
        moved >= 104, moved < 104.5, moved > 0.5 * 2 * least";
    line.expect(holding).expect(holding);
    let failing = "equal is false, none is true, equal is not true, none is not true, \
        moved <= 103, moved >= 105, moved < 104, moved > 104, moved <= 1.03 * least, nan <= 1, \
        moved <= nan, none > 0, equal > 0, moved = 104, moved";
    for fails in failing.split(", ") {
        let error = line.expect(fails).expect_err(fails).to_string();
        let is_told = error.contains(&line.0) || error.contains("is no condition");
        assert!(is_told, "{error}");
    }
    assert!(line.expect("moved >= 104, moved <= 103").is_err());
    assert!(Line::of("stay_inside", &told).is_err());
}
