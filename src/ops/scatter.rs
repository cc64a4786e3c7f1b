//! Elements written, or added, where indices say.
//!
//! The indices are sorted, and each element of the result looks for those that name it. So the
//! results are the same in every run and on every adapter, and nothing is written outside.

use std::borrow::Cow;
use std::fmt::Write;

use bytemuck::{Pod, Zeroable};

use super::elementwise::arg;
use super::functions::push_functions;
use super::gather;
use super::index_select::check_index_type;
use super::operation::{Takes, same_dtype};
use super::rows;
use super::sort::sorted;
use super::text::push_sections;
use crate::driver::AdapterKind;
use crate::dtype::DType;
use crate::engine::{Kernel, Launch, Operand, Variant};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::layout::axis;

const WGSL: &str = include_str!("../../shaders/scatter.wgsl");

/// `y` = `x` with `s` where the keys `k` say, whose places are `o`.
static SCATTER: Kernel = Kernel {
    name: "scatter_indexed",
    operands: &[
        Operand::read("x"),
        Operand::read("k"),
        Operand::read("o"),
        Operand::read("s"),
        Operand::write("y"),
    ],
    text,
    #[cfg(any(test, feature = "sim"))]
    twin: super::twin::scatter::run,
};

/// `struct Params` of `shaders/scatter.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Params {
    pub(super) elements: u32,
    pub(super) size: u32,
    pub(super) after: u32,
    pub(super) indices: u32,
    pub(super) x_offset: u32,
    pub(super) s_offset: u32,
    pub(super) shared_indices: u32,
    pub(super) sign: u32,
}

/// The most sources that may be added to one element in one launch on a software adapter: llvmpipe
/// leaves the loops of an invocation, which adds to four, after 65,535 rounds in all of them.
const LONGEST_RUN_ON_CPU: usize = 15 << 10;

/// Bit of a variant's code: sources are added.
const ADD: u64 = 1;

impl Tensor {
    /// A copy in which the elements that `indices` names along `axis` are those of `src`, as
    /// PyTorch's `scatter`: for `axis` 1, `y[a, indices[a, b, c], c] = src[a, b, c]`. All three
    /// have as many dimensions; `indices`, `u32` or `i32`, has none larger than `src`, and none
    /// larger than `self` but for `axis`.
    ///
    /// Of several that name one element, the last along `axis` stays. An index that the axis does
    /// not have is skipped, and so is every negative one, which does not count from the end.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(zeros: &Tensor, classes: &Tensor, ones: &Tensor) -> lapidary::Result<()> {
    /// let hot = zeros.scatter(1, classes, ones)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Axis`] if there is no such axis, [`Error::Shape`] unless the dimensions go
    /// together, [`Error::DType`] unless the indices are `u32` or `i32` and `src` has the type of
    /// `self`, [`Error::Foreign`] for tensors of several `Gpu`s, and [`Error::NeverFits`] if the
    /// operands are too large.
    #[track_caller]
    pub fn scatter(&self, axis: isize, indices: &Tensor, src: &Tensor) -> Result<Tensor> {
        self.scattered("scatter", axis, indices, src, 0)
    }

    /// A copy in which each element of `src` is added to the one that `indices` names along
    /// `axis`, as PyTorch's `scatter_add`; shapes and indices as in [`scatter`](Tensor::scatter).
    /// For all numbers; integers wrap.
    ///
    /// Several that name one element are added in their order along `axis`, in f32 for f16 and bf16: the
    /// result is the same in every run. An element that very many name takes as long as they are.
    ///
    /// # Errors
    ///
    /// Those of [`scatter`](Tensor::scatter); [`Error::DType`] for bools.
    #[track_caller]
    pub fn scatter_add(&self, axis: isize, indices: &Tensor, src: &Tensor) -> Result<Tensor> {
        Takes::Numbers.check("scatter_add", self.dtype)?;
        self.scattered("scatter_add", axis, indices, src, ADD)
    }

