//! What fusion knows about the families that compute vec4s from vec4s: the parts of their texts.
//! [`families`](crate::ops::families) lists them.

use smallvec::SmallVec;

use super::code::{Code, Fetch, MAP};
use super::plan::Plan;
use crate::tensor::layout::{Layout, MAX_RANK};
use lapidary_core::Caps;
use lapidary_core::internal::sections::{section, section_for};
use lapidary_core::internal::{BuiltInKernel, Launch, Variant};

/// Two kernels with one text: one writes a new storage, one a part of an old storage. The families
/// that `families` lists can become part of a fused kernel.
#[derive(Debug)]
pub(crate) struct Element {
    /// Writes a new storage.
    pub(crate) fresh: &'static BuiltInKernel,
    /// Writes a part of an old storage.
    pub(crate) into: &'static BuiltInKernel,
    /// The names of the inputs in the text. Without inputs, an element depends on its number.
    pub(crate) names: &'static [&'static str],
    /// The input whose type is `A`.
    pub(crate) main: usize,
    /// The WGSL file whose sections are the operations.
    pub(crate) file: &'static str,
    /// The section that a variant uses.
    pub(crate) section: fn(&Variant) -> &'static str,
}

impl Element {
    /// The text of an operation: a function `op` for inputs that are computed as `kind`.
    pub(crate) fn text(&self, section: &str, kind: &str) -> &'static str {
        section_for(self.file, section, kind)
    }

    /// Which of the two scalars in the parameters the operation itself reads.
    pub(crate) fn scalars(&self, name: &str) -> [bool; 2] {
        let kinds = ["", ".f32", ".i32", ".u32"];
        let texts = kinds.map(|kind| section(self.file, &format!("{name}{kind}")).unwrap_or(""));
        [SCALARS[0], SCALARS[1]].map(|word| texts.iter().any(|text| text.contains(word)))
    }

    /// The code, the parameters and the workgroups of a launch of the fresh kernel. The layouts are
    /// already broadcast to `shape`. `None` if the maps do not fit into the parameters.
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

/// Which of a launch's operands are bound as vec4s.
pub(crate) fn are_vec4s(code: u64, operands: usize) -> SmallVec<[bool; 4]> {
    let code = Code(code);
    let fetches = (0..code.inputs()).map(|input| code.fetch(input));
    let bound = fetches.filter(|&fetch| fetch != Fetch::Param);
    let mut vec4s: SmallVec<[bool; 4]> = bound.map(|fetch| fetch == Fetch::Vec4).collect();
    vec4s.resize(operands, true);
    vec4s
}

/// Changes a launch's code to write a part of an old storage.
pub(crate) fn into(code: u64) -> u64 {
    code | Code::INTO
}

/// The two scalars in the texts of operations.
pub(crate) const SCALARS: [&str; 2] = ["p.w0.z", "p.w0.w"];

/// A launch of one of the families, decoded from its code and parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) element: &'static Element,
    /// The first element, if it writes a part of an old storage.
    pub(crate) start: Option<u32>,
    pub(crate) code: Code,
    /// The number of elements that it computes.
    pub(crate) len: u32,
    pub(crate) scalars: [u32; 2],
}

/// The map by which an input is read.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    /// The first element.
    pub(crate) offset: u32,
    /// One stride for each dimension.
    pub(crate) strides: SmallVec<[u32; MAX_RANK]>,
}

fn word_of(launch: &Launch, index: usize) -> u32 {
    let bytes = &launch.params[4 * index..4 * index + 4];
    u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

impl Seen {
    /// Decodes a launch of this family. `is_into` says that it writes a part of an old storage.
    pub(in crate::ops) fn new(element: &'static Element, is_into: bool, launch: &Launch) -> Seen {
        Seen {
            element,
            start: is_into.then(|| word_of(launch, 1)),
            code: Code(launch.code),
            len: word_of(launch, 0),
            scalars: [word_of(launch, 2), word_of(launch, 3)],
        }
    }

    /// The dimensions of its maps.
    pub(crate) fn dims(&self, launch: &Launch) -> SmallVec<[u32; MAX_RANK]> {
        if launch.args.len() == 1 {
            return SmallVec::from_slice(&[self.len]);
        }
        let first = MAP + launch.args.len() - 1;
        let dims = first..first + self.code.rank();
        dims.map(|word| word_of(launch, word)).collect()
    }

    /// The map of an input that is an operand.
    pub(crate) fn map(&self, launch: &Launch, operand: usize) -> Map {
        let rank = self.code.rank();
        let first = MAP + launch.args.len() - 1 + rank * (1 + operand);
        let strides = (first..first + rank).map(|word| word_of(launch, word));
        Map {
            offset: word_of(launch, MAP + operand),
            strides: strides.collect(),
        }
    }
}
