//! A call of an operation: its inputs become operands of one launch, or of several.

use smallvec::SmallVec;

use super::code::{Code, Fetch, MAP};
use super::element::Element;
use super::launch::arg;
use super::plan::Plan;
use crate::tensor::Tensor;
use crate::tensor::layout::{Layout, checked};
use lapidary_core::internal::{Arg, Engine, Handle, Launch, Methods, Program, Ranges};
use lapidary_core::{Caps, DType, Result};

/// An input of a call.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) enum Input<'a> {
    /// A tensor that broadcasts to the output's shape.
    Tensor(&'a Tensor),
    /// The scalar in word 2 of the parameters.
    Scalar,
}

/// An operation with its inputs. Only the output is missing.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Call<'a> {
    pub(in crate::ops) family: &'static Element,
    /// The number of the operation in the family.
    pub(in crate::ops) op: u8,
    pub(in crate::ops) inputs: &'a [Input<'a>],
    /// Words 2 and 3, then the words after the map. Without inputs, the words from 2 on.
    pub(in crate::ops) scalars: &'a [u32],
}

impl Element {
    /// Operation `op` with these inputs and scalars, which [`Call`] describes.
    pub(in crate::ops) fn call<'a>(
        &'static self,
        op: u8,
        inputs: &'a [Input<'a>],
        scalars: &'a [u32],
    ) -> Call<'a> {
        Call {
            family: self,
            op,
            inputs,
            scalars,
        }
    }
}

impl Call<'_> {
    pub(super) fn tensors(&self) -> impl Iterator<Item = &Tensor> + Clone {
        self.inputs.iter().filter_map(|input| match input {
            Input::Tensor(tensor) => Some(*tensor),
            Input::Scalar => None,
        })
    }

    /// Computes the result into a new tensor.
    #[track_caller]
    pub(in crate::ops) fn output(
        &self,
        engine: &Handle<Engine>,
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

    /// Computes the result of a call without inputs into a new tensor, which may stand for another
    /// one with the same storage.
    #[track_caller]
    pub(in crate::ops) fn write_new(&self, out: &Tensor) -> Result<()> {
        match self.is_in_parts(&out.engine, None, out.size_bytes()) {
            true => self.write_parts(out),
            false => match self.plan(out.engine.caps(), &out.layout.shape, 0)? {
                Some(plan) => self.launch(plan, out, false, Ranges::new()),
                None => self.write_to(out),
            },
        }
    }

    /// Computes the result into a view that [`is_vec4_aligned`](Layout::is_vec4_aligned). No input
    /// may read its storage through another map.
    #[track_caller]
    pub(in crate::ops) fn write_to(&self, out: &Tensor) -> Result<()> {
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

    #[track_caller]
    pub(super) fn plan(
        &self,
        caps: &Caps,
        shape: &[usize],
        out_start: u32,
    ) -> Result<Option<Plan>> {
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
    pub(super) fn launch(
        &self,
        mut plan: Plan,
        out: &Tensor,
        into: bool,
        ranges: Ranges,
    ) -> Result<()> {
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
            methods: Methods::new(),
            pages: None,
        })
    }
}
