//! Parses an equation, and points at its mistakes.

use super::OPERATION;
use crate::tensor::layout::MAX_RANK;
use lapidary_core::{Error, Result};

/// The name of a dimension: a letter, or [`ELLIPSIS`] and above for those of an ellipsis.
pub(super) type Label = u8;

/// The last dimension of an ellipsis. Earlier dimensions have greater numbers.
const ELLIPSIS: Label = 128;

/// A term between commas, with positions in the equation.
struct Term {
    letters: Vec<(Label, usize)>,
    /// The index of the letter after the ellipsis, and the ellipsis's position.
    ellipsis: Option<(usize, usize)>,
    /// The position where the term begins.
    start: usize,
}

/// A well-formed equation.
pub(super) struct Equation<'a> {
    text: &'a str,
    inputs: Vec<Term>,
    output: Option<Term>,
}

impl<'a> Equation<'a> {
    /// Parses an equation for `operands` operands.
    #[track_caller]
    pub(super) fn parse(text: &'a str, operands: usize) -> Result<Self> {
        let refuse = |at, why: &str| Err(refuse(text, at, why));
        let marks: Vec<char> = text.chars().collect();
        let mut terms = vec![Term::new(0)];
        let mut arrow = None;
        let mut at = 0;
        while at < marks.len() {
            let mark = marks[at];
            let follows = |text: &str| marks[at..].starts_with(&text.chars().collect::<Vec<_>>());
            let last = terms.len() - 1;
            match mark {
                ' ' => {}
                'a'..='z' | 'A'..='Z' => terms[last].letters.push((mark as Label, at)),
                ',' if arrow.is_some() => return refuse(at, "there is only one result"),
                ',' => terms.push(Term::new(at + 1)),
                '.' if follows("...") && terms[last].ellipsis.is_some() => {
                    return refuse(at, "there is an ellipsis in this operand already");
                }
                '.' if follows("...") => {
                    let before = terms[last].letters.len();
                    terms[last].ellipsis = Some((before, at));
                    at += 2;
                }
                '-' if follows("->") && arrow.is_some() => {
                    return refuse(at, "there is an arrow already");
                }
                '-' if follows("->") => {
                    arrow = Some(at);
                    at += 1;
                    terms.push(Term::new(at + 1));
                }
                _ => return refuse(at, "only letters, `,`, `...` and `->` mean something here"),
            }
            at += 1;
        }
        let output = arrow.and_then(|_| terms.pop());
        if terms.len() != operands {
            let at = terms.get(operands).map_or(marks.len(), |term| term.start);
            let why = format!(
                "the equation names {} operands, and {operands} are given",
                terms.len()
            );
            return refuse(at, &why);
        }
        let equation = Equation {
            text,
            inputs: terms,
            output,
        };
        equation.check_output()?;
        Ok(equation)
    }

    /// Checks that each label of the result occurs once, and in an operand.
    fn check_output(&self) -> Result<()> {
        let Some(output) = &self.output else {
            return Ok(());
        };
        for (which, &(label, at)) in output.letters.iter().enumerate() {
            if output.letters[..which]
                .iter()
                .any(|&(known, _)| known == label)
            {
                return Err(self.refuse(at, "it names two dimensions of the result"));
            }
            let mut all = self.inputs.iter().flat_map(|term| &term.letters);
            if !all.any(|&(known, _)| known == label) {
                return Err(self.refuse(at, "no operand has it"));
            }
        }
        match output.ellipsis {
            Some((_, at)) if self.inputs.iter().all(|term| term.ellipsis.is_none()) => {
                Err(self.refuse(at, "no operand has an ellipsis"))
            }
            _ => Ok(()),
        }
    }

    /// A label for each of the `rank` dimensions of an operand, with its position.
    pub(super) fn labels(&self, which: usize, rank: usize) -> Result<Vec<(Label, usize)>> {
        let term = &self.inputs[which];
        let named = term.letters.len();
        let (place, covered) = match (term.ellipsis, rank.checked_sub(named)) {
            (None, Some(0)) => (0, 0),
            (Some((place, _)), Some(covered)) => (place, covered),
            _ => {
                let at = term.letters.get(rank).map_or(term.start, |&(_, at)| at);
                let why = format!("it names {named} dimensions of an operand that has {rank}");
                return Err(self.refuse(at, &why));
            }
        };
        let mut labels = term.letters.clone();
        let at = term.ellipsis.map_or(term.start, |(_, at)| at);
        debug_assert!(covered <= MAX_RANK);
        let all = (0..covered).map(|from_end| (ELLIPSIS + from_end as Label, at));
        labels.splice(place..place, all.rev());
        Ok(labels)
    }

    /// The labels of the result.
    #[track_caller]
    pub(super) fn output(&self, operands: &[&[Label]]) -> Result<Vec<Label>> {
        let all = || operands.iter().flat_map(|labels| labels.iter().copied());
        let covered = all().filter(|&label| label >= ELLIPSIS).max();
        let covered: Vec<Label> =
            covered.map_or(vec![], |highest| (ELLIPSIS..=highest).rev().collect());
        let Some(output) = &self.output else {
            let written = || self.inputs.iter().flat_map(|term| &term.letters);
            let mut once: Vec<Label> = written()
                .map(|&(label, _)| label)
                .filter(|label| written().filter(|(other, _)| other == label).count() == 1)
                .collect();
            once.sort_unstable();
            return Ok([covered, once].concat());
        };
        let mut labels: Vec<Label> = output.letters.iter().map(|&(label, _)| label).collect();
        if let Some((place, _)) = output.ellipsis {
            labels.splice(place..place, covered);
        }
        match labels.len() <= MAX_RANK {
            true => Ok(labels),
            false => Err(self.refuse(output.start, "a tensor has at most 8 dimensions")),
        }
    }

    /// An error that points to a position in the equation.
    pub(super) fn refuse(&self, at: usize, why: &str) -> Error {
        refuse(self.text, at, why)
    }
}

impl Term {
    fn new(start: usize) -> Self {
        Term {
            letters: vec![],
            ellipsis: None,
            start,
        }
    }
}

fn refuse(text: &str, at: usize, why: &str) -> Error {
    Error::Shape {
        operation: OPERATION,
        reason: format!("{why}:\n  {text}\n  {:>1$}", '^', at + 1),
    }
}
