//! Completes an expression: drops unused parts, decides how leaves are read, and lists operands and
//! parameters.

use std::sync::Arc;

use smallvec::SmallVec;

use super::expr::{At, Expr, Leaf, is_cheap, is_one, storage_of};
use super::member::{Limits, Member};
use super::structure::{Fetch, Input, LeafShape, OutShape, Structure, TailShape, WORDS};
use crate::ops::elementwise::{GROUP, VEC4S_ON_CPU, group_of};
use crate::ops::readers::Reader;
use lapidary_core::internal::{Arg, Launch, MAX_OPERANDS, Methods};
use lapidary_core::{DType, adapter::AdapterKind};

/// Most nodes for which an invocation takes several vec4s on a software rasterizer.
const MOST_NODES_UNROLLED: usize = 16;

/// A complete expression.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) structure: Structure,
    /// The expression's own parameters.
    pub(super) words: SmallVec<[u32; WORDS]>,
    /// The operands: leaves, then outputs.
    pub(super) args: SmallVec<[Arg; 4]>,
    /// See [`Launch::may_reuse`](lapidary_core::internal::Launch).
    pub(super) may_reuse: u8,
    /// See [`Launch::methods`](lapidary_core::internal::Launch).
    pub(super) methods: Methods,
}

impl Expr {
    /// Completes the expression. `None` if it needs more operands or memory than one kernel may. It
    /// has no outputs if none of its results is held.
    pub(super) fn finish(mut self, members: &[Member], limits: &Limits) -> Option<Whole> {
        self.keep_held(members);
        let count = self.leaves.len() + self.written.len();
        if count > MAX_OPERANDS {
            return None;
        }
        let structure = self.structure(limits, None);
        let mut args: SmallVec<[Arg; 4]> = SmallVec::new();
        for (leaf, shape) in self.leaves.iter().zip(&structure.leaves) {
            args.push(arg_of(members, leaf.at, shape.fetch.is_vec4_aligned()));
        }
        for one in &self.written {
            args.push(arg_of(members, one.at, true));
        }
        let mut may_reuse = 0;
        for (index, leaf) in structure.leaves.iter().enumerate() {
            may_reuse |= u8::from(leaf.fetch == Fetch::InOrder) << index;
        }
        let methods = self.methods(members);
        self.made(structure, args, may_reuse, methods, limits)
    }

