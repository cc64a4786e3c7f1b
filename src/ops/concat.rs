//! Concatenates tensors along an axis.
//!
//! A launch takes up to four inputs. Neighbouring inputs may share a vec4 or even a word of the
//! result. So one invocation owns a vec4 and finds the input of each element. Launches run in
//! order, and those after the first leave other elements unchanged.

mod gradient;
#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use bytemuck::{Pod, Zeroable};

use super::elementwise::arg;
use super::rows;
use super::text::Text;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::{Dims, axis};
use lapidary_core::internal::{BuiltInKernel, Launch, MadeFor, Operand, Variant};
use lapidary_core::{Error, Result};

const OPERATION: &str = "concat";
const WGSL: &str = include_str!("../../shaders/concat.wgsl");

/// Inputs of one launch.
const INPUTS: usize = 4;

/// Writes the first inputs. If there are more, the rest of `y` is not defined yet.
static CONCAT: BuiltInKernel = BuiltInKernel {
    name: "concat",
    operands: &[
        Operand::read("a"),
        Operand::read("b"),
        Operand::read("c"),
        Operand::read("d"),
        Operand::write("y"),
    ],
    text: first_text,
    reference: reference!(reference::run),
};

/// Writes further inputs, and keeps the other elements.
static CONCAT_MORE: BuiltInKernel = BuiltInKernel {
    name: "concat_more",
    operands: &[
        Operand::read("a"),
        Operand::read("b"),
        Operand::read("c"),
        Operand::read("d"),
        Operand::update("y"),
    ],
    text: more_text,
    reference: reference!(reference::run),
};

/// `struct Params` of `shaders/concat.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(super) struct Params {
    pub(super) begins: [u32; 4],
    pub(super) ends: [u32; 4],
    pub(super) offsets: [u32; 4],
    pub(super) line: u32,
    pub(super) lines: u32,
    pub(super) first_vec4: u32,
    pub(super) vec4s: u32,
    pub(super) elements: u32,
}

/// Bit of a variant's code: all boundaries are aligned to vec4s.
const VEC4S: u64 = 1;

impl Tensor {
    /// Concatenates tensors along `axis`, which must exist in all of them. The other dimensions
    /// must be equal. Takes any number of tensors, and any views.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(past: &Tensor, new: &Tensor) -> lapidary::Result<()> {
    /// let keys = Tensor::concat(&[past, new], 1)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] for no tensors or if other dimensions differ. [`Error::Axis`] for an axis
    /// that does not exist. [`Error::DType`] for types that differ. [`Error::Foreign`] for tensors
    /// of several `Gpu`s.
    #[track_caller]
    pub fn concat(tensors: &[&Tensor], axis: isize) -> Result<Tensor> {
        let _method = MadeFor::method("concat");
        concat_as(OPERATION, tensors, axis).called(OPERATION)
    }
}

/// [`concat`](Tensor::concat), for an operation that its errors name.
#[track_caller]
pub(super) fn concat_as(
    operation: &'static str,
    tensors: &[&Tensor],
    axis: isize,
) -> Result<Tensor> {
    let (at, shape) = result_shape(operation, tensors, axis)?;
    if tensors.iter().any(|tensor| tensor.is_tracked()) {
        return gradient::concat_recorded(tensors, at);
    }
    let (engine, dtype) = (&tensors[0].engine, tensors[0].dtype);
    let result = Tensor::output(engine, &shape, dtype)?;
    let step: usize = shape[at + 1..].iter().product();
    let mut inputs = Vec::with_capacity(tensors.len());
    let mut begin = 0;
    for &tensor in tensors.iter().filter(|tensor| tensor.layout.len() > 0) {
        let end = begin + tensor.layout.shape[at] * step;
        let tensor = match tensor.layout.is_contiguous() {
            true => tensor.clone(),
            false => tensor.contiguous()?,
        };
        inputs.push(Input { tensor, begin, end });
        begin = end;
    }
    let line = shape[at] * step;
    let (mut rest, mut kernel) = (&inputs[..], &CONCAT);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(fitting(rest, &result));
        place(now, line, kernel, &result)?;
        (rest, kernel) = (later, &CONCAT_MORE);
    }
    Ok(result)
}

