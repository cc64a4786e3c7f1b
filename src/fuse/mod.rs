//! Fusion: many elementwise commands become one kernel.
//!
//! Operations record commands as usual; only the queue is lazy. When the execution pass reaches the
//! queue, fusion sees all dependencies, the order, and which results are no longer held.
//!
//! ```text
//!  recorded ──► grouping: which may run together, where ──► expr: put together, as far as one kernel
//!                                                          │  can hold them
//!                                  structure ──► text (WGSL), name, parts ◄───┘
//! ```
//!
//! A fused command is a launch like any other, but it can be split into its parts again. It
//! computes the same bits as its parts: results are rounded as if each had been written to memory.

mod codegen;
mod expr;
mod grouping;
mod maps;
mod member;
mod name;
mod parts;
mod places;
mod remap;
mod structure;
#[cfg(test)]
mod tests;
mod whole;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ops::elementwise::element::Element;
use crate::ops::elementwise::groups_of;
use crate::ops::families::seen;
use crate::ops::readers::reader_of;
use codegen::{OUTS, leaf_names};
use expr::Expr;
use grouping::{FuseGroup, Grouping, Reading};
use lapidary_core::internal::{
    Arg, Cmd, DeadList, Engine, Fuse, Fused, FusedReference, Launch, Operand, Pending, Program,
};
use lapidary_core::{Caps, Residency};
use member::{Limits, Member};
use places::Places;
use structure::Structure;
use whole::Whole;

/// Kernels in one generation of the cache. A full generation becomes the old one, and what was not
/// used since the last change is dropped with its pipelines.
const GENERATION: usize = 256;

/// The operands of one kernel may take 1/4 of the limit of all slabs. With more, the kernel might
/// find no room where its parts would.
const LIMIT_PART: u64 = 4;

/// The id of the next fused kernel.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// An expression of as many of the launches as fit, and their number.
fn put_together(members: &[Member]) -> (usize, Expr) {
    let mut expr = Expr::new(members.first().map_or(0, |member| member.seen.len));
    let mut each = members.iter().enumerate();
    let taken = each.position(|(index, member)| {
        !expr.add(index, member) && !expr.add_through_view(index, members)
    });
    (taken.unwrap_or(members.len()), expr)
}

/// How fusion treats a command.
enum Kind {
    Member(Member),
    Reading(Reading),
    Other(Cmd),
}

/// Fuses the commands of one engine.
struct Fuser {
    caps: Caps,
    most_windows: u64,
    dead: Arc<DeadList>,
    young: FxHashMap<Box<[u8]>, Arc<Fused>>,
    old: FxHashMap<Box<[u8]>, Arc<Fused>>,
    /// Which scalars an operation reads, by family and section.
    scalars: FxHashMap<(usize, usize), [bool; 2]>,
    key: Vec<u8>,
    grouping: Grouping,
}

/// The fusion function of an engine.
pub(crate) fn fuse(engine: &Engine) -> Fuse {
    let mut fuser = Fuser {
        caps: engine.caps().clone(),
        most_windows: engine.most_windows(),
        dead: engine.dead_list().clone(),
        young: FxHashMap::default(),
        old: FxHashMap::default(),
        scalars: FxHashMap::default(),
        key: Vec::new(),
        grouping: Grouping::default(),
    };
    Box::new(move |pending: &mut Pending| fuser.run(pending))
}

impl Fuser {
    fn run(&mut self, pending: &mut Pending) {
        let limits = Limits {
            kind: self.caps.kind,
            wide_words: self.caps.wide_words,
            window_bytes: self.caps.max_binding_bytes,
            windows: self.most_windows,
            bytes: pending.limit_bytes / LIMIT_PART,
        };
        let mut grouping = std::mem::take(&mut self.grouping);
        let mut places = Places::default();
        for (order, cmd) in pending.recorded.drain(..).enumerate() {
            match self.kind(order, cmd) {
                Kind::Member(member) => grouping.join(member),
                Kind::Reading(reading) => grouping.read(reading),
                Kind::Other(cmd) => grouping.pass(cmd),
            }
            self.emit_closed(&mut grouping, &limits, &mut pending.ready, &mut places);
            pending.ready.extend(grouping.passed.take());
            places.visited(pending.ready.len());
        }
        let waiting = match pending.may_wait {
            true => grouping.leave_waiting(),
            false => Vec::new(),
        };
        grouping.close_all();
        self.emit_closed(&mut grouping, &limits, &mut pending.ready, &mut places);
        places.arrange(&mut pending.ready);
        let waiting = waiting.into_iter().map(|member| Cmd::Launch(member.launch));
        pending.recorded.extend(waiting);
        self.grouping = grouping;
    }