    /// Completes the expression with the reader `tail` that alone needs its result. `None` if one
    /// kernel cannot hold both.
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
        if count > MAX_OPERANDS || structure.words().is_none() {
            return None;
        }
        let mut args: SmallVec<[Arg; 4]> = SmallVec::new();
        for (leaf, shape) in self.leaves.iter().zip(&structure.leaves) {
            let vec4s = match shape.fetch {
                Fetch::InOrder => x.vec4s,
                fetch => fetch.is_vec4_aligned(),
            };
            args.push(arg_of(members, leaf.at, vec4s));
        }
        let any = args.first()?.storage.clone();
        for arg in &tail.args[1..] {
            let mut arg = arg.clone();
            // The reader ignores this operand, so any storage will do.
            if Arc::ptr_eq(&arg.storage, &x.storage) {
                arg.storage = any.clone();
            }
            args.push(arg);
        }
        self.made(structure, args, 0, tail.methods.clone(), limits)
    }

    /// Completes the expression with the reader `head` whose result it alone reads. `None` if one
    /// kernel cannot hold both.
    pub(super) fn finish_after(
        mut self,
        members: &[Member],
        reader: &'static Reader,
        head: &Launch,
        limits: &Limits,
    ) -> Option<Whole> {
        self.keep_held(members);
        let (y, others) = head.args.split_last()?;
        let mut args = members.iter().flat_map(|member| &member.launch.args);
        let held = args
            .by_ref()
            .filter(|arg| Arc::ptr_eq(&arg.storage, &y.storage));
        // The kernel writes whole vec4s, and must cover all of `y`.
        let size_bytes = u64::from(self.len) * y.dtype.size_bytes();
        let is_for_this = Arc::strong_count(&y.storage) == held.count() + 1
            && y.storage.size_bytes() == size_bytes.next_multiple_of(16);
        let is_y = |leaf: &Leaf| leaf.storage == Arc::as_ptr(&y.storage);
        let (place, last) = (self.leaves.iter().position(is_y)?, self.leaves.len() - 1);
        let is_alone = self.leaves.iter().filter(|leaf| is_y(leaf)).count() == 1;
        let leaf = &self.leaves[place];
        let in_order = leaf.strides.is_none() && leaf.dtype == y.dtype;
        // The kernel must not write what it also reads.
        let is_apart = self
            .written
            .iter()
            .all(|one| (others.iter()).all(|arg| Arc::as_ptr(&arg.storage) != one.storage));
        if !is_for_this || !is_alone || !in_order || !is_apart || self.written.is_empty() {
            return None;
        }
        self.swap_leaves(place as u8, last as u8);
        let count = last + self.written.len() + others.len();
        let variant = head.variant();
        let mut structure = self.structure(limits, Some(TailShape { reader, variant }));
        structure.head = structure.tail.take();
        if count > MAX_OPERANDS || structure.words().is_none() {
            return None;
        }
        let mut args: SmallVec<[Arg; 4]> = SmallVec::new();
        for (leaf, shape) in self.leaves[..last].iter().zip(&structure.leaves) {
            args.push(arg_of(members, leaf.at, shape.fetch.is_vec4_aligned()));
        }
        for one in &self.written {
            args.push(arg_of(members, one.at, true));
        }
        args.extend(others.iter().cloned());
        let methods = self.methods(members);
        self.made(structure, args, 0, methods, limits)
    }

    /// The methods of the results.
    fn methods(&self, members: &[Member]) -> Methods {
        let written = self.written.iter();
        let methods = written.map(|one| members[one.at.0].launch.method(0));
        methods.collect()
    }

    /// The expression with these operands, if the limits allow them.
    fn made(
        &self,
        structure: Structure,
        args: SmallVec<[Arg; 4]>,
        may_reuse: u8,
        methods: Methods,
        limits: &Limits,
    ) -> Option<Whole> {
        let words = self.words(&structure);
        limits.allow(&args).then_some(Whole {
            structure,
            words,
            args,
            may_reuse,
            methods,
        })
    }

    fn swap_leaves(&mut self, a: u8, b: u8) {
        self.leaves.swap(usize::from(a), usize::from(b));
        for node in &mut self.nodes {
            for input in &mut node.inputs {
                match input {
                    Input::Leaf(leaf) if *leaf == a => *leaf = b,
                    Input::Leaf(leaf) if *leaf == b => *leaf = a,
                    _ => {}
                }
            }
        }
    }

    /// Drops outputs that only the members hold.
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

    /// Merges all dimensions into one, when no leaf needs more.
    fn split_not(&mut self) {
        for leaf in &mut self.leaves {
            if let Some(strides) = &mut leaf.strides {
                *strides = SmallVec::from_slice(&[0]);
            }
        }
        self.dims = SmallVec::from_slice(&[self.len]);
    }

    /// Drops nodes and leaves that no output needs.
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
        let leaves: SmallVec<[LeafShape; 8]> = leaves.collect();
        let outs = self.written.iter().map(|one| OutShape {
            node: one.node,
            is_into: one.start.is_some(),
        });
        let outs = outs.collect();
        let vec4s = u64::from(self.len).div_ceil(4);
        let each = match limits.kind {
            AdapterKind::Cpu
                if vec4s >= GROUP * VEC4S_ON_CPU && self.nodes.len() <= MOST_NODES_UNROLLED =>
            {
                VEC4S_ON_CPU
            }
            _ => 1,
        };
        let (each, group) = match tail {
            Some(_) => (1, GROUP),
            None => (each, group_of(limits.kind, vec4s)),
        };
        let together = self.dims.len() == 1 || u64::from(inner).is_multiple_of(4 * each);
        let vec8s = each > 1
            && limits.wide_words
            && self.len.is_multiple_of(8)
            && leaves.iter().all(|leaf| match leaf.fetch {
                Fetch::InOrder => leaf.dtype == DType::F32,
                fetch => fetch == Fetch::One,
            })
            && (self.written.iter()).all(|out| {
                let dtype = self.nodes[usize::from(out.node)].dtype;
                out.start.is_none() && dtype == DType::F32
            });
        Structure {
            nodes: std::mem::take(&mut self.nodes),
            leaves,
            outs,
            scalars: self.scalars.len(),
            rank: self.dims.len(),
            whole,
            together,
            each,
            group,
            vec8s,
            tail,
            head: None,
            before: None,
        }
    }

    /// The parameters, in the order of the structure.
    fn words(&self, structure: &Structure) -> SmallVec<[u32; WORDS]> {
        let places = structure.places();
        let mut words = SmallVec::from_elem(0, places.end);
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

impl Whole {
    /// Joins the expression before a reader, without the operand `y`, with the one after it. `None`
    /// if one kernel cannot hold both.
    pub(super) fn with(&self, onward: &Whole, limits: &Limits) -> Option<Whole> {
        let mut structure = onward.structure.clone();
        let own = structure.bound() + structure.outs.len();
        structure.before = Some(Box::new(self.structure.clone()));
        let (leaves, outs) = onward.args[..own].split_at(structure.bound());
        let inner = &self.args;
        // The kernel must not write what it also reads.
        let is_read = |out: &Arg| {
            let mut read = inner.iter();
            read.any(|arg| Arc::ptr_eq(&arg.storage, &out.storage))
        };
        let is_too_much = own + inner.len() > MAX_OPERANDS || structure.words().is_none();
        if is_too_much || outs.iter().any(is_read) {
            return None;
        }
        let mut words = SmallVec::from_elem(0, structure.count());
        let end = structure.places().end;
        words[..end].copy_from_slice(&onward.words[..end]);
        let its = self.structure.places().end;
        for (index, &word) in self.words[..its].iter().enumerate() {
            words[structure.word_before(index)] = word;
        }
        let args = leaves.iter().chain(outs).chain(inner).cloned().collect();
        let whole = Whole {
            structure,
            words,
            args,
            may_reuse: 0,
            methods: onward.methods.clone(),
        };
        limits.allow(&whole.args).then_some(whole)
    }
}

fn arg_of(members: &[Member], at: At, vec4s: bool) -> Arg {
    let arg = &members[at.0].launch.args[at.1];
    Arg {
        storage: arg.storage.clone(),
        dtype: arg.dtype,
        vec4s,
    }
}

fn fetch_of(leaf: &Leaf, whole: bool) -> Fetch {
    let Some(strides) = &leaf.strides else {
        return Fetch::InOrder;
    };
    let Some((&inner, outer)) = strides.split_last() else {
        return Fetch::One;
    };
    let starts_are_vec4_aligned =
        leaf.offset.is_multiple_of(4) && outer.iter().all(|stride| stride.is_multiple_of(4));
    match inner {
        _ if is_one(strides) => Fetch::One,
        0 if whole => Fetch::Splat,
        1 if whole && starts_are_vec4_aligned => Fetch::Vec4,
        _ => Fetch::Strided,
    }
}
