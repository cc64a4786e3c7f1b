//! Skeletons: WGSL templates in which loops, conditions and placeholders express the differences
//! between variants. Rust provides the numbers and texts.
//!
//! | in a skeleton | its result |
//! | --- | --- |
//! | `${rows * min(lanes, 4)}` | the number, or the text with that name |
//! | `$name(a, b)` | the result of the variant's function with that name |
//! | `$lane(r)` | the name of that element of a vec4 |
//! | `$word(4 + r)` | the word of the parameters with this number |
//! | `$join(j in 0..4, x_${j})` | the text for each number, separated by commas |
//! | `//% for r in 0..rows`, `//% end` | the lines in between, for each number |
//! | `//% if vec4s && rows > 1`, `//% else`, `//% end` | the lines of one branch |
//! | `//% let half = rows / 2` | nothing; the following lines can use the name |
//!
//! The tests render every variant, so they find mistakes in skeletons.

use std::ops::Range;

use super::text::word;

/// The value of a name.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Number(i64),
    Text(String),
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Value::Number(number.into())
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Value::Number(truth.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}

/// Computes the text of `$name(…)` from the name and the arguments.
type Function<'a> = &'a dyn Fn(&str, &[&str]) -> String;

/// A skeleton with its values.
pub(crate) struct Skeleton<'a> {
    text: &'a str,
    /// Known names. A later value hides an earlier one of the same name.
    values: Vec<(&'a str, Value)>,
    function: Function<'a>,
}