    /// Classifies a command.
    fn kind(&mut self, order: usize, cmd: Cmd) -> Kind {
        let Cmd::Launch(launch) = cmd else {
            return Kind::Other(cmd);
        };
        // A command on a buffer of the app needs its own submission.
        let is_foreign = |arg: &Arg| arg.storage.residency() == Residency::Imported;
        if launch.args.iter().any(is_foreign) || !launch.ranges.is_empty() {
            return Kind::Other(Cmd::Launch(launch));
        }
        if let Some(seen) = seen(&launch) {
            let section = (seen.element.section)(&launch.variant());
            let uses_scalars = self.uses_scalars(seen.element, section);
            return Kind::Member(Member {
                order,
                launch,
                seen,
                section,
                uses_scalars,
            });
        }
        let reader = match launch.program {
            Program::Builtin(kernel) => {
                reader_of(kernel).filter(|reader| (reader.fuses)(launch.code))
            }
            _ => None,
        };
        match reader {
            Some(reader) => Kind::Reading(Reading {
                order,
                reader,
                launch,
            }),
            None => Kind::Other(Cmd::Launch(launch)),
        }
    }

    fn uses_scalars(&mut self, element: &'static Element, section: &'static str) -> [bool; 2] {
        let key = (
            std::ptr::from_ref(element) as usize,
            section.as_ptr() as usize,
        );
        *(self.scalars.entry(key)).or_insert_with(|| element.scalars(section))
    }

    fn emit_closed(
        &mut self,
        grouping: &mut Grouping,
        limits: &Limits,
        ready: &mut Vec<Cmd>,
        places: &mut Places,
    ) {
        for mut group in grouping.closed.drain(..) {
            let (start, last) = (ready.len(), group.last());
            let runs_early = group.runs_early();
            self.emit(&mut group, limits, ready);
            if runs_early {
                places.run_after(last, start..ready.len());
            }
            group.clear();
            grouping.spare.push(group);
        }
    }

    /// Emits the launches of a group as few kernels.
    fn emit(&mut self, group: &mut FuseGroup, limits: &Limits, ready: &mut Vec<Cmd>) {
        if !group.earlier.is_empty() {
            self.emit_readings(group, limits, ready);
        }
        while group.members.len() > 1 {
            self.emit_some(&mut group.members, limits, ready);
        }
        if let Some(alone) = group.members.pop() {
            ready.push(Cmd::Launch(alone.launch));
        }
    }

    /// Emits all of a group, except for the members that the last reader's kernel did not include.
    fn emit_readings(&mut self, group: &mut FuseGroup, limits: &Limits, ready: &mut Vec<Cmd>) {
        let mut readings = Vec::with_capacity(group.earlier.len());
        let mut expressions = VecDeque::with_capacity(group.earlier.len() + 1);
        for (members, reading) in group.earlier.drain(..) {
            expressions.push_back(members);
            readings.push(reading);
        }
        expressions.push_back(std::mem::take(&mut group.members));
        for reading in readings {
            let mut before = expressions.pop_front().unwrap_or_default();
            let after = expressions.front_mut();
            let launch = loop {
                match self.launch_with(&before, &reading, after.as_deref(), limits) {
                    Some((taken, launch)) => {
                        after
                            .into_iter()
                            .for_each(|after| drop(after.drain(..taken)));
                        break launch;
                    }
                    None if before.is_empty() => break reading.launch,
                    None => self.emit_some(&mut before, limits, ready),
                }
            };
            ready.push(Cmd::Launch(launch));
        }
        group.members = expressions.pop_front().unwrap_or_default();
    }

    /// Emits one kernel with as many of these launches as fit, and removes them.
    fn emit_some(&mut self, rest: &mut Vec<Member>, limits: &Limits, ready: &mut Vec<Cmd>) {
        let mut most = rest.len();
        while most > 1 {
            let (taken, expr) = put_together(&rest[..most]);
            if taken < 2 {
                break;
            }
            if let Some(whole) = expr.finish(&rest[..taken], limits) {
                rest.drain(..taken);
                let launch = self.launch(whole);
                return ready.extend(launch.map(Cmd::Launch));
            }
            // Fewer launches have fewer outputs.
            most = taken / 2;
        }
        ready.push(Cmd::Launch(rest.remove(0).launch));
    }

