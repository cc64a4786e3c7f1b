//! An expression: elementwise launches put together, one after the other, for as long as one
//! kernel can hold them.
//!
//! All launches of an expression make equally many elements, numbered the same way. What one makes
//! and a later one reads in that order is handed on within the kernel; all other operands are
//! *leaves*, read at the same number or through a map of dimensions and strides. Where launches see
//! the elements under different dimensions, both are split until they agree.

use std::sync::Arc;

use smallvec::SmallVec;

use super::maps::{is_row_major, refine, spread};
use super::structure::{
    Dims, Fetch, Input, LeafShape, Node, OutShape, Structure, TailShape, WORDS,
};
use super::{Limits, Member};
use crate::driver::AdapterKind;
use crate::dtype::DType;
use crate::engine::Arg;
use crate::engine::kernel::{Launch, MAX_OPERANDS};
use crate::memory::Storage;
use crate::ops::elementwise::element::Map;
use crate::ops::elementwise::{Fetch as LaunchFetch, GROUP, QUADS_ON_CPU};
use crate::ops::readers::{READER_WORDS, Reader};

/// Launches of one expression, at most: beyond that the kernel takes longer to compile than it
/// saves.
pub(super) const MOST_LAUNCHES: usize = 64;

/// On a software rasterizer an invocation takes several quads, unless they are so much work.
const MOST_NODES_UNROLLED: usize = 16;

/// Which argument of which member.
type At = (usize, usize);

/// What is read and not made by the expression.
#[derive(Debug)]
struct Leaf {
    storage: *const Storage,
    at: At,
    dtype: DType,
    offset: u32,
    /// For each of the expression's dimensions; `None` where all elements are read in order.
    strides: Option<Dims>,
}

/// A storage that the expression writes.
#[derive(Debug)]
struct Written {
    storage: *const Storage,
    at: At,
    node: u8,
    /// A part of an old storage, from this element on.
    start: Option<u32>,
    /// How often the launches hold it.
    held: usize,
}

/// An expression in the making.
#[derive(Debug, Default)]
pub(super) struct Expr {
    /// Elements.
    len: u32,
    dims: Dims,
    nodes: Vec<Node>,
    /// Of each node; those that compute the same have the same.
    signatures: Vec<u64>,
    leaves: SmallVec<[Leaf; MAX_OPERANDS]>,
    scalars: SmallVec<[u32; WORDS]>,
    written: Vec<Written>,
}

/// An expression that is whole.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) structure: Structure,
    /// The parameters.
    pub(super) words: SmallVec<[u32; WORDS]>,
    /// The operands: leaves, then outputs.
    pub(super) args: SmallVec<[Arg; 4]>,
    /// See [`Launch::may_reuse`](crate::engine::Launch).
    pub(super) may_reuse: u8,
}

impl Expr {
    /// An expression of so many elements.
    pub(super) fn new(len: u32) -> Self {
        Expr {
            len,
            dims: SmallVec::from_slice(&[len]),
            ..Expr::default()
        }
    }

    /// Takes in the next launch, the `index`th. `false` if it has no place here: then nothing has
    /// changed that matters.
    pub(super) fn add(&mut self, index: usize, member: &Member) -> bool {
        if member.seen.len != self.len || self.nodes.len() >= MOST_LAUNCHES {
            return false;
        }
        let (leaves, scalars, nodes) = (self.leaves.len(), self.scalars.len(), self.nodes.len());
        let is_in = self.try_add(index, member).is_some();
        if !is_in {
            self.leaves.truncate(leaves);
            self.scalars.truncate(scalars);
            self.nodes.truncate(nodes);
            self.signatures.truncate(nodes);
        }
        is_in
    }

    fn try_add(&mut self, index: usize, member: &Member) -> Option<()> {
        let Member { launch, seen, .. } = member;
        let bound = launch.args.len() - 1;
        let dims = seen.dims(launch);
        if dims != self.dims {
            let refined = refine(&self.dims, &dims)?;
            self.split(refined);
        }
        let (mut inputs, mut held) = (SmallVec::new(), SmallVec::new());
        let mut operand = 0;
        for input in 0..seen.element.names.len() {
            if seen.code.fetch(input) == LaunchFetch::Param {
                inputs.push(Input::Scalar(self.scalar(seen.scalars[0])));
                continue;
            }
            inputs.push(self.operand((index, operand), member, &dims, &mut held)?);
            operand += 1;
        }
        let scalars = [0, 1].map(|which| {
            let is_used = member.uses_scalars[which];
            is_used.then(|| self.scalar(seen.scalars[which]))
        });
        let main = if bound > 1 { seen.element.main } else { 0 };
        let node = Node {
            element: seen.element,
            op: seen.code.op(),
            section: member.section,
            inputs,
            scalars,
            main: launch.args[main].dtype,
            dtype: launch.args[bound].dtype,
        };
        let signature = node.signature();
        let known = self
            .signatures
            .iter()
            .rposition(|&other| other == signature);
        let number = known.unwrap_or_else(|| {
            self.nodes.push(node);
            self.signatures.push(signature);
            self.nodes.len() - 1
        });
        if !self.fits(seen.start.is_some()) {
            return None;
        }
        self.write((index, bound), member, number as u8)?;
        for place in held {
            self.written[place].held += 1;
        }
        Some(())
    }

