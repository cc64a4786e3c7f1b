//! The shared frame of unary, binary, select, copy, fill and random: each vec4 of the output is
//! computed from one vec4 of every input.
//!
//! The output is row-major. The inputs are views of any kind, broadcast to its shape and collapsed
//! to as few dimensions as possible. Their strides decide how four neighbouring elements are
//! fetched ([`Fetch`]). The fetches and the rank select the variant. Operands without gaps are only
//! loaded and stored as whole vec4s.
//!
//! ```text
//!  words of p   0        1         2, 3      4 …       then          then
//!               elements out start scalars   offsets   dimensions    strides
//!                                            an input  outermost 1st of input 0, of input 1, …
//! ```

pub(crate) mod element;
mod parts;
mod shader;

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::sync::Arc;

use smallvec::SmallVec;

use crate::tensor::Tensor;
use crate::tensor::layout::{Collapsed, Layout, checked, collapse};
use lapidary_core::internal::{Arg, Engine, Kernel, Launch, MAX_PARAMS_BYTES, Program, Ranges};
use lapidary_core::{Caps, DType, Result, adapter::AdapterKind};

use element::Element;
pub(super) use parts::{do_fit, halves, is_wide, ranges, within};
pub(super) use shader::{head, index, text};

/// Invocations of a workgroup.
pub(crate) const GROUP: u64 = 64;

/// Invocations of a workgroup for a long tensor on a discrete GPU. With smaller ones an H100 takes
/// as long for halves as for whole words: it starts about 1.3 workgroups a nanosecond.
const BROAD_GROUP: u64 = 256;

/// Least vec4s for which broad workgroups still keep every core of a GPU busy.
const BROAD_VEC4S: u64 = 1 << 16;

/// The invocations of a workgroup that computes so many vec4s, one by each.
pub(crate) fn group_of(kind: AdapterKind, vec4s: u64) -> u64 {
    match kind {
        AdapterKind::Discrete if vec4s >= BROAD_VEC4S => BROAD_GROUP,
        _ => GROUP,
    }
}

/// Vec4s of one invocation on a software rasterizer, which runs long straight code faster. On a GPU
/// it is one, so that neighbouring invocations read neighbouring vec4s.
pub(crate) const VEC4S_ON_CPU: u64 = 4;

/// The word at which the offsets, dimensions and strides start.
pub(crate) const MAP: usize = 4;

/// Least words of parameters. Kernels without inputs have more scalars and no map.
const LEAST_WORDS: usize = 8;

/// How four neighbouring elements of an input are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// One by one.
    Strided = 0,
    /// As a vec4.
    Vec4 = 1,
    /// One element, repeated four times.
    Splat = 2,
    /// A scalar among the parameters instead of an operand.
    Param = 3,
}

impl Fetch {
    const ALL: [Fetch; 4] = [Fetch::Strided, Fetch::Vec4, Fetch::Splat, Fetch::Param];
}

/// The packed [`Variant::code`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u64);

impl Code {
    /// Writes a part of the output's storage.
    const INTO: u64 = 1 << 13;
    /// Four vec4s an invocation.
    const UNROLL: u64 = 1 << 14;
    /// A vec4 lies within one row, so its coordinates are computed once for all four elements.
    const WHOLE: u64 = 1 << 12;
    /// All vec4s of an invocation lie within one row.
    const TOGETHER: u64 = 1 << 15;
    /// Operands that are accessed by vec4s consist of vec8s, and an invocation takes two vec4s at a
    /// time.
    const VEC8S: u64 = 1 << 26;
    /// Workgroups of [`BROAD_GROUP`] invocations.
    const BROAD: u64 = 1 << 27;

    pub(crate) fn op(self) -> u8 {
        self.0 as u8
    }

    pub(crate) fn rank(self) -> usize {
        (self.0 >> 8 & 15) as usize
    }

    pub(crate) fn is_into(self) -> bool {
        self.0 & Code::INTO != 0
    }

    /// The number of inputs, including scalars.
    pub(crate) fn inputs(self) -> usize {
        (self.0 >> 24 & 3) as usize
    }

    pub(crate) fn fetch(self, input: usize) -> Fetch {
        Fetch::ALL[(self.0 >> (16 + 2 * input) & 3) as usize]
    }

