//! Compares the WGSL that the tests of races interpreted with all that the library can choose.
//!
//! The suite dumps the text of every variant, and the tests of races dump the texts that they
//! interpreted. A line is identified by its kernel, its function, and its text without numbers. So
//! an unrolled loop of eight rounds counts as one of two rounds. Operands' accessors are the same
//! in all kernels.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::shaders::{kernel_of, texts, translated};
use crate::command::command;
use crate::process::{Result, Shell, emptied, ensure};

/// Kernels that no call uses: texts of other tests.
const OF_TESTS: &[&str] = &["accessors"];

/// Fused kernels combine sections of the others without limit, so there is no list of them. They
/// count as one kernel without lines.
const FUSED: &str = "fused";

/// Largest share of lines that no test reaches, in thousandths. What remains:
///
/// - forms for more workgroups than an axis of a dispatch has, 65,535: too large to interpret
///   (`tile_m`, `tile_n`, the counted blocks of `transpose`);
/// - operations that the enumeration has with a number, but no method creates (`scalar`: logic,
///   `lerp`);
/// - pairs of types and orientations of products, each half of which is reached in another pair;
/// - parts of calls with views, which calls of few elements are not split into.
const MOST_UNREACHED: usize = 50;

/// What all kernels share: how elements are read and written.
const OPERANDS: &str = "operands";

/// A line's kernel and function, and the line without its numbers.
type Line = (String, String, String);

/// Interprets every kernel on every device. Checks that every kernel ran, and nearly every line.
pub(crate) fn check(sh: &Shell) -> Result<String> {
    let ran = emptied(sh, "interpreted")?;
    // A debug build takes minutes for it.
    let tests = command(sh, "long --release --test operations -- races::")?;
    let tests = tests.env("LAPIDARY_RACES", "all");
    tests.env("LAPIDARY_RACES_DUMP", &ran).run()?;
    let (all, ran) = (lines_of(&translated(sh)?)?, lines_of(&ran)?);
    let is_real = |(kernel, ..): &&Line| !OF_TESTS.contains(&&**kernel);
    let missing: Vec<&Line> = all.difference(&ran).filter(is_real).collect();
    let mut by_kernel: BTreeMap<&str, usize> = BTreeMap::new();
    for (kernel, function, line) in &missing {
        println!("not reached: {kernel}, {function}: {line}");
        *by_kernel.entry(kernel).or_default() += 1;
    }
    let reached: BTreeSet<_> = ran.iter().map(|(kernel, ..)| kernel).collect();
    let unreached: BTreeSet<_> = missing.iter().map(|(kernel, ..)| kernel).collect();
    let unreached: Vec<_> = unreached.difference(&reached).collect();
    let (lines, count) = (all.len(), all.len() - missing.len());
    let found = format!("{} kernels, {count} of {lines} lines", reached.len());
    ensure!(unreached.is_empty(), "{found}, but not {unreached:?}");
    let is_enough = missing.len() * 1000 <= lines * MOST_UNREACHED;
    ensure!(is_enough, "only {found} are interpreted: {by_kernel:?}");
    Ok(found)
}

fn lines_of(folder: &Path) -> Result<BTreeSet<Line>> {
    let mut lines = BTreeSet::new();
    for path in texts(folder, ".wgsl")? {
        match kernel_of(&path) {
            kernel if kernel == FUSED => drop(lines.insert((kernel, String::new(), String::new()))),
            kernel => push_lines(&mut lines, &kernel, &fs::read_to_string(&path)?),
        }
    }
    Ok(lines)
}

fn push_lines(lines: &mut BTreeSet<Line>, kernel: &str, text: &str) {
    let mut function = String::new();
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default().trim();
        if line.chars().all(|c| "{});".contains(c)) {
            continue;
        }
        let line = plain(line);
        if let Some(head) = line.strip_prefix("fn ") {
            function = head.split('(').next().unwrap_or_default().to_string();
        }
        let is_of_operands = function.starts_with('_') || line.starts_with("@group");
        lines.insert(match is_of_operands {
            true => (OPERANDS.to_string(), String::new(), line),
            false => (kernel.to_string(), function.clone(), line),
        });
    }
}

/// A line without its numbers and the names of operands.
fn plain(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while !rest.is_empty() {
        let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_word = rest.starts_with(is_of_word);
        let end = rest.find(|c| is_of_word(c) != is_word);
        let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
        match part {
            "x" | "y" | "z" | "w" if plain.ends_with("p.w#.") => drop(plain.pop()),
            _ if is_word => plain.push_str(&word_without_numbers(part)),
            _ => plain.push_str(part),
        }
        rest = after;
    }
    plain
}

fn word_without_numbers(word: &str) -> String {
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        return "#".into();
    }
    let mut plain = String::new();
    for c in word.chars() {
        match c.is_ascii_digit() {
            false => plain.push(c),
            true if plain.ends_with('#') => {}
            true => plain.push('#'),
        }
    }
    // `x_get4` reads an operand, `b0_load` reads a binding, and `b0_1` is one of its windows.
    let ending = plain.rfind('_').map_or("", |at| &plain[at..]);
    match ending.trim_end_matches('#') {
        "_get" | "_put" | "_narrow" | "_load" | "_store" => ending.into(),
        _ if plain == "b#_#" => "_window".into(),
        _ => plain,
    }
}

#[test]
fn unrolled_rounds_and_operands_are_the_same_line() {
    let lines = "acc_10 = fma(a_get4(at + 4u), v, acc_10);
c[2] * p.w3.z + p.w1.x
if (u < 16u) { return b0_0[u]; }
x_get(i)";
    let wanted = "acc_# = fma(_get#(at + #), v, acc_#);
c[#] * p.w# + p.w#
if (u < #) { return _window[u]; }
_get(i)";
    assert!(lines.lines().map(plain).eq(wanted.lines()));
}

#[test]
fn a_line_counts_with_its_kernel_and_function() {
    let mut lines = BTreeSet::new();
    let text =
        "fn x_get(i: u32) -> f32 {\n  return 1.0; // one\n}\nfn op(x: T) -> T {\n  return x;\n}";
    push_lines(&mut lines, "unary", text);
    let of = |kernel: &str| lines.iter().filter(|line| line.0 == kernel).count();
    assert_eq!((of(OPERANDS), of("unary")), (2, 2));
}
