//! What a fused kernel's text depends on, and the places of its parameters.
//!
//! ```text
//!  words of p   0         1     2 …               then     then            then        then
//!               elements  zero  starts of outputs scalars  first elements  dimensions  strides of
//!                               that are parts             of leaves that  (if many)   leaves that
//!                                                          are not in order            are mapped
//! ```
//!
//! With a reader, they first fill the words that the reader ignores, and then follow its own. With
//! two expressions around a reader, those of the second come first, and both share the zero.

use smallvec::SmallVec;

use crate::ops::elementwise::GROUP;
use crate::ops::elementwise::element::Element;
use crate::ops::families::number_of;
use crate::ops::readers::{READER_WORDS, Reader, unseen_words};
use crate::tensor::layout::MAX_RANK;
use lapidary_core::DType;
use lapidary_core::internal::{MAX_PARAMS_BYTES, Variant};

/// The index of the word that is zero.
pub(super) const ZERO: usize = 1;

/// Most words of parameters.
pub(super) const WORDS: usize = MAX_PARAMS_BYTES / 4;

/// The parameters of a launch, as bytes.
pub(super) type Params = SmallVec<[u8; 64]>;

/// Dimensions or strides, outermost first.
pub(super) type Dims = SmallVec<[u32; MAX_RANK]>;

/// An input of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Leaf(u8),
    Node(u8),
    /// A scalar among the parameters.
    Scalar(u8),
}

/// Most inputs of an operation.
const MOST_INPUTS: usize = 3;

/// One operation.
#[derive(Clone, Debug)]
pub(super) struct ExprNode {
    pub(super) element: &'static Element,
    pub(super) op: u8,
    /// The section of the family's WGSL.
    pub(super) section: &'static str,
    pub(super) inputs: SmallVec<[Input; MOST_INPUTS]>,
    /// The scalars that the operation itself reads.
    pub(super) scalars: [Option<u8>; 2],
    /// The type of the main input.
    pub(super) main: DType,
    /// The type of the result.
    pub(super) dtype: DType,
}

impl ExprNode {
    /// Whether an element depends on its number, and not only on the inputs.
    pub(super) fn counts(&self) -> bool {
        self.inputs.is_empty() && self.section != "full"
    }

    /// Everything about the node as one number. Nodes that compute the same have the same
    /// signature.
    pub(super) fn signature(&self) -> u64 {
        const { assert!(DType::ALL.len() <= 8, "a type has 3 bits here") };
        let mut bits = number_of(self.element) << 8 | u64::from(self.op);
        bits = bits << 6 | (self.main as u64) << 3 | self.dtype as u64;
        for scalar in self.scalars {
            bits = bits << 6 | u64::from(scalar.map_or(0, |slot| slot + 1));
        }
        bits <<= 9 * (MOST_INPUTS - self.inputs.len());
        for input in &self.inputs {
            bits = bits << 9
                | match *input {
                    Input::Leaf(leaf) => 1 << 7 | u64::from(leaf),
                    Input::Node(node) => 2 << 7 | u64::from(node),
                    Input::Scalar(slot) => 3 << 7 | u64::from(slot),
                };
        }
        bits
    }
}

/// How four neighbouring elements of a leaf are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fetch {
    /// As the vec4 of the same number.
    InOrder,
    /// One element, the only one that is read.
    One,
    /// As a vec4 at another position.
    Vec4,
    /// One element, repeated four times.
    Splat,
    /// One by one.
    Strided,
}

impl Fetch {
    /// Whether it is read through dimensions and strides.
    pub(super) fn is_mapped(self) -> bool {
        matches!(self, Fetch::Vec4 | Fetch::Splat | Fetch::Strided)
    }

    /// Whether it is read by vec4s only.
    pub(super) fn is_vec4_aligned(self) -> bool {
        matches!(self, Fetch::InOrder | Fetch::Vec4)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeafShape {
    pub(super) dtype: DType,
    pub(super) fetch: Fetch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutShape {
    pub(super) node: u8,
    /// It writes a part of an old storage.
    pub(super) is_into: bool,
}

/// Everything that the text depends on.
#[derive(Clone, Debug)]
pub(super) struct Structure {
    pub(super) nodes: Vec<ExprNode>,
    pub(super) leaves: SmallVec<[LeafShape; 8]>,
    pub(super) outs: SmallVec<[OutShape; 4]>,
    /// The number of scalars among the parameters.
    pub(super) scalars: usize,
    /// The number of dimensions of the maps.
    pub(super) rank: usize,
    /// Every vec4 lies within one row.
    pub(super) whole: bool,
    /// All vec4s of an invocation lie within one row.
    pub(super) together: bool,
    /// Vec4s of an invocation.
    pub(super) each: u64,
    /// Invocations of a workgroup.
    pub(super) group: u64,
    /// The vec4s come in pairs: f32 in order, a whole number of pairs, and otherwise only single
    /// elements.
    pub(super) vec8s: bool,
    /// The reader that reads the one output, element by element.
    pub(super) tail: Option<TailShape>,
    /// The reader that computes the last leaf.
    pub(super) head: Option<TailShape>,
    /// The expression before that reader, whose `tail` is the same reader.
    pub(super) before: Option<Box<Structure>>,
}

/// A reader's kernel that an expression is fused with, before or after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TailShape {
    pub(super) reader: &'static Reader,
    pub(super) variant: Variant,
}

/// The positions of the parameters, in words.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) starts: usize,
    pub(super) scalars: usize,
    /// One for each leaf; used if it is not read in order.
    pub(super) offsets: SmallVec<[usize; 8]>,
    pub(super) dims: usize,
    /// One for each leaf; used if it is mapped.
    pub(super) strides: SmallVec<[usize; 8]>,
    pub(super) end: usize,
}

impl Structure {
    /// The reader that the expression is fused with, if any.
    pub(super) fn reader(&self) -> Option<&TailShape> {
        self.tail.as_ref().or(self.head.as_ref())
    }