    /// The word after the map, where further scalars start.
    pub(crate) fn beyond_map(self) -> usize {
        let (bound, rank) = (self.bound(), self.rank());
        match bound {
            0 => MAP,
            _ => MAP + bound * (1 + rank) + rank,
        }
    }

    /// The same code, with vec4s in pairs if the adapter gains by it. An invocation must take
    /// several vec4s, and all operands, the output included, must be f32. No pair may be split, and
    /// the vec4s must be contiguous.
    pub(crate) fn in_pairs(
        self,
        caps: &Caps,
        words: &[u32],
        mut dtypes: impl Iterator<Item = DType>,
    ) -> Code {
        let fetches = (0..self.inputs()).map(|input| self.fetch(input));
        let mut bound = fetches.filter(|&fetch| fetch != Fetch::Param).enumerate();
        let are_pairs = caps.wide_words
            && self.has(Code::UNROLL)
            && !self.is_into()
            && self.rank() == 1
            && self.bound() > 0
            && words[0].is_multiple_of(8)
            && bound.all(|(operand, fetch)| match fetch {
                Fetch::Vec4 => words[MAP + operand].is_multiple_of(8),
                fetch => fetch == Fetch::Splat,
            })
            && dtypes.all(|dtype| dtype == DType::F32);
        Code(self.0 | if are_pairs { Code::VEC8S } else { 0 })
    }

    fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// The number of inputs that are operands.
    fn bound(self) -> usize {
        (0..self.inputs())
            .filter(|&input| self.fetch(input) != Fetch::Param)
            .count()
    }
}

/// An input of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Input<'a> {
    /// A tensor that broadcasts to the output's shape.
    Tensor(&'a Tensor),
    /// The scalar in word 2 of the parameters.
    Scalar,
}

/// An operation with its inputs. Only the output is missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) family: &'static Element,
    /// The number of the operation in the family.
    pub(super) op: u8,
    pub(super) inputs: &'a [Input<'a>],
    /// Words 2 and 3, then the words after the map. Without inputs, the words from 2 on.
    pub(super) scalars: &'a [u32],
}