    /// A launch of the reader, with the expression that computes its `x`, with the one that reads
    /// its `y`, or with both. The first must be all of `before`. Also returns how many of `after`
    /// are included.
    fn launch_with(
        &mut self,
        before: &[Member],
        reading: &Reading,
        after: Option<&Vec<Member>>,
        limits: &Limits,
    ) -> Option<(usize, Launch)> {
        let Reading { reader, launch, .. } = reading;
        let mut into = match put_together(before) {
            _ if before.is_empty() => None,
            (taken, _) if taken < before.len() => return None,
            (_, expr) => Some(expr.finish_into(before, reader, launch, limits)?),
        };
        // Another reference to `y` would keep it from being fused.
        into.iter_mut().for_each(|into| drop(into.args.pop()));
        let (taken, expr) = put_together(after.map_or(&[], |after| after));
        let whole = after.and_then(|after| {
            let onward = expr.finish_after(&after[..taken], reader, launch, limits)?;
            match &into {
                Some(into) => into.with(&onward, limits),
                None => Some(onward),
            }
        });
        let (taken, whole) = match (whole, into) {
            (Some(whole), _) => (taken, whole),
            (None, into) => {
                let mut into = into?;
                into.args.extend(launch.args.last().cloned());
                (0, into)
            }
        };
        Some((taken, self.launch_around(whole, launch)))
    }

    fn launch_around(&mut self, whole: Whole, inner: &Launch) -> Launch {
        let params = whole.structure.params(&inner.params, &whole.words);
        Launch {
            program: Program::Fused(self.kernel(whole.structure)),
            code: 0,
            args: whole.args,
            params,
            groups: inner.groups,
            may_reuse: 0,
            ranges: SmallVec::new(),
            work: inner.work,
            methods: whole.methods,
            pages: None,
        }
    }

    /// The launch of an expression, if any of its results is still held.
    fn launch(&mut self, whole: Whole) -> Option<Launch> {
        let structure = whole.structure;
        if structure.outs.is_empty() {
            return None;
        }
        let vec4s = u64::from(whole.words[0]).div_ceil(4);
        let groups = groups_of(&self.caps, vec4s.div_ceil(structure.each), structure.group);
        let params = structure.params(&[], &whole.words);
        Some(Launch {
            program: Program::Fused(self.kernel(structure)),
            code: 0,
            args: whole.args,
            params,
            groups,
            may_reuse: whole.may_reuse,
            ranges: SmallVec::new(),
            work: 0,
            methods: whole.methods,
            pages: None,
        })
    }

    /// The kernel for a structure, from the cache if it is there.
    fn kernel(&mut self, structure: Structure) -> Arc<Fused> {
        self.key.clear();
        structure.key(&mut self.key);
        if let Some(kernel) = self.young.get(&self.key[..]) {
            return kernel.clone();
        }
        let kernel = self.old.remove(&self.key[..]);
        let kernel = kernel.unwrap_or_else(|| make(structure, &self.caps, &self.dead));
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        let key = self.key.clone().into_boxed_slice();
        self.young.insert(key, kernel.clone());
        kernel
    }
}

/// A placeholder for kernels without operands.
const OUT: Operand = Operand::write("y");

fn make(structure: Structure, caps: &Caps, dead: &Arc<DeadList>) -> Arc<Fused> {
    let leaves = structure.leaves[..structure.bound()].iter();
    let names = leaves.zip(leaf_names(&structure));
    let mut operands: Vec<Operand> = names.map(|(_, name)| Operand::read(name)).collect();
    match &structure.tail {
        None => operands.extend(structure.outs.iter().zip(OUTS).map(
            |(out, name)| match out.is_into {
                true => Operand::update(name),
                false => Operand::write(name),
            },
        )),
        Some(tail) => operands.extend_from_slice(&tail.reader.kernel.operands[1..]),
    }
    if let Some(head) = &structure.head {
        let (_, others) = head
            .reader
            .kernel
            .operands
            .split_last()
            .unwrap_or((&OUT, &[]));
        match &structure.before {
            None => operands.extend_from_slice(others),
            Some(before) => {
                let names = before.leaves.iter().zip(leaf_names(before));
                operands.extend(names.map(|(_, name)| Operand::read(name)));
                operands.extend_from_slice(&others[1..]);
            }
        }
    }
    let structure = Arc::new(structure);
    let caps = Arc::new(caps.clone());
    let (of_parts, its_caps) = (structure.clone(), caps.clone());
    Arc::new(Fused {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        name: name::formulas(&structure),
        operands,
        text: codegen::text(&structure),
        parts: Box::new(move |launch| parts::launches(&of_parts, &its_caps, launch)),
        reference: reference_of(&structure, &caps),
        shader: OnceLock::new(),
        dead: dead.clone(),
    })
}

/// Runs a fused kernel on the host, if the simulated device is compiled in.
#[cfg(any(test, feature = "sim"))]
fn reference_of(structure: &Arc<Structure>, caps: &Arc<Caps>) -> Option<FusedReference> {
    let (structure, caps) = (structure.clone(), caps.clone());
    Some(Arc::new(move |call| parts::run(&structure, &caps, call)))
}

/// Without the simulated device, no kernel runs on the host.
#[cfg(not(any(test, feature = "sim")))]
fn reference_of(_: &Arc<Structure>, _: &Arc<Caps>) -> Option<FusedReference> {
    None
}