    /// A copy in which each slice of `src` along `axis` is added to the one that `indices`, of one
    /// dimension, names: the gradient of [`index_select`](Tensor::index_select). `src` has the
    /// shape of `self`, but along `axis` that of `indices`. Order, types and indices that are not
    /// there as in [`scatter_add`](Tensor::scatter_add).
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(zeros: &Tensor, tokens: &Tensor, gradient: &Tensor) -> lapidary::Result<()> {
    /// let of_weight = zeros.index_add(0, tokens, gradient)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`scatter_add`](Tensor::scatter_add).
    #[track_caller]
    pub fn index_add(&self, axis: isize, indices: &Tensor, src: &Tensor) -> Result<Tensor> {
        const OPERATION: &str = "index_add";
        if let (Some(x), Some(i), Some(src)) = (self.as_axis(), indices.as_axis(), src.as_axis()) {
            return Ok(x.index_add(axis, &i, &src)?.into_number());
        }
        let at = self::axis(OPERATION, axis, self.layout.rank())?;
        Takes::Numbers.check(OPERATION, self.dtype)?;
        self.check_source(OPERATION, src)?;
        check_index_type(OPERATION, self, indices)?;
        let mut wanted = self.layout.shape.clone();
        wanted[at] = indices.layout.len();
        if indices.layout.rank() != 1 || src.layout.shape != wanted {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!(
                    "indices of shape {:?} and slices of shape {:?} do not go along axis {at} \
                     of {:?}",
                    indices.layout.shape, src.layout.shape, self.layout.shape
                ),
            });
        }
        place(self, at, indices, src, ADD)
    }

    /// [`scatter`](Tensor::scatter) in place.
    ///
    /// # Errors
    ///
    /// Those of [`scatter`](Tensor::scatter) and of [`add_`](Tensor::add_).
    #[track_caller]
    pub fn scatter_(&self, axis: isize, indices: &Tensor, src: &Tensor) -> Result<()> {
        self.check_writable("scatter_")?;
        self.copy_(&self.scatter(axis, indices, src)?)
    }

    /// [`scatter_add`](Tensor::scatter_add) in place.
    ///
    /// # Errors
    ///
    /// Those of [`scatter_add`](Tensor::scatter_add) and of [`add_`](Tensor::add_).
    #[track_caller]
    pub fn scatter_add_(&self, axis: isize, indices: &Tensor, src: &Tensor) -> Result<()> {
        self.check_writable("scatter_add_")?;
        self.copy_(&self.scatter_add(axis, indices, src)?)
    }

    /// [`index_add`](Tensor::index_add) in place.
    ///
    /// # Errors
    ///
    /// Those of [`index_add`](Tensor::index_add) and of [`add_`](Tensor::add_).
    #[track_caller]
    pub fn index_add_(&self, axis: isize, indices: &Tensor, src: &Tensor) -> Result<()> {
        self.check_writable("index_add_")?;
        self.copy_(&self.index_add(axis, indices, src)?)
    }

    fn check_source(&self, operation: &'static str, src: &Tensor) -> Result<()> {
        self.same_engine(operation, src)?;
        same_dtype(operation, self.dtype, src.dtype)
    }

    #[track_caller]
    fn scattered(
        &self,
        operation: &'static str,
        along: isize,
        indices: &Tensor,
        src: &Tensor,
        code: u64,
    ) -> Result<Tensor> {
        if let (Some(x), Some(i), Some(src)) = (self.as_axis(), indices.as_axis(), src.as_axis()) {
            return Ok(x.scattered(operation, along, &i, &src, code)?.into_number());
        }
        let at = gather::check(operation, self, along, indices)?;
        self.check_source(operation, src)?;
        let (of_indices, of_src) = (&indices.layout.shape, &src.layout.shape);
        gather::fits_within(operation, of_indices, &self.layout.shape, at)?;
        let is_in_src = of_src.len() == of_indices.len()
            && of_src
                .iter()
                .zip(of_indices)
                .all(|(src, index)| index <= src);
        if !is_in_src {
            return Err(Error::Shape {
                operation,
                reason: format!("the indices {of_indices:?} do not fit into {of_src:?}"),
            });
        }
        // Indices may leave a part of the tensor alone, and of the source.
        let mut named = of_indices.clone();
        let src = first(src, &named)?;
        named[at] = self.layout.shape[at];
        if named == self.layout.shape {
            return place(self, at, indices, &src, code);
        }
        let result = self.copy()?;
        let made = place(&first(self, &named)?, at, indices, &src, code)?;
        first(&result, &named)?.copy_(&made)?;
        Ok(result)
    }
}