/// The axis and the result's shape.
#[track_caller]
fn result_shape(
    operation: &'static str,
    tensors: &[&Tensor],
    along: isize,
) -> Result<(usize, Dims)> {
    let refuse = |reason| Error::Shape { operation, reason };
    let Some((first, others)) = tensors.split_first() else {
        return Err(refuse("there are no tensors".into())).located();
    };
    let mut shape = first.layout.shape.clone();
    let at = axis(operation, along, shape.len())?;
    for other in others {
        first.same_engine(operation, other)?;
        if first.dtype != other.dtype {
            return Err(Error::DType {
                operation,
                expected: first.dtype.to_string(),
                got: other.dtype,
                hint: "Cast them to one type first",
                at: String::new(),
            })
            .located();
        }
        let dims = &other.layout.shape;
        let fits = dims.len() == shape.len()
            && (0..dims.len()).all(|axis| axis == at || dims[axis] == shape[axis]);
        if !fits {
            return Err(refuse(format!(
                "shapes {:?} and {dims:?} differ beside axis {at}",
                first.layout.shape
            )))
            .located();
        }
        shape[at] = shape[at].saturating_add(dims[at]);
    }
    Ok((at, shape))
}

/// A contiguous tensor, and the range of elements that it fills in every line.
struct Input {
    tensor: Tensor,
    begin: usize,
    end: usize,
}

/// The number of inputs that one launch takes. Large inputs take several bindings each.
fn fitting(inputs: &[Input], y: &Tensor) -> usize {
    let caps = y.engine.caps();
    let windows = |t: &Tensor| t.storage.size_bytes().div_ceil(caps.max_binding_bytes);
    let mut left = y.engine.here().most_windows().saturating_sub(windows(y));
    let fits = |input: &&Input| match left.checked_sub(windows(&input.tensor)) {
        Some(less) => {
            left = less;
            true
        }
        None => false,
    };
    let count = inputs.iter().take(INPUTS).take_while(fits).count();
    // If not even one fits, the launch returns the error.
    count.max(1)
}

/// Appends the launch that writes these neighbouring inputs.
#[track_caller]
fn place(inputs: &[Input], line: usize, kernel: &'static BuiltInKernel, y: &Tensor) -> Result<()> {
    let elements = y.layout.len();
    let mut params = Params {
        line: line as u32,
        elements: elements as u32,
        ..Params::default()
    };
    for (index, input) in inputs.iter().enumerate() {
        params.begins[index] = input.begin as u32;
        params.ends[index] = input.end as u32;
        params.offsets[index] = input.tensor.layout.offset as u32;
    }
    let lines_are_vec4_aligned = line.is_multiple_of(4);
    let numbers = params
        .begins
        .iter()
        .chain(&params.ends)
        .chain(&params.offsets);
    let vec4s = lines_are_vec4_aligned && numbers.into_iter().all(|number| number % 4 == 0);
    // If lines share vec4s, invocations may not stop at the end of a line. So all lines count as
    // one.
    let (lines, begin, end) = match lines_are_vec4_aligned || elements == line {
        true => (
            elements / line,
            inputs[0].begin,
            inputs[inputs.len() - 1].end,
        ),
        false => (1, 0, elements),
    };
    params.lines = lines as u32;
    params.first_vec4 = (begin / 4) as u32;
    params.vec4s = (end.div_ceil(4) - begin / 4) as u32;
    let input = |index: usize| {
        let tensor = &inputs[index.min(inputs.len() - 1)].tensor;
        arg(tensor, vec4s)
    };
    let args = [input(0), input(1), input(2), input(3), arg(y, true)];
    let engine = &y.engine;
    let invocations = lines as u64 * u64::from(params.vec4s);
    let groups = rows::groups(engine.caps(), invocations, 64);
    engine.launch(Launch::new(kernel, u64::from(vec4s), args, &params, groups))
}

/// The WGSL of a variant.
fn first_text(variant: &Variant) -> Cow<'static, str> {
    text(variant, "first")
}

fn more_text(variant: &Variant) -> Cow<'static, str> {
    text(variant, "more")
}

/// `held` is the section for elements that this launch does not fill.
fn text(variant: &Variant, held: &str) -> Cow<'static, str> {
    let sections: &[&str] = match variant.code & VEC4S {
        0 => &["main", "elements", held],
        _ => &["main", "vec4s"],
    };
    let text = Text::new().line(format_args!("alias T = {};", variant.dtypes[0].wgsl()));
    text.sections(WGSL, sections).done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::valid;
    use lapidary_core::DType;

    #[test]
    fn every_type_gives_a_valid_shader() {
        for dtype in DType::ALL {
            for kernel in [&CONCAT, &CONCAT_MORE] {
                valid(kernel, 0, &[dtype; 5], 0b10000);
                valid(kernel, VEC4S, &[dtype; 5], 0b11111);
            }
        }
    }
}
