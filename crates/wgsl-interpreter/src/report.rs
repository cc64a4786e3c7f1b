//! The faults that were found, and their messages.

use std::fmt::{self, Display, Formatter};
use std::ops::Range;

use rustc_hash::FxHashSet;

use super::code::Code;
use super::shadow::{Now, Rival};
use super::value::POISON;

/// The most different faults of one dispatch. The dispatch ends with the last of them, or with an
/// endless invocation.
const KEPT: usize = 16;

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// Two invocations access one word, one of them writes, and nothing orders them.
    Race,
    /// An invocation reads memory that nothing wrote.
    Unwritten,
    /// Only the bounds check stops an index.
    Index,
    /// Some invocation of the workgroup does not reach a barrier.
    Barrier,
    /// Some invocation of a subgroup does not reach an operation of the subgroup.
    Subgroup,
    /// An invocation does not end.
    Endless,
}

impl FindingKind {
    /// The remedy for a fault of this kind.
    pub fn advice(self) -> &'static str {
        match self {
            FindingKind::Race => "let a barrier, an atomic or another call come between them",
            FindingKind::Unwritten => "write it first",
            FindingKind::Index => "check the index",
            FindingKind::Barrier => "let all invocations of the workgroup get here",
            FindingKind::Subgroup => "let all lanes of the subgroup get here",
            FindingKind::Endless => "let the loop end",
        }
    }
}

/// A fault, as it is found.
#[derive(Clone, Debug)]
pub(super) struct FoundFault {
    pub(super) kind: FindingKind,
    pub(super) instr: u32,
    /// In words, or in bytes of a buffer.
    pub(super) at: u32,
    pub(super) is_buffer: bool,
    /// The invocation, counted from 1; 0 for none.
    pub(super) who: u32,
    /// The other access of a race, and whether the new access writes.
    pub(super) other: Option<(Rival, bool)>,
    pub(super) detail: String,
}

/// A fault of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// The range of bytes in the text.
    pub place: Range<usize>,
    /// The line in the text, counted from 1.
    pub line: usize,
    /// The invocation, the variable, and what went wrong.
    pub message: String,
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

/// The faults of a dispatch.
#[derive(Debug, Default)]
pub(super) struct Reports {
    found: Vec<FoundFault>,
    known: FxHashSet<(FindingKind, u32)>,
    is_endless: bool,
}

impl Reports {
    /// Adds a fault. Only the first of each kind and instruction is kept: the others are the same
    /// mistake.
    pub(super) fn add(&mut self, fault: FoundFault) {
        if !self.is_over() && self.known.insert((fault.kind, fault.instr)) {
            self.is_endless = fault.kind == FindingKind::Endless;
            self.found.push(fault);
        }
    }

    /// Whether the dispatch ends here. An endless invocation takes long to find, so it is the last
    /// fault.
    pub(super) fn is_over(&self) -> bool {
        self.is_endless || self.found.len() >= KEPT
    }

    pub(super) fn race(&mut self, is_buffer: bool, at: u32, now: &Now, rival: Rival, writes: bool) {
        self.add(FoundFault {
            kind: FindingKind::Race,
            other: Some((rival, writes)),
            ..fault(FindingKind::Race, is_buffer, at, now)
        });
    }

    pub(super) fn unwritten(&mut self, is_buffer: bool, at: u32, now: &Now) {
        self.add(fault(FindingKind::Unwritten, is_buffer, at, now));
    }

    /// Reports an access beyond the end of memory. Returns poison as the value.
    pub(super) fn beyond(&mut self, is_buffer: bool, at: u32, now: &Now) -> u32 {
        self.add(FoundFault {
            detail: "beyond the end".into(),
            ..fault(FindingKind::Index, is_buffer, at, now)
        });
        POISON
    }

    /// All faults with their messages. `groups` are the workgroups of the dispatch.
    pub(super) fn findings(&self, code: &Code, text: &str, groups: [u32; 3]) -> Vec<Finding> {
        let finding = |fault: &FoundFault| Finding {
            kind: fault.kind,
            place: place(code, fault.instr),
            line: line_of(code, text, fault.instr),
            message: fault.message(code, text, groups),
        };
        self.found.iter().map(finding).collect()
    }
}

fn fault(kind: FindingKind, is_buffer: bool, at: u32, now: &Now) -> FoundFault {
    FoundFault {
        kind,
        instr: now.instr,
        at,
        is_buffer,
        who: now.who,
        other: None,
        detail: String::new(),
    }
}

fn place(code: &Code, instr: u32) -> Range<usize> {
    let place = &code.origins[instr as usize].place;
    place.start as usize..place.end as usize
}

impl FoundFault {
    fn message(&self, code: &Code, text: &str, groups: [u32; 3]) -> String {
        let who = |who| invocation(code, groups, who);
        let name = code.origins[self.instr as usize].name;
        let name = &code.names[name as usize];
        let what = match self.is_buffer {
            true => format!("byte {} of `{name}`", self.at),
            false => format!("word {} of `{name}`", self.at),
        };
        let detail = &self.detail;
        let me = who(self.who);
        match (self.kind, &self.other) {
            (FindingKind::Race, Some((rival, writes))) => {
                let verb = |writes| if writes { "writes" } else { "reads" };
                let past = if rival.wrote { "wrote" } else { "read" };
                let line = line(text, place(code, rival.instr).start);
                format!(
                    "a race: {me} {} {what}, which {} {past} in line {line}, and no barrier is \
                     between them",
                    verb(*writes),
                    who(rival.who)
                )
            }
            (FindingKind::Race | FindingKind::Unwritten, _) => {
                format!("{me} reads {what}, which nothing wrote")
            }
            (FindingKind::Index, _) if name.is_empty() => format!("{me}: {detail}"),
            (FindingKind::Index, _) => format!("{me}: {detail} of `{name}`"),
            (FindingKind::Barrier, _) => format!(
                "a barrier in control flow that is not uniform: {me} waits at it, but {detail}"
            ),
            (FindingKind::Subgroup, _) => format!(
                "a subgroup operation in control flow that is not uniform: {me} waits at it, but \
                 {detail}"
            ),
            (FindingKind::Endless, _) => format!("{me} does not end: {detail}"),
        }
    }
}

/// The name of an invocation: `invocation [0, 1, 0] of workgroup [2, 0, 0]`.
pub(super) fn invocation(code: &Code, groups: [u32; 3], who: u32) -> String {
    let [x, y, z] = code.workgroup_size;
    let size = (x * y * z).max(1);
    let index = who.saturating_sub(1);
    let local = split(index % size, [x, y]);
    let group = split(index / size, [groups[0], groups[1]]);
    format!("invocation {local:?} of workgroup {group:?}")
}

/// Splits an index into three dimensions.
pub(super) fn split(index: u32, [x, y]: [u32; 2]) -> [u32; 3] {
    let (x, y) = (x.max(1), y.max(1));
    [index % x, index / x % y, index / x / y]
}

/// The line of an instruction.
pub(super) fn line_of(code: &Code, text: &str, instr: u32) -> usize {
    line(text, place(code, instr).start)
}

/// The line of a place, counted from 1. These are all line breaks of WGSL. A carriage return with a
/// line feed after it is one.
pub(super) fn line(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    let is_break = |c| matches!(c, '\n'..='\r' | '\u{85}' | '\u{2028}' | '\u{2029}');
    before.matches(is_break).count() - before.matches("\r\n").count() + 1
}