    /// The number of leaves that are operands.
    pub(super) fn bound(&self) -> usize {
        self.leaves.len() - usize::from(self.head.is_some())
    }

    pub(super) fn is_mapped(&self) -> bool {
        self.leaves.iter().any(|leaf| leaf.fetch.is_mapped())
    }

    /// The number of dimensions among the parameters.
    pub(super) fn held_dims(&self) -> usize {
        match self.is_mapped() && self.rank > 1 {
            true => self.rank,
            false => 0,
        }
    }

    pub(super) fn places(&self) -> Places {
        let starts = 2;
        let into = self.outs.iter().filter(|out| out.is_into).count();
        let scalars = starts + into;
        let mut next = scalars + self.scalars;
        let mut offsets = SmallVec::new();
        for leaf in &self.leaves {
            offsets.push(next);
            next += usize::from(leaf.fetch != Fetch::InOrder);
        }
        let dims = next;
        next += self.held_dims();
        let mut strides = SmallVec::new();
        for leaf in &self.leaves {
            strides.push(next);
            next += if leaf.fetch.is_mapped() { self.rank } else { 0 };
        }
        Places {
            starts,
            scalars,
            offsets,
            dims,
            strides,
            end: next,
        }
    }

    /// Words of this expression's parameters, with those of the one before the reader.
    pub(super) fn count(&self) -> usize {
        match &self.before {
            Some(before) => self.word_before(before.places().end),
            None => self.places().end,
        }
    }

    /// The positions of those words among all parameters.
    pub(super) fn slots(&self) -> SmallVec<[usize; WORDS]> {
        match self.reader() {
            None => (0..WORDS).collect(),
            Some(reader) => unseen_words(reader.variant.code)
                .chain(READER_WORDS..WORDS)
                .collect(),
        }
    }

    /// The number of words of all parameters. `None` if there are too many.
    pub(super) fn words(&self) -> Option<usize> {
        let last = *self.slots().get(self.count() - 1)?;
        let own = self.reader().map_or(0, |_| READER_WORDS);
        Some(own.max((last + 1).next_multiple_of(4)))
    }

    /// All parameters: the reader's, if there is one, and these.
    pub(super) fn params(&self, of_reader: &[u8], words: &[u32]) -> Params {
        let mut params = Params::from_slice(of_reader);
        params.resize(4 * self.words().unwrap_or(WORDS), 0);
        for (&word, slot) in words[..self.count()].iter().zip(self.slots()) {
            params[4 * slot..][..4].copy_from_slice(&word.to_ne_bytes());
        }
        params
    }

    /// The position of a word of the expression before the reader.
    pub(super) fn word_before(&self, index: usize) -> usize {
        match index {
            ZERO => ZERO,
            0 => self.places().end,
            index => self.places().end + index - 1,
        }
    }

    /// Appends everything as bytes: the key of the kernel in the cache.
    pub(super) fn key(&self, out: &mut Vec<u8>) {
        let flags = u8::from(self.whole) | u8::from(self.together) << 1;
        let flags = flags | u8::from(self.tail.is_some()) << 2 | u8::from(self.head.is_some()) << 3;
        let flags = flags | u8::from(self.before.is_some()) << 4 | u8::from(self.vec8s) << 5;
        let counts = [self.nodes.len(), self.leaves.len(), self.outs.len()];
        out.extend(counts.map(|count| count as u8));
        out.extend([self.scalars as u8, self.rank as u8, flags, self.each as u8]);
        out.push((self.group / GROUP) as u8);
        for node in &self.nodes {
            out.extend_from_slice(&node.signature().to_ne_bytes());
        }
        if let Some(tail) = self.reader() {
            out.extend([tail.reader.number(), tail.variant.vec4s]);
            out.extend_from_slice(&tail.variant.code.to_ne_bytes());
            out.extend(tail.variant.dtypes.map(|dtype| dtype as u8));
        }
        for leaf in &self.leaves {
            out.extend([leaf.dtype as u8, leaf.fetch as u8]);
        }
        for out_shape in &self.outs {
            out.extend([out_shape.node, u8::from(out_shape.is_into)]);
        }
        if let Some(before) = &self.before {
            before.key(out);
        }
    }
}