impl Call<'_> {
    fn tensors(&self) -> impl Iterator<Item = &Tensor> + Clone {
        self.inputs.iter().filter_map(|input| match input {
            Input::Tensor(tensor) => Some(*tensor),
            Input::Scalar => None,
        })
    }

    /// Computes the result into a new tensor.
    #[track_caller]
    pub(super) fn output(
        &self,
        engine: &Arc<Engine>,
        shape: &[usize],
        dtype: DType,
    ) -> Result<Tensor> {
        // Checks the size before the dimensions are multiplied.
        let (_, bytes) = checked(shape, dtype)?;
        if self.is_in_parts(engine, None, bytes) {
            let out = Tensor::output(engine, shape, dtype)?;
            self.write_parts(&out)?;
            return Ok(out);
        }
        if let Some(plan) = self.plan(engine.caps(), shape, 0)? {
            let out = Tensor::output(engine, shape, dtype)?;
            self.launch(plan, &out, false, Ranges::new())?;
            return Ok(out);
        }
        let rows = self.materialized(shape)?;
        let inputs: SmallVec<[Input<'_>; 3]> = rows.iter().map(Input::Tensor).collect();
        let call = Call {
            inputs: &inputs,
            ..*self
        };
        call.output(engine, shape, dtype)
    }

    /// Computes the result into a view that [`is_vec4_aligned`](Layout::is_vec4_aligned). No input
    /// may read its storage through another map.
    #[track_caller]
    pub(super) fn write_to(&self, out: &Tensor) -> Result<()> {
        debug_assert!(out.layout.is_vec4_aligned());
        if self.is_in_parts(&out.engine, Some(out), 0) {
            return self.write_parts(out);
        }
        let (caps, shape) = (out.engine.caps(), &out.layout.shape[..]);
        match self.plan(caps, shape, out.layout.offset as u32)? {
            Some(plan) => self.launch(plan, out, true, Ranges::new()),
            None => {
                let made = self.output(&out.engine, shape, out.dtype)?;
                out.copy_(&made)
            }
        }
    }

    /// The inputs as row-major tensors. The maps of three views with seven dimensions each do not
    /// fit into the parameters.
    #[track_caller]
    fn materialized(&self, shape: &[usize]) -> Result<SmallVec<[Tensor; 3]>> {
        self.tensors()
            .map(|tensor| {
                let view = tensor.view(tensor.layout.broadcast_to(shape)?);
                view.contiguous()
            })
            .collect()
    }

    fn plan(&self, caps: &Caps, shape: &[usize], out_start: u32) -> Result<Option<Plan>> {
        let mut broadcast: SmallVec<[Layout; 3]> = SmallVec::new();
        // Most operands already have the shape, so their layouts are not copied.
        for tensor in self.tensors().filter(|t| t.layout.shape[..] != *shape) {
            broadcast.push(tensor.layout.broadcast_to(shape)?);
        }
        let mut broadcast = broadcast.iter();
        let mut layouts: SmallVec<[&Layout; 3]> = SmallVec::new();
        let mut are_scalars: SmallVec<[bool; 3]> = SmallVec::new();
        for input in self.inputs {
            are_scalars.push(matches!(input, Input::Scalar));
            match input {
                Input::Scalar => {}
                Input::Tensor(tensor) if tensor.layout.shape[..] == *shape => {
                    layouts.push(&tensor.layout);
                }
                Input::Tensor(_) => layouts.extend(broadcast.next()),
            }
        }
        let Some(mut plan) = Plan::new(shape, &layouts, &are_scalars) else {
            return Ok(None);
        };
        plan.code.0 |= u64::from(self.op);
        plan.words[1] = out_start;
        plan.set_scalars(self.scalars);
        plan.spread(caps);
        Ok(Some(plan))
    }

    #[track_caller]
    fn launch(&self, mut plan: Plan, out: &Tensor, into: bool, ranges: Ranges) -> Result<()> {
        if plan.words[0] == 0 {
            return Ok(());
        }
        if into {
            plan.code.0 |= Code::INTO;
        }
        let dtypes = self.tensors().chain([out]).map(|operand| operand.dtype);
        plan.code = (plan.code).in_pairs(out.engine.caps(), &plan.words, dtypes);
        let mut args: SmallVec<[Arg; 4]> = SmallVec::new();
        let mut may_reuse = 0;
        let fetches = (0..plan.code.inputs()).map(|input| plan.code.fetch(input));
        let bound = fetches.filter(|&fetch| fetch != Fetch::Param);
        for (index, (tensor, fetch)) in self.tensors().zip(bound).enumerate() {
            let same_place = plan.code.rank() == 1
                && fetch == Fetch::Vec4
                && plan.words[MAP + index] == 0
                && tensor.dtype.size_bytes() == out.dtype.size_bytes()
                && tensor.storage.size_bytes() == out.storage.size_bytes();
            if same_place && !into {
                may_reuse |= 1 << index;
            }
            args.push(arg(tensor, fetch == Fetch::Vec4));
        }
        args.push(arg(out, true));
        let kernel = if into {
            self.family.into
        } else {
            self.family.fresh
        };
        out.engine.launch(Launch {
            program: Program::Builtin(kernel),
            code: plan.code.0,
            args,
            params: SmallVec::from_slice(bytemuck::cast_slice(&plan.words)),
            groups: plan.groups,
            may_reuse,
            ranges,
            work: 0,
        })
    }
}

/// Everything that a launch needs, except for its storages.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) code: Code,
    /// The parameters: whole vec4s, at most [`MAX_PARAMS_BYTES`].
    pub(super) words: SmallVec<[u32; 16]>,
    pub(super) groups: [u32; 3],
}

impl Plan {
    /// `None` if the maps do not fit into the parameters. The layouts are already broadcast to
    /// `shape`. `is_scalar` says which inputs are parameters.
    pub(super) fn new(shape: &[usize], layouts: &[&Layout], is_scalar: &[bool]) -> Option<Plan> {
        let map = collapse(shape, layouts);
        let elements = shape.iter().product::<usize>() as u32;
        let count = MAP + layouts.len() * (1 + map.dims.len()) + map.dims.len();
        if 4 * count.next_multiple_of(4) > MAX_PARAMS_BYTES {
            return None;
        }
        let rank = match layouts {
            [] => 1,
            _ => map.dims.len(),
        };
        let mut words = [0; MAX_PARAMS_BYTES / 4];
        words[0] = elements;
        let mut end = MAP;
        if !layouts.is_empty() {
            let strides = map.strides.iter().flat_map(|strides| &strides[..rank]);
            let of_map = map.offsets.iter().chain(&map.dims).chain(strides);
            for (place, &word) in words[MAP..].iter_mut().zip(of_map) {
                *place = word;
                end += 1;
            }
        }
        let words = &words[..end.next_multiple_of(4).max(LEAST_WORDS)];
        let whole = rank == 1 || map.dims[rank - 1].is_multiple_of(4);
        let mut code = (rank as u64) << 8 | (is_scalar.len() as u64) << 24;
        code |= if whole { Code::WHOLE } else { 0 };
        let mut operand = 0;
        for (input, &is_scalar) in is_scalar.iter().enumerate() {
            let fetch = match is_scalar {
                true => Fetch::Param,
                false => {
                    operand += 1;
                    fetch_of(&map, operand - 1, whole)
                }
            };
            code |= (fetch as u64) << (16 + 2 * input);
        }
        Some(Plan {
            code: Code(code),
            words: SmallVec::from_slice(words),
            groups: [1; 3],
        })
    }