/// The symbol of an operator, its precedence, and what it computes.
type Operator = (&'static str, u8, fn(i64, i64) -> i64);

const OPERATORS: [Operator; 13] = [
    ("||", 1, |a, b| i64::from(a != 0 || b != 0)),
    ("&&", 2, |a, b| i64::from(a != 0 && b != 0)),
    ("==", 3, |a, b| i64::from(a == b)),
    ("!=", 3, |a, b| i64::from(a != b)),
    ("<=", 3, |a, b| i64::from(a <= b)),
    (">=", 3, |a, b| i64::from(a >= b)),
    ("<", 3, |a, b| i64::from(a < b)),
    (">", 3, |a, b| i64::from(a > b)),
    ("+", 4, |a, b| a + b),
    ("-", 4, |a, b| a - b),
    ("*", 5, |a, b| a * b),
    ("/", 5, |a, b| a / b),
    ("%", 5, |a, b| a % b),
];

impl<'a> Skeleton<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Skeleton {
            text,
            values: Vec::new(),
            function: &|_, _| String::new(),
        }
    }

    pub(crate) fn with(mut self, name: &'a str, value: impl Into<Value>) -> Self {
        self.values.push((name, value.into()));
        self
    }

    pub(crate) fn numbers<const N: usize>(mut self, numbers: [(&'a str, u32); N]) -> Self {
        let numbers = numbers.map(|(name, number)| (name, number.into()));
        self.values.extend(numbers);
        self
    }

    /// Sets the function for `$name(…)`.
    pub(crate) fn function(mut self, function: Function<'a>) -> Self {
        self.function = function;
        self
    }

    /// The filled text.
    pub(crate) fn fill(mut self) -> String {
        let lines: Vec<&str> = self.text.split_inclusive('\n').collect();
        let mut out = String::with_capacity(4 * self.text.len());
        self.push_lines(&lines, &mut out);
        out
    }

    fn push_lines(&mut self, lines: &[&'a str], out: &mut String) {
        let known = self.values.len();
        let mut at = 0;
        while let Some(line) = lines.get(at) {
            at += 1;
            let Some(directive) = directive(line) else {
                self.push_line(line, out);
                continue;
            };
            if let Some((name, value)) =
                after_word(directive, "let").and_then(|its| its.split_once('='))
            {
                let value = Value::Number(self.number(value));
                self.values.push((name.trim(), value));
                continue;
            }
            let body = &lines[at..][..outermost(&lines[at..], "end").unwrap_or(0)];
            at += body.len() + 1;
            match after_word(directive, "for") {
                Some(range) => {
                    let (name, range) = self.range(range);
                    for number in range {
                        self.values.push((name, Value::Number(number)));
                        self.push_lines(body, out);
                        self.values.pop();
                    }
                }
                None => self.push_branch(directive, body, out),
            }
        }
        self.values.truncate(known);
    }

    /// Appends the lines of the first branch whose condition holds, of `directive` and the
    /// following ones.
    fn push_branch(&mut self, directive: &'a str, lines: &[&'a str], out: &mut String) {
        let end = outermost(lines, "else");
        let condition = after_word(directive, "if");
        if condition.is_none_or(|condition| self.number(condition) != 0) {
            self.push_lines(&lines[..end.unwrap_or(lines.len())], out);
        } else if let Some(end) = end {
            let next = self::directive(lines[end]).and_then(|next| after_word(next, "else"));
            self.push_branch(next.unwrap_or(""), &lines[end + 1..], out);
        }
    }

    /// Appends a line, or a part of one, with its placeholders filled.
    fn push_line(&mut self, line: &'a str, out: &mut String) {
        let mut rest = line;
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            let open = after
                .find(['{', '('])
                .expect("a placeholder has braces or arguments");
            let (name, inner) = (&after[..open], &after[open + 1..]);
            let end = closing(inner);
            rest = &inner[end + 1..];
            match name {
                "" => self.push_value(&inner[..end], out),
                "lane" => {
                    out.push_str(["x", "y", "z", "w"][self.number(&inner[..end]) as usize % 4])
                }
                "word" => out.push_str(&word(self.number(&inner[..end]) as usize)),
                "join" => self.push_joined(&inner[..end], out),
                name => {
                    let texts = self.arguments(&inner[..end]);
                    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                    out.push_str(&(self.function)(name, &texts));
                }
            }
        }
        out.push_str(rest);
    }

    fn push_value(&self, expression: &str, out: &mut String) {
        match self.named(expression) {
            Some(Value::Text(text)) => out.push_str(text.trim_end()),
            _ => out.push_str(&self.number(expression).to_string()),
        }
    }

    fn push_joined(&mut self, inner: &'a str, out: &mut String) {
        let (range, text) = inner
            .split_once(", ")
            .expect("a range comes before what is joined");
        let (name, range) = self.range(range);
        for (index, number) in range.enumerate() {
            out.push_str(if index > 0 { ", " } else { "" });
            self.values.push((name, Value::Number(number)));
            self.push_line(text, out);
            self.values.pop();
        }
    }

    /// Filled texts that commas separate.
    fn arguments(&mut self, inner: &'a str) -> Vec<String> {
        let (mut arguments, mut depth, mut start) = (Vec::new(), 0, 0);
        for (at, mark) in inner.char_indices().chain([(inner.len(), ',')]) {
            match mark {
                '(' | '{' => depth += 1,
                ')' | '}' => depth -= 1,
                ',' if depth == 0 => {
                    let mut argument = String::new();
                    self.push_line(inner[start..at].trim_start(), &mut argument);
                    arguments.push(argument);
                    start = at + 1;
                }
                _ => {}
            }
        }
        arguments
    }

    /// Parses `r in 0..rows`.
    fn range(&self, text: &'a str) -> (&'a str, Range<i64>) {
        let (name, range) = text
            .split_once(" in ")
            .expect("a name comes before a range");
        let (start, end) = range
            .split_once("..")
            .expect("a range has a start and an end");
        (name.trim(), self.number(start)..self.number(end))
    }

    fn named(&self, name: &str) -> Option<&Value> {
        let values = self.values.iter().rev();
        values
            .into_iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    fn number(&self, expression: &str) -> i64 {
        let mut rest = expression;
        let number = self.binary(&mut rest, 0);
        debug_assert!(rest.trim().is_empty(), "{expression}: what is {rest}?");
        number
    }

    /// The value of an expression whose operators bind tighter than `least`.
    fn binary(&self, rest: &mut &str, least: u8) -> i64 {
        let mut value = self.operand(rest);
        loop {
            *rest = rest.trim_start();
            let operator = OPERATORS
                .iter()
                .find(|(symbol, ..)| rest.starts_with(symbol));
            let Some(&(symbol, strength, compute)) = operator.filter(|one| one.1 > least) else {
                return value;
            };
            *rest = &rest[symbol.len()..];
            value = compute(value, self.binary(rest, strength));
        }
    }

    fn operand(&self, rest: &mut &str) -> i64 {
        let text = rest.trim_start();
        if let Some(after) = text.strip_prefix('!') {
            *rest = after;
            return i64::from(self.operand(rest) == 0);
        }
        if let Some(inner) = text.strip_prefix('(') {
            let end = closing(inner);
            *rest = &inner[end + 1..];
            return self.number(&inner[..end]);
        }
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (word, after) = text.split_at(end.unwrap_or(text.len()));
        *rest = after;
        if let Some(inner) = after.strip_prefix('(') {
            let end = closing(inner);
            *rest = &inner[end + 1..];
            let (a, b) = inner[..end]
                .rsplit_once(", ")
                .expect("`min` and `max` are of two");
            let (a, b) = (self.number(a), self.number(b));
            return if word == "min" { a.min(b) } else { a.max(b) };
        }
        match (word.parse(), self.named(word)) {
            (Ok(number), _) | (_, Some(&Value::Number(number))) => number,
            (_, Some(Value::Text(text))) => i64::from(!text.is_empty()),
            _ => unreachable!("a skeleton names `{word}`, which its variant does not give"),
        }
    }
}

/// The directive in a line, if it is one.
fn directive(line: &str) -> Option<&str> {
    line.trim().strip_prefix("//%").map(str::trim_start)
}

fn after_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    match text.strip_prefix(word)? {
        "" => Some(""),
        rest => rest.strip_prefix(' '),
    }
}

