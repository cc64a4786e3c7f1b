//! The faults that were found, and their messages.

use std::ops::Range;

use rustc_hash::FxHashSet;

use super::code::Code;
use super::shadow::{Now, Rival};
use super::value::POISON;
use crate::excerpt::line_breaks;

/// The most different faults of one dispatch. The dispatch ends with the last of them, or with an
/// endless invocation.
const KEPT: usize = 16;

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::driver::sim) enum Kind {
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

impl Kind {
    /// The remedy for a fault of this kind.
    pub(in crate::driver::sim) fn advice(self) -> &'static str {
        match self {
            Kind::Race => "let a barrier, an atomic or another call come between them",
            Kind::Unwritten => "write it first",
            Kind::Index => "check the index",
            Kind::Barrier => "let all invocations of the workgroup get here",
            Kind::Subgroup => "let all lanes of the subgroup get here",
            Kind::Endless => "let the loop end",
        }
    }
}

/// A fault, as it is found.
#[derive(Clone, Debug)]
pub(super) struct FoundFault {
    pub(super) kind: Kind,
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

/// A fault with its message.
#[derive(Clone, Debug)]
pub(in crate::driver::sim) struct Report {
    pub(in crate::driver::sim) kind: Kind,
    /// The range in the text.
    pub(in crate::driver::sim) place: Range<usize>,
    pub(in crate::driver::sim) message: String,
}

/// The faults of a dispatch.
#[derive(Debug, Default)]
pub(super) struct Reports {
    found: Vec<FoundFault>,
    known: FxHashSet<(Kind, u32)>,
    is_endless: bool,
}

impl Reports {
    /// Adds a fault. Only the first of each kind and instruction is kept: the others are the same
    /// mistake.
    pub(super) fn add(&mut self, fault: FoundFault) {
        if !self.is_over() && self.known.insert((fault.kind, fault.instr)) {
            self.is_endless = fault.kind == Kind::Endless;
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
            kind: Kind::Race,
            other: Some((rival, writes)),
            ..fault(Kind::Race, is_buffer, at, now)
        });
    }

    pub(super) fn unwritten(&mut self, is_buffer: bool, at: u32, now: &Now) {
        self.add(fault(Kind::Unwritten, is_buffer, at, now));
    }

    /// Reports an access beyond the end of memory. Returns poison as the value.
    pub(super) fn beyond(&mut self, is_buffer: bool, at: u32, now: &Now) -> u32 {
        self.add(FoundFault {
            detail: "beyond the end".into(),
            ..fault(Kind::Index, is_buffer, at, now)
        });
        POISON
    }

    /// All faults with their messages. `groups` are the workgroups of the dispatch.
    pub(super) fn told(&self, code: &Code, text: &str, groups: [u32; 3]) -> Vec<Report> {
        let tell = |fault: &FoundFault| Report {
            kind: fault.kind,
            place: place(code, fault.instr),
            message: fault.message(code, text, groups),
        };
        self.found.iter().map(tell).collect()
    }
}

fn fault(kind: Kind, is_buffer: bool, at: u32, now: &Now) -> FoundFault {
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
            (Kind::Race, Some((rival, writes))) => {
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
            (Kind::Race | Kind::Unwritten, _) => {
                format!("{me} reads {what}, which nothing wrote")
            }
            (Kind::Index, _) if name.is_empty() => format!("{me}: {detail}"),
            (Kind::Index, _) => format!("{me}: {detail} of `{name}`"),
            (Kind::Barrier, _) => format!(
                "a barrier in control flow that is not uniform: {me} waits at it, but {detail}"
            ),
            (Kind::Subgroup, _) => format!(
                "a subgroup operation in control flow that is not uniform: {me} waits at it, but \
                 {detail}"
            ),
            (Kind::Endless, _) => format!("{me} does not end: {detail}"),
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

/// The line of a place, counted from 1.
pub(super) fn line(text: &str, at: usize) -> usize {
    line_breaks(text.get(..at).unwrap_or_default()) + 1
}