    /// An operand of a launch: a node, if the expression has made it, else a leaf.
    fn operand(
        &mut self,
        at: At,
        member: &Member,
        dims: &Dims,
        held: &mut SmallVec<[usize; 3]>,
    ) -> Option<Input> {
        let Member { launch, seen, .. } = member;
        let arg = &launch.args[at.1];
        let storage = Arc::as_ptr(&arg.storage);
        let Map { offset, strides } = seen.map(launch, at.1);
        let in_order = is_row_major(dims, &strides);
        let made = self.written.iter().rposition(|one| one.storage == storage);
        if let Some(place) = made {
            let made = &self.written[place];
            let dtype = self.nodes[usize::from(made.node)].dtype;
            let is_same = in_order && offset == made.start.unwrap_or(0) && arg.dtype == dtype;
            if !is_same {
                return None;
            }
            held.push(place);
            return Some(Input::Node(made.node));
        }
        let strides = match in_order && offset == 0 {
            true => None,
            false => Some(spread(&strides, dims, &self.dims)),
        };
        let known = |leaf: &Leaf| {
            let is_there = leaf.storage == storage && leaf.dtype == arg.dtype;
            is_there && leaf.offset == offset && leaf.strides == strides
        };
        let leaf = self.leaves.iter().position(known).unwrap_or_else(|| {
            self.leaves.push(Leaf {
                storage,
                at,
                dtype: arg.dtype,
                offset,
                strides: strides.clone(),
            });
            self.leaves.len() - 1
        });
        Some(Input::Leaf(leaf as u8))
    }

    /// The launch writes what the node holds.
    fn write(&mut self, at: At, member: &Member, node: u8) -> Option<()> {
        let storage = Arc::as_ptr(&member.launch.args[at.1].storage);
        let start = member.seen.start;
        // Other invocations may not read what this one writes.
        let is_apart = |leaf: &Leaf| {
            let in_order = match &leaf.strides {
                None => true,
                Some(strides) => is_row_major(&self.dims, strides),
            };
            leaf.storage != storage || in_order && leaf.offset == start.unwrap_or(0)
        };
        if !self.leaves.iter().all(is_apart) {
            return None;
        }
        match self.written.iter_mut().rfind(|one| one.storage == storage) {
            // Written through another view.
            Some(known) if known.start.unwrap_or(0) != start.unwrap_or(0) => None,
            Some(known) => {
                known.node = node;
                known.held += 1;
                Some(())
            }
            None => {
                self.written.push(Written {
                    storage,
                    at,
                    node,
                    start,
                    held: 1,
                });
                Some(())
            }
        }
    }

    fn scalar(&mut self, value: u32) -> u8 {
        let known = self.scalars.iter().position(|&scalar| scalar == value);
        let slot = known.unwrap_or_else(|| {
            self.scalars.push(value);
            self.scalars.len() - 1
        });
        slot as u8
    }

    /// Are there operands and parameters enough, as far as can be told?
    fn fits(&self, one_more_into: bool) -> bool {
        let into = self.written.iter().filter(|one| one.start.is_some());
        let into = into.count() + usize::from(one_more_into);
        let rank = self.dims.len();
        let mut words = 1 + into + self.scalars.len();
        let mut is_mapped = false;
        for leaf in &self.leaves {
            match &leaf.strides {
                None => {}
                Some(strides) if is_one(strides) => words += 1,
                Some(_) => {
                    is_mapped = true;
                    words += 1 + rank;
                }
            }
        }
        words += if is_mapped && rank > 1 { rank } else { 0 };
        words <= WORDS && self.leaves.len() + into.max(1) <= MAX_OPERANDS
    }

    /// Sees the elements under finer dimensions.
    fn split(&mut self, dims: Dims) {
        for leaf in &mut self.leaves {
            if let Some(strides) = &mut leaf.strides {
                *strides = spread(strides, &self.dims, &dims);
            }
        }
        self.dims = dims;
    }

