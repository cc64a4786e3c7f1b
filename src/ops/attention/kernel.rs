//! The kernel, and how a call comes to it: directly, in parts, or not at all.

use std::borrow::Cow;

use super::call::Call;
use super::form::{self, Form, Tile};
use super::problem::{Problem, Shapes};
#[cfg(any(test, feature = "sim"))]
use super::reference;
use super::{blocks, emit};
use crate::ops::elementwise::arg;
use crate::tensor::Tensor;
use crate::tensor::layout::Layout;
use lapidary_core::Result;
use lapidary_core::internal::{BuiltInKernel, Launch, Operand, Variant};

/// Without a mask, `q` is bound in its place and not read.
pub(super) static ATTENTION: BuiltInKernel = BuiltInKernel {
    name: "attention",
    operands: &[
        Operand::read("q"),
        Operand::read("k"),
        Operand::read("v"),
        Operand::read("m"),
        Operand::write("y"),
    ],
    text,
    reference: reference!(reference::run),
};

fn text(variant: &Variant) -> Cow<'static, str> {
    emit::text(variant)
}

impl Call<'_> {
    /// Runs the call by this variant, or by the best one.
    #[track_caller]
    pub(super) fn run(&self, tile: Option<Tile>) -> Result<Tensor> {
        self.check_types()?;
        let mask = self.mask.map(|mask| &mask.layout);
        let shapes = Shapes::new(&self.q.layout, &self.k.layout, &self.v.layout, mask)?;
        if tile.is_none() {
            if shapes.queries == 1 && (shapes.group > 1 || self.is_causal) {
                return self.one_query(&shapes);
            }
            if let Some(step) = self.queries_at_once(&shapes) {
                return self.in_parts(&shapes, step);
            }
        }
        let columns = *shapes.result.last().expect("a result has columns");
        let mut padded_shape = shapes.result.clone();
        let last = padded_shape.len() - 1;
        padded_shape[last] = columns.next_multiple_of(4);
        let engine = &self.q.engine;
        if columns == 0 {
            return Tensor::output(engine, &shapes.result, self.q.dtype);
        }
        let padded = Tensor::output(engine, &padded_shape, self.q.dtype)?;
        engine
            .here()
            .pads(&padded.storage.here(), columns, padded_shape[last]);
        if shapes.keys == 0 {
            padded.clear_storage()?;
        } else if !padded.is_empty() {
            let operands = [prepared(self.q)?, prepared(self.k)?, prepared(self.v)?];
            let scale = self.scale.unwrap_or_else(|| shapes.scale());
            let layouts = operands.each_ref().map(|operand| &operand.layout);
            let mask = self.mask.map(|mask| (&mask.layout, mask.dtype));
            match Problem::new(&shapes, layouts, mask, scale) {
                Some(problem) => {
                    let problem = problem.begun_at(self.first);
                    let form = match tile {
                        Some(tile) => Some(Form::new(tile, &problem, self.is_causal)),
                        None => {
                            let caps = engine.caps();
                            let is_large =
                                |x: &Tensor| x.storage.size_bytes() > caps.max_binding_bytes;
                            let has_windows = operands.iter().chain([&padded]).any(is_large);
                            form::choose(caps, &problem, self.is_causal, has_windows)
                        }
                    };
                    match form {
                        Some(form) => self.launch(&operands, &padded, &problem, form)?,
                        None => blocks::run(self, &shapes, scale, &padded.narrow(-1, 0, columns)?)?,
                    }
                }
                None => return self.regular(&shapes)?.call(self).run(tile),
            }
        }
        match columns % 4 {
            0 => Ok(padded),
            _ => padded.narrow(-1, 0, columns)?.contiguous(),
        }
    }

    #[track_caller]
    fn launch(
        &self,
        operands: &[Tensor; 3],
        y: &Tensor,
        problem: &Problem,
        form: Form,
    ) -> Result<()> {
        let [q, k, v] = operands;
        let mask = match self.mask {
            Some(mask) => arg(mask, problem.mask.vec4s),
            None => arg(q, true),
        };
        let args = [arg(q, true), arg(k, true), arg(v, true), mask, arg(y, true)];
        let groups = form::groups(y.engine.caps(), form, problem);
        let launch = Launch::new(&ATTENTION, form.pack(), args, problem.params(), groups);
        y.engine.launch(launch.with_work(problem.work()))
    }
}

/// `x` with rows that start at vec4s, consist of whole vec4s and have no gaps. Copies it if
/// necessary.
#[track_caller]
fn prepared(x: &Tensor) -> Result<Tensor> {
    let Layout {
        shape,
        strides,
        offset,
    } = &x.layout;
    let last = shape.len() - 1;
    let are_lines = (0..last).all(|axis| shape[axis] == 1 || strides[axis] % 4 == 0);
    let is_whole = shape[last].is_multiple_of(4);
    if is_whole && strides[last] == 1 && offset.is_multiple_of(4) && are_lines {
        return Ok(x.clone());
    }
    if is_whole {
        return x.copy();
    }
    let mut padded_shape = shape.clone();
    padded_shape[last] = shape[last].next_multiple_of(4);
    let padded = Tensor::output(&x.engine, &padded_shape, x.dtype)?;
    padded.clear_storage()?;
    padded.narrow(-1, 0, shape[last])?.copy_(x)?;
    Ok(padded)
}
