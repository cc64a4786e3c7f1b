//! An expression: elementwise launches put together, one after the other, for as long as one
//! kernel can hold them.
//!
//! All launches of an expression make equally many elements, numbered the same way. What one makes
//! and a later one reads in that order is handed on within the kernel; all other operands are
//! *leaves*, read at the same number or through a map of dimensions and strides. Where launches see
//! the elements under different dimensions, both are split until they agree.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Member;
use super::maps::{is_row_major, refine, spread};
use super::structure::{Dims, Input, Node, WORDS};
use crate::ops::elementwise::Fetch as LaunchFetch;
use crate::ops::elementwise::element::Map;
use lapidary_core::DType;
use lapidary_core::internal::{MAX_OPERANDS, Storage};

/// Launches of one expression, at most: beyond that the kernel takes longer to compile than it
/// saves.
pub(super) const MOST_LAUNCHES: usize = 64;

/// Which argument of which member.
pub(super) type At = (usize, usize);

/// What is read and not made by the expression.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) storage: *const Storage,
    pub(super) at: At,
    pub(super) dtype: DType,
    pub(super) offset: u32,
    /// For each of the expression's dimensions; `None` where all elements are read in order.
    pub(super) strides: Option<Dims>,
}

/// A storage that the expression writes.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) storage: *const Storage,
    pub(super) at: At,
    pub(super) node: u8,
    /// A part of an old storage, from this element on.
    pub(super) start: Option<u32>,
    /// How often the launches hold it.
    pub(super) held: usize,
}

/// An expression in the making.
#[derive(Clone, Debug)]
pub(super) struct Expr {
    /// Elements.
    pub(super) len: u32,
    pub(super) dims: Dims,
    pub(super) nodes: Vec<Node>,
    /// Of each node; those that compute the same have the same.
    signatures: Vec<u64>,
    pub(super) leaves: SmallVec<[Leaf; MAX_OPERANDS]>,
    pub(super) scalars: SmallVec<[u32; WORDS]>,
    pub(super) written: Vec<Written>,
    /// How many of those are parts of old storages.
    into: usize,
    /// What the next launch reads through the view that the expression is seen through now.
    pub(super) viewed: Option<(*const Storage, u8)>,
}

impl Expr {
    /// An expression of so many elements.
    pub(super) fn new(len: u32) -> Self {
        Expr {
            len,
            dims: SmallVec::from_slice(&[len]),
            nodes: Vec::new(),
            signatures: Vec::new(),
            leaves: SmallVec::new(),
            scalars: SmallVec::new(),
            written: Vec::new(),
            into: 0,
            viewed: None,
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
        if let Some((_, node)) = self.viewed.filter(|(viewed, _)| *viewed == storage) {
            return Some(Input::Node(node));
        }
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
        let dtype = member.launch.args[at.1].dtype;
        let start = member.seen.start;
        // Other invocations may not read what this one writes. A fill sees its storage as words, so
        // that one number names other bytes there than in a tensor of a narrow type.
        let is_apart = |leaf: &Leaf| {
            let in_order = match &leaf.strides {
                None => true,
                Some(strides) => is_row_major(&self.dims, strides),
            };
            let is_same = in_order && leaf.offset == start.unwrap_or(0) && leaf.dtype == dtype;
            leaf.storage != storage || is_same
        };
        if !self.leaves.iter().all(is_apart) {
            return None;
        }
        let mut written = self.written.iter_mut();
        // What is made anew is not there yet.
        let known = start.and_then(|_| written.rfind(|one| one.storage == storage));
        match known {
            // Written through another view, or as another type.
            Some(known)
                if known.start.unwrap_or(0) != start.unwrap_or(0)
                    || self.nodes[usize::from(known.node)].dtype != dtype =>
            {
                None
            }
            Some(known) => {
                known.node = node;
                known.held += 1;
                Some(())
            }
            None => {
                self.into += usize::from(start.is_some());
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
        let into = self.into + usize::from(one_more_into);
        let rank = self.dims.len();
        let mut words = 2 + into + self.scalars.len();
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
}

pub(super) fn storage_of(members: &[Member], at: At) -> &Arc<Storage> {
    &members[at.0].launch.args[at.1].storage
}

/// Is it no more work than another look at memory?
pub(super) fn is_cheap(node: &Node) -> bool {
    const CHEAP: [&str; 13] = [
        "add", "sub", "mul", "neg", "abs", "relu", "square", "same", "convert", "where", "maximum",
        "minimum", "full",
    ];
    CHEAP.contains(&node.section)
}

/// Does every number name the same element?
pub(super) fn is_one(strides: &[u32]) -> bool {
    strides.iter().all(|&stride| stride == 0)
}