    pub(super) fn set_scalars(&mut self, scalars: &[u32]) {
        let (near, far) = scalars.split_at(scalars.len().min(2));
        self.words[2..2 + near.len()].copy_from_slice(near);
        let start = self.code.beyond_map();
        let end = (start + far.len()).next_multiple_of(4);
        debug_assert!(4 * end <= MAX_PARAMS_BYTES || far.is_empty());
        self.words.resize(self.words.len().max(end), 0);
        self.words[start..start + far.len()].copy_from_slice(far);
    }

    /// Distributes the vec4s over invocations as suits the adapter.
    fn spread(&mut self, caps: &Caps) {
        let vec4s = u64::from(self.words[0]).div_ceil(4);
        let each = match caps.kind {
            AdapterKind::Cpu if vec4s >= GROUP * VEC4S_ON_CPU => {
                self.code.0 |= Code::UNROLL;
                let (rank, inputs) = (self.code.rank(), self.code.bound());
                let row = self.words[MAP + inputs + rank - 1];
                if rank == 1 || u64::from(row) % (4 * VEC4S_ON_CPU) == 0 {
                    self.code.0 |= Code::TOGETHER;
                }
                VEC4S_ON_CPU
            }
            _ => 1,
        };
        let group = group_of(caps.kind, vec4s);
        self.code.0 |= if group == BROAD_GROUP { Code::BROAD } else { 0 };
        self.groups = groups_of(caps, vec4s.div_ceil(each), group);
    }
}

/// A launch whose parameters are words. Its operands are whole storages, and the output reuses none
/// of them.
pub(super) fn launch_of(
    kernel: &'static Kernel,
    code: u64,
    args: impl IntoIterator<Item = Arg>,
    words: &[u32],
    groups: [u32; 3],
) -> Launch {
    Launch {
        program: Program::Builtin(kernel),
        code,
        args: args.into_iter().collect(),
        params: SmallVec::from_slice(bytemuck::cast_slice(words)),
        groups,
        may_reuse: 0,
        ranges: Ranges::new(),
        work: 0,
    }
}

/// The number of workgroups of `group` invocations, over x and y.
pub(crate) fn groups_of(caps: &Caps, invocations: u64, group: u64) -> [u32; 3] {
    super::rows::groups(caps, invocations, group)
}

/// The number of workgroups of 64 invocations, over x and y.
pub(crate) fn groups(caps: &Caps, invocations: u64) -> [u32; 3] {
    groups_of(caps, invocations, GROUP)
}

fn fetch_of(map: &Collapsed, operand: usize, whole: bool) -> Fetch {
    let rank = map.dims.len();
    let strides = &map.strides[operand][..rank];
    let (&inner, outer) = strides.split_last().expect("collapsing leaves a dimension");
    let starts_are_vec4_aligned = map.offsets[operand].is_multiple_of(4)
        && outer.iter().all(|stride| stride.is_multiple_of(4));
    match inner {
        _ if strides.iter().all(|&stride| stride == 0) => Fetch::Splat,
        0 if whole => Fetch::Splat,
        1 if whole && starts_are_vec4_aligned => Fetch::Vec4,
        _ => Fetch::Strided,
    }
}

#[inline]
pub(super) fn arg(tensor: &Tensor, vec4s: bool) -> Arg {
    Arg {
        storage: Arc::clone(&tensor.storage),
        dtype: tensor.dtype,
        vec4s,
    }
}