/// The position of the first directive with this word outside of nested blocks.
fn outermost(lines: &[&str], word: &str) -> Option<usize> {
    let mut depth = 0;
    lines.iter().position(|line| {
        let directive = directive(line).unwrap_or("");
        let is_it = depth == 0 && after_word(directive, word).is_some();
        let opens = |word| after_word(directive, word).is_some();
        depth += i32::from(opens("for") || opens("if")) - i32::from(opens("end"));
        is_it
    })
}

/// The position of the bracket that closes the one before the text.
fn closing(text: &str) -> usize {
    let mut depth = 1;
    let end = text.find(|c: char| {
        depth += i32::from("({".contains(c)) - i32::from(")}".contains(c));
        depth == 0
    });
    end.expect("what a skeleton opens it closes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skeleton_is_filled_line_by_line() {
        let check = |text: &str, expected: &str| {
            let shout = |name: &str, texts: &[&str]| format!("{name}<{}>", texts.join("|"));
            let skeleton = Skeleton::new(text).function(&shout);
            let skeleton = skeleton
                .numbers([("rows", 2), ("lanes", 3)])
                .with("is_wide", true);
            assert_eq!(
                skeleton.with("store", "put();\n").fill(),
                expected,
                "{text}"
            );
        };
        check("a ${rows} b\n", "a 2 b\n");
        check("${rows + lanes * 2 - 1}", "7");
        check("${(rows + lanes) * 2 % 4 + max(rows, 5)}", "7");
        check(
            "${rows < lanes && !is_wide}, ${rows == 2 || lanes == 2}",
            "0, 1",
        );
        check("{ ${store} }\n", "{ put(); }\n");
        check("$f(a, g(b, ${lanes}), $h(c))", "f<a|g(b, 3)|h<c>>");
        check("v.$lane(rows) + $word(rows + 3)", "v.z + p.w1.y");
        check(
            "vec4($join(j in 0..3, x_${j}(${j * 2}, 1)))",
            "vec4(x_0(0, 1), x_1(2, 1), x_2(4, 1))",
        );
        check(
            "//% for r in 0..rows\n  //% let next = r + 1\n${r} ${next}\n//% end\n",
            "0 1\n1 2\n",
        );
        let branches =
            "//% if rows == 1\na\n//% else if rows == lanes\nb\n//% else\nc\n//% end\nd\n";
        check(branches, "c\nd\n");
        check(&branches.replace("rows == 1", "is_wide"), "a\nd\n");
        check(&branches.replace("lanes", "2"), "b\nd\n");
        let inner = "//% for q in 0..2\n${r}${q}\n//% end\n";
        let nested = format!("//% for r in 0..2\n//% if r == 1\n{inner}//% end\n//% end\n");
        check(&nested, "10\n11\n");
    }
}