    /// The whole of it. `None` if it takes more operands or memory than one kernel may; without
    /// outputs if nobody holds anything that it makes.
    pub(super) fn finish(mut self, members: &[Member], limits: &Limits) -> Option<Whole> {
        self.keep_held(members);
        let count = self.leaves.len() + self.written.len();
        if count > MAX_OPERANDS {
            return None;
        }
        let structure = self.structure(limits, None);
        let mut args: SmallVec<[Arg; 4]> = SmallVec::new();
        for (leaf, shape) in self.leaves.iter().zip(&structure.leaves) {
            args.push(arg_of(members, leaf.at, shape.fetch.is_quads()));
        }
        for one in &self.written {
            args.push(arg_of(members, one.at, true));
        }
        let mut may_reuse = 0;
        for (index, leaf) in structure.leaves.iter().enumerate() {
            may_reuse |= u8::from(leaf.fetch == Fetch::InOrder) << index;
        }
        let words = self.words(&structure);
        let whole = Whole {
            structure,
            words,
            args,
            may_reuse,
        };
        limits.allow(&whole.args).then_some(whole)
    }

    /// The whole of it with the launch that takes up all that anybody wants of it.
    /// `None` if that cannot be one kernel.
    pub(super) fn finish_into(
        mut self,
        members: &[Member],
        reader: &'static Reader,
        tail: &Launch,
        limits: &Limits,
    ) -> Option<Whole> {
        let x = &tail.args[0];
        let takes_x = |arg: &&Arg| Arc::ptr_eq(&arg.storage, &x.storage);
        let by_tail = tail.args.iter().filter(takes_x).count();
        self.keep_held(members);
        let [made] = &self.written[..] else {
            return None;
        };
        let node = &self.nodes[usize::from(made.node)];
        let is_x = made.storage == Arc::as_ptr(&x.storage)
            && made.start.is_none()
            && Arc::strong_count(&x.storage) == made.held + by_tail;
        let is_cheap = reader.times == 1 || self.nodes.iter().all(is_cheap);
        if !is_x || !is_cheap || node.dtype != x.dtype {
            return None;
        }
        let count = self.leaves.len() + tail.args.len() - 1;
        let variant = tail.variant();
        let structure = self.structure(limits, Some(TailShape { reader, variant }));
        if count > MAX_OPERANDS || READER_WORDS + structure.places().words > WORDS {
            return None;
        }
        let mut args: SmallVec<[Arg; 4]> = SmallVec::new();
        for (leaf, shape) in self.leaves.iter().zip(&structure.leaves) {
            let quads = match shape.fetch {
                Fetch::InOrder => x.quads,
                fetch => fetch.is_quads(),
            };
            args.push(arg_of(members, leaf.at, quads));
        }
        let stand_in = args.first()?.storage.clone();
        for arg in &tail.args[1..] {
            let mut arg = arg.clone();
            // An operand that is not looked at shows what there is.
            if Arc::ptr_eq(&arg.storage, &x.storage) {
                arg.storage = stand_in.clone();
            }
            args.push(arg);
        }
        let words = self.words(&structure);
        let whole = Whole {
            structure,
            words,
            args,
            may_reuse: 0,
        };
        limits.allow(&whole.args).then_some(whole)
    }

    /// Forgets what nobody holds but the members.
    fn keep_held(&mut self, members: &[Member]) {
        self.written.retain(|one| {
            one.start.is_some() || Arc::strong_count(storage_of(members, one.at)) > one.held
        });
        self.drop_unused();
        let is_mapped = |leaf: &Leaf| leaf.strides.as_ref().is_some_and(|s| !is_one(s));
        if !self.leaves.iter().any(is_mapped) {
            self.split_not();
        }
    }

    /// No leaf needs more than one dimension.
    fn split_not(&mut self) {
        for leaf in &mut self.leaves {
            if let Some(strides) = &mut leaf.strides {
                *strides = SmallVec::from_slice(&[0]);
            }
        }
        self.dims = SmallVec::from_slice(&[self.len]);
    }

