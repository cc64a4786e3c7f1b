//! An expression: consecutive elementwise launches, combined as long as one kernel can hold them.
//!
//! All launches of an expression compute equally many elements, numbered the same way. If a launch
//! reads an earlier result in that order, the value stays within the kernel. All other operands are
//! *leaves*, read at the same number or through a map of dimensions and strides. If launches use
//! different dimensions, both are split until they agree.

use std::sync::Arc;

use smallvec::SmallVec;

use super::maps::{is_row_major, refine, spread};
use super::member::Member;
use super::structure::{Dims, ExprNode, Input, WORDS};
use crate::ops::elementwise::Fetch as LaunchFetch;
use crate::ops::elementwise::element::Map;
use lapidary_core::DType;
use lapidary_core::internal::{MAX_OPERANDS, Storage};

/// Most launches of one expression. With more, the kernel takes longer to compile than it saves.
pub(super) const MOST_LAUNCHES: usize = 64;

/// The index of a member, and of one of its arguments.
pub(super) type At = (usize, usize);

/// An operand that the expression reads and does not compute.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) storage: *const Storage,
    pub(super) at: At,
    pub(super) dtype: DType,
    pub(super) offset: u32,
    /// One for each of the expression's dimensions; `None` if all elements are read in order.
    pub(super) strides: Option<Dims>,
}

/// A storage that the expression writes.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) storage: *const Storage,
    pub(super) at: At,
    pub(super) node: u8,
    /// The first element, if it is a part of an old storage.
    pub(super) start: Option<u32>,
    /// How many references the launches hold.
    pub(super) held: usize,
}

/// An expression under construction.
#[derive(Clone, Debug)]
pub(super) struct Expr {
    /// The number of elements.
    pub(super) len: u32,
    pub(super) dims: Dims,
    pub(super) nodes: Vec<ExprNode>,
    /// One for each node. Nodes that compute the same have the same signature.
    signatures: Vec<u64>,
    pub(super) leaves: SmallVec<[Leaf; MAX_OPERANDS]>,
    pub(super) scalars: SmallVec<[u32; WORDS]>,
    pub(super) written: Vec<Written>,
    /// The number of `written` that are parts of old storages.
    into: usize,
    /// The storage and node that the next launch reads through the current view.
    pub(super) viewed: Option<(*const Storage, u8)>,
}

impl Expr {
    /// An empty expression of `len` elements.
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

    /// Adds the next launch, the `index`th. Returns `false` if it does not fit; then at most the
    /// split of dimensions has changed.
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
        let node = ExprNode {
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

    /// An operand of a launch: a node if the expression computes it, else a leaf.
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

    /// Records that the launch writes the node's value.
    fn write(&mut self, at: At, member: &Member, node: u8) -> Option<()> {
        let storage = Arc::as_ptr(&member.launch.args[at.1].storage);
        let dtype = member.launch.args[at.1].dtype;
        let start = member.seen.start;
        // An invocation must not read what another writes. A fill sees its storage as words, so its
        // element numbers differ from those of a narrow type.
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
        // A new storage has not been written before.
        let known = start.and_then(|_| written.rfind(|one| one.storage == storage));
        match known {
            // It is written through another view, or as another type.
            Some(known)
                if known.start.unwrap_or(0) != start.unwrap_or(0)
                    || self.nodes[usize::from(known.node)].dtype != dtype =>
            {
                None
            }
            Some(known) => {
                known.at = at;
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

    /// Whether operands and parameters suffice, as far as is known yet.
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

    /// Splits the dimensions into finer ones.
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

/// Whether computing it again costs no more than another read of memory.
pub(super) fn is_cheap(node: &ExprNode) -> bool {
    const CHEAP: [&str; 13] = [
        "add", "sub", "mul", "neg", "abs", "relu", "square", "same", "convert", "where", "maximum",
        "minimum", "full",
    ];
    CHEAP.contains(&node.section)
}

/// Whether all numbers name the same element.
pub(super) fn is_one(strides: &[u32]) -> bool {
    strides.iter().all(|&stride| stride == 0)
}
