//! What fusion is told of the families whose quads of output are made of quads of input: all that
//! their texts are made of. A new operation of a family is fused without another word; a new family
//! is one more line below.

use smallvec::SmallVec;

use super::{Code, Fetch, MAP, Plan};
use crate::driver::Caps;
use crate::engine::Kernel;
use crate::engine::kernel::{Launch, Program, Variant};
use crate::ops::text::{section, section_for};
use crate::ops::{binary, copy, select, unary};
use crate::tensor::layout::Layout;

/// A family whose operations can become part of a larger kernel.
#[derive(Debug)]
pub(crate) struct Element {
    /// Makes a new storage.
    pub(crate) fresh: &'static Kernel,
    /// Writes through a part of an old one.
    pub(crate) into: &'static Kernel,
    /// What the inputs are called in the text.
    pub(crate) names: &'static [&'static str],
    /// The input whose type is `A`.
    pub(crate) main: usize,
    /// The WGSL in which the operations are sections.
    pub(crate) file: &'static str,
    /// The section of a variant.
    pub(crate) section: fn(&Variant) -> &'static str,
}

static ELEMENTS: [&Element; 6] = [
    &binary::ELEMENT,
    &binary::ELEMENT_SCALAR,
    &unary::ELEMENT,
    &select::ELEMENT,
    &copy::ELEMENT,
    &binary::ELEMENT_SCALAR_FIRST,
];

impl Element {
    /// The family of a kernel, and whether it writes through a part of an old storage.
    pub(crate) fn of(kernel: &'static Kernel) -> Option<(&'static Element, bool)> {
        ELEMENTS.iter().find_map(|element| match kernel {
            _ if std::ptr::eq(kernel, element.fresh) => Some((*element, false)),
            _ if std::ptr::eq(kernel, element.into) => Some((*element, true)),
            _ => None,
        })
    }

    /// The family whose first operation changes nothing.
    pub(crate) fn copy() -> &'static Element {
        &copy::ELEMENT
    }

    /// The text of an operation, a function `op`, for inputs that are computed in `kind`.
    pub(crate) fn text(&self, section: &str, kind: &str) -> &'static str {
        section_for(self.file, section, kind)
    }

    /// Which of the two scalars of the parameters an operation looks at itself.
    pub(crate) fn scalars(&self, name: &str) -> [bool; 2] {
        let kinds = ["", ".f32", ".i32", ".u32"];
        let texts = kinds.map(|kind| section(self.file, &format!("{name}{kind}")).unwrap_or(""));
        [SCALARS[0], SCALARS[1]].map(|word| texts.iter().any(|text| text.contains(word)))
    }

    /// The code and the parameters of a launch of the fresh kernel over these layouts, which have been
    /// broadcast to `shape`, and its workgroups. `None` if it takes more parameters than there are.
    pub(crate) fn plan(
        &self,
        caps: &Caps,
        op: u8,
        shape: &[usize],
        layouts: &[&Layout],
        is_scalar: &[bool],
        scalars: [u32; 2],
    ) -> Option<(u64, SmallVec<[u32; 16]>, [u32; 3])> {
        let mut plan = Plan::new(shape, layouts, is_scalar)?;
        plan.code.0 |= u64::from(op);
        plan.set_scalars(&scalars);
        plan.spread(caps);
        Some((plan.code.0, plan.words, plan.groups))
    }
}

/// Of a launch's operands, which are bound as quads.
pub(crate) fn are_quads(code: u64, operands: usize) -> SmallVec<[bool; 4]> {
    let code = Code(code);
    let fetches = (0..code.inputs()).map(|input| code.fetch(input));
    let bound = fetches.filter(|&fetch| fetch != Fetch::Param);
    let mut quads: SmallVec<[bool; 4]> = bound.map(|fetch| fetch == Fetch::Quad).collect();
    quads.resize(operands, true);
    quads
}

/// The code of a launch that writes through a part of an old storage.
pub(crate) fn into(code: u64) -> u64 {
    code | Code::INTO
}

/// How the texts of operations spell the two scalars.
pub(crate) const SCALARS: [&str; 2] = ["p.w0.z", "p.w0.w"];

/// A launch of one of the families, as its parameters tell it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) element: &'static Element,
    /// Does it write through a part of an old storage, from which element on?
    pub(crate) start: Option<u32>,
    pub(crate) code: Code,
    words: SmallVec<[u32; 32]>,
    bound: usize,
}

impl Seen {
    /// `None` if it is a launch of anything else, or one of several that make up a call.
    pub(crate) fn of(launch: &Launch) -> Option<Seen> {
        let Program::Builtin(kernel) = launch.program else {
            return None;
        };
        let (element, is_into) = Element::of(kernel)?;
        if !launch.ranges.is_empty() {
            return None;
        }
        let words = launch.params.chunks_exact(4);
        let words: SmallVec<[u32; 32]> = words
            .map(|bytes| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            .collect();
        Some(Seen {
            element,
            start: is_into.then(|| words[1]),
            code: Code(launch.code),
            words,
            bound: launch.args.len() - 1,
        })
    }

    /// How many elements it makes.
    pub(crate) fn len(&self) -> u32 {
        self.words[0]
    }

    pub(crate) fn scalars(&self) -> [u32; 2] {
        [self.words[2], self.words[3]]
    }

    /// The dimensions over which it walks its inputs.
    pub(crate) fn dims(&self) -> &[u32] {
        &self.words[MAP + self.bound..][..self.code.rank()]
    }

    /// The first element of an input that is an operand, and its strides.
    pub(crate) fn map(&self, operand: usize) -> (u32, &[u32]) {
        let rank = self.code.rank();
        let strides = MAP + self.bound + rank * (1 + operand);
        (self.words[MAP + operand], &self.words[strides..][..rank])
    }
}