/// The first elements along every axis.
fn first(x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let mut layout = x.layout.clone();
    layout.shape = shape.into();
    Ok(x.view(layout))
}

/// `x` with the slices of `src` at indices of one dimension along an axis, or with them added.
#[track_caller]
pub(super) fn put(
    x: &Tensor,
    at: usize,
    indices: &Tensor,
    src: &Tensor,
    add: bool,
) -> Result<Tensor> {
    place(x, at, indices, src, if add { ADD } else { 0 })
}

/// `x` with the slices of `src` at the indices, which have the shape of `src`, or are one line for
/// all.
#[track_caller]
fn place(x: &Tensor, at: usize, indices: &Tensor, src: &Tensor, code: u64) -> Result<Tensor> {
    let engine = &x.engine;
    let shape = &x.layout.shape;
    if src.layout.len() == 0 || x.layout.len() == 0 {
        return x.copy();
    }
    let is_shared = indices.layout.rank() != x.layout.rank() || x.layout.rank() == 1;
    let (along, count) = match is_shared {
        true => (0, indices.layout.shape[0]),
        false => (at, indices.layout.shape[at]),
    };
    if is_sum(code) && engine.caps().kind == AdapterKind::Cpu && count > LONGEST_RUN_ON_CPU {
        let mut sum = x.clone();
        for start in (0..count).step_by(LONGEST_RUN_ON_CPU) {
            let len = LONGEST_RUN_ON_CPU.min(count - start);
            let indices = indices.narrow(along as isize, start, len)?;
            sum = place(
                &sum,
                at,
                &indices,
                &src.narrow(at as isize, start, len)?,
                code,
            )?;
        }
        return Ok(sum);
    }
    let (keys, order) = sorted(indices, along, false, count)?;
    let (x, src) = (x.contiguous()?, src.contiguous()?);
    let result = Tensor::output(engine, shape, x.dtype)?;
    let elements = result.layout.len();
    let params = Params {
        elements: elements as u32,
        size: shape[at] as u32,
        after: shape[at + 1..].iter().product::<usize>() as u32,
        indices: count as u32,
        x_offset: x.layout.offset as u32,
        s_offset: src.layout.offset as u32,
        shared_indices: u32::from(is_shared),
        sign: u32::from(indices.dtype == DType::I32) << 31,
    };
    let args = [
        arg(&x, false),
        arg(&keys, false),
        arg(&order, false),
        arg(&src, false),
        arg(&result, true),
    ];
    let groups = rows::groups(engine.caps(), (elements as u64).div_ceil(4), 64);
    engine.launch(Launch::new(&SCATTER, code, args, &params, groups))?;
    Ok(result)
}

/// The WGSL of a variant.
fn text(variant: &Variant) -> Cow<'static, str> {
    let settle = if is_sum(variant.code) { "add" } else { "write" };
    let mut out = String::with_capacity(4 << 10);
    // Writing to a String cannot fail.
    let _ = writeln!(out, "alias T = {};", variant.dtypes[0].wgsl());
    push_sections(&mut out, WGSL, &["params", settle]);
    push_functions(&mut out);
    Cow::Owned(out)
}

/// Does the variant add?
pub(super) fn is_sum(code: u64) -> bool {
    code & ADD != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::valid;

    #[test]
    fn every_type_gives_a_valid_shader() {
        for x in DType::ALL {
            for code in [0, ADD] {
                valid(&SCATTER, code, &[x, DType::U32, DType::U32, x, x], 0b10000);
            }
        }
    }
}