    /// Forgets what no output needs.
    fn drop_unused(&mut self) {
        let mut used: u128 = 0;
        let mut used_leaves: u32 = 0;
        for out in &self.written {
            used |= 1 << out.node;
        }
        for (number, node) in self.nodes.iter().enumerate().rev() {
            if used >> number & 1 == 0 {
                continue;
            }
            for input in &node.inputs {
                match *input {
                    Input::Node(node) => used |= 1 << node,
                    Input::Leaf(leaf) => used_leaves |= 1 << leaf,
                    Input::Scalar(_) => {}
                }
            }
        }
        let is_all = used.count_ones() as usize == self.nodes.len()
            && used_leaves.count_ones() as usize == self.leaves.len();
        if is_all {
            return;
        }
        let node_of = |number: u8| (used & ((1 << number) - 1)).count_ones() as u8;
        let leaf_of = |number: u8| (used_leaves & ((1 << number) - 1)).count_ones() as u8;
        let mut number = 0;
        self.nodes.retain(|_| {
            number += 1;
            used >> (number - 1) & 1 == 1
        });
        number = 0;
        self.leaves.retain(|_| {
            number += 1;
            used_leaves >> (number - 1) & 1 == 1
        });
        for node in &mut self.nodes {
            for input in &mut node.inputs {
                match input {
                    Input::Node(node) => *node = node_of(*node),
                    Input::Leaf(leaf) => *leaf = leaf_of(*leaf),
                    Input::Scalar(_) => {}
                }
            }
        }
        for out in &mut self.written {
            out.node = node_of(out.node);
        }
    }

    fn structure(&mut self, limits: &Limits, tail: Option<TailShape>) -> Structure {
        let inner = *self.dims.last().unwrap_or(&1);
        let whole = self.dims.len() == 1 || inner.is_multiple_of(4);
        let leaves = self.leaves.iter().map(|leaf| LeafShape {
            dtype: leaf.dtype,
            fetch: fetch_of(leaf, whole),
        });
        let leaves = leaves.collect();
        let outs = self.written.iter().map(|one| OutShape {
            node: one.node,
            is_into: one.start.is_some(),
        });
        let outs = outs.collect();
        let quads = u64::from(self.len).div_ceil(4);
        let each = match limits.kind {
            AdapterKind::Cpu
                if quads >= GROUP * QUADS_ON_CPU && self.nodes.len() <= MOST_NODES_UNROLLED =>
            {
                QUADS_ON_CPU
            }
            _ => 1,
        };
        let each = if tail.is_some() { 1 } else { each };
        let together = self.dims.len() == 1 || u64::from(inner).is_multiple_of(4 * each);
        Structure {
            nodes: std::mem::take(&mut self.nodes),
            leaves,
            outs,
            scalars: self.scalars.len(),
            rank: self.dims.len(),
            whole,
            together,
            each,
            tail,
        }
    }

    /// The parameters, as the structure wants them.
    fn words(&self, structure: &Structure) -> SmallVec<[u32; WORDS]> {
        let places = structure.places();
        let mut words = SmallVec::from_elem(0, places.words);
        words[0] = self.len;
        let starts = self.written.iter().filter_map(|one| one.start);
        for (word, start) in words[places.starts..].iter_mut().zip(starts) {
            *word = start;
        }
        words[places.scalars..][..self.scalars.len()].copy_from_slice(&self.scalars);
        let held = structure.held_dims();
        words[places.dims..][..held].copy_from_slice(&self.dims[..held]);
        for (index, (leaf, shape)) in self.leaves.iter().zip(&structure.leaves).enumerate() {
            if shape.fetch != Fetch::InOrder {
                words[places.offsets[index]] = leaf.offset;
            }
            if let (true, Some(strides)) = (shape.fetch.is_mapped(), &leaf.strides) {
                words[places.strides[index]..][..strides.len()].copy_from_slice(strides);
            }
        }
        words
    }
}

fn storage_of(members: &[Member], at: At) -> &Arc<Storage> {
    &members[at.0].launch.args[at.1].storage
}

fn arg_of(members: &[Member], at: At, quads: bool) -> Arg {
    let arg = &members[at.0].launch.args[at.1];
    Arg {
        storage: arg.storage.clone(),
        dtype: arg.dtype,
        quads,
    }
}

/// Is it no more work than another look at memory?
fn is_cheap(node: &Node) -> bool {
    const CHEAP: [&str; 12] = [
        "add", "sub", "mul", "neg", "abs", "relu", "square", "same", "convert", "where", "maximum",
        "minimum",
    ];
    CHEAP.contains(&node.section)
}

/// Does every number name the same element?
fn is_one(strides: &[u32]) -> bool {
    strides.iter().all(|&stride| stride == 0)
}

fn fetch_of(leaf: &Leaf, whole: bool) -> Fetch {
    let Some(strides) = &leaf.strides else {
        return Fetch::InOrder;
    };
    let Some((&inner, outer)) = strides.split_last() else {
        return Fetch::One;
    };
    let starts_are_quads =
        leaf.offset.is_multiple_of(4) && outer.iter().all(|stride| stride.is_multiple_of(4));
    match inner {
        _ if is_one(strides) => Fetch::One,
        0 if whole => Fetch::Splat,
        1 if whole && starts_are_quads => Fetch::Quad,
        _ => Fetch::Strided,
    }
}
