//! Scaled dot-product attention. Shapes and types are checked here. `problem` puts the operands
//! into the kernel's terms, `form` picks the variant, `emit` writes its text.
//!
//! | variant | what it does | for |
//! | --- | --- | --- |
//! | register | an invocation takes up to four rows of queries; keys and values are broadcast within the subgroup | software adapters |
//! | register, no lanes | the same without broadcasts | no subgroups of known size |
//! | workgroup | 128 invocations take 32 rows, with tiles of keys in workgroup memory | GPUs |
//! | `blocks` | matmul and softmax, for a block of queries at a time | one query, and sums too long for one invocation of a software adapter |
//!
//! No kernel stores the scores. They keep only the running maximum and sum of the online softmax
//! (M. Milakov and N. Gimelshein, 2018; T. Dao et al., *FlashAttention*, 2022).

mod blocks;
mod causal;
mod emit;
mod form;
mod gradient;
mod grouped;
mod long;
mod problem;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use super::elementwise::arg;
use super::normalize::check_float;
use super::operation::same_dtype;
use crate::tensor::Tensor;
use crate::tensor::layout::{Dims, Layout};
pub use causal::Causal;
use form::{Form, Tile};
use lapidary_core::internal::{Kernel, Launch, Operand, Variant};
use lapidary_core::{DType, Error, Result};
use problem::{Problem, Shapes};

#[cfg(any(test, feature = "sim"))]
pub(super) use form::{has_mask, is_causal};
#[cfg(any(test, feature = "sim"))]
pub(super) use problem::Params;

const OPERATION: &str = "scaled_dot_product_attention";

/// Without a mask, `q` is bound in its place and not read.
static ATTENTION: Kernel = Kernel {
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

impl Tensor {
    /// `softmax(q · kᵀ · scale + mask) · v` of the queries `self`, as in PyTorch, in one kernel
    /// that never stores the scores. Beside the operands and the result, no memory grows with the
    /// number of queries times the number of keys. A backward computes the weights again, for
    /// blocks of queries whose scores take at most 64 MiB.
    ///
    /// Queries are `[…, heads, queries, size]`, keys `[…, heads, keys, size]`, values
    /// `[…, heads, keys, columns]`, all of one float type. The result is
    /// `[…, heads, queries, columns]` of that type. Sums are in f32. Any view, any size and any
    /// rank from 2 on is allowed; a size that is no multiple of 4 is padded by a copy. Dimensions
    /// before the heads broadcast. Keys and values may have fewer heads, if their number divides
    /// that of the queries. Each then serves a group of neighbouring heads of queries.
    ///
    /// - `mask` broadcasts to `[…, heads, queries, keys]`. Bools say which keys take part; floats
    ///   are added to the scaled scores.
    /// - `causal` hides later keys, also in addition to a mask. `false` hides none. `true` is
    ///   [`Causal::FirstKey`], as PyTorch's `is_causal`: query `i` sees the keys up to `i`. If the
    ///   keys are a cache that ends with those of the queries, use [`Causal::LastKey`].
    /// - `scale` is 1/√size unless given.
    ///
    /// A query that sees no key gives zeros, as in PyTorch from 2.5 on (before, NaN).
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(q: &Tensor, k: &Tensor, v: &Tensor) -> lapidary::Result<()> {
    /// use lapidary::operations::Causal;
    ///
    /// // q: [batch, 8, 512, 64], k and v: [batch, 2, 512, 64]
    /// let y = q.scaled_dot_product_attention(k, v, None, true, None)?;
    /// // The last three queries beside a cache of all keys.
    /// let late = q.narrow(-2, 509, 3)?;
    /// let y = late.scaled_dot_product_attention(k, v, None, Causal::LastKey, None)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the shapes do not match. [`Error::DType`] for integers and bools, for
    /// keys and values of another type than the queries, and for a mask of integers.
    /// [`Error::Foreign`] for tensors of another `Gpu`.
    #[track_caller]
    pub fn scaled_dot_product_attention(
        &self,
        key: &Tensor,
        value: &Tensor,
        mask: Option<&Tensor>,
        causal: impl Into<Causal>,
        scale: Option<f32>,
    ) -> Result<Tensor> {
        let call = Call {
            q: self,
            k: key,
            v: value,
            mask,
            is_causal: false,
            first: 0,
            scale,
        };
        match call.is_tracked() {
            true => call.recorded(causal.into(), gradient::BLOCK_BYTES),
            false => call.run_causal(causal.into()),
        }
    }
}

/// The arguments of a call.
#[derive(Clone, Copy)]
struct Call<'a> {
    q: &'a Tensor,
    k: &'a Tensor,
    v: &'a Tensor,
    mask: Option<&'a Tensor>,
    is_causal: bool,
    /// The first query's position, if this is a part of a longer call.
    first: usize,
    scale: Option<f32>,
}

impl Call<'_> {
    /// Runs the call by this variant, or by the best one.
    #[track_caller]
    fn run(&self, tile: Option<Tile>) -> Result<Tensor> {
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
        engine.pads(&padded.storage, columns, padded_shape[last]);
        if shapes.keys == 0 {
            engine.clear(&padded.storage)?;
        } else if !padded.is_empty() {
            let operands = [prepared(self.q)?, prepared(self.k)?, prepared(self.v)?];
            let scale = self.scale.unwrap_or(1.0 / (shapes.size as f32).sqrt());
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

    /// Copies the operands so that they have few batch dimensions.
    #[track_caller]
    fn regular(&self, shapes: &Shapes) -> Result<Regular> {
        let outer = |tensor: &Tensor| {
            let rank = tensor.rank();
            let own = tensor.layout.shape[rank.saturating_sub(3)..]
                .iter()
                .copied();
            let missing = std::iter::repeat_n(1, 3_usize.saturating_sub(rank));
            let shape: Dims = shapes
                .outer
                .iter()
                .copied()
                .chain(missing)
                .chain(own)
                .collect();
            tensor.broadcast_to(&shape)?.contiguous()
        };
        Ok(Regular {
            q: outer(self.q)?,
            k: outer(self.k)?,
            v: outer(self.v)?,
            mask: self.mask.map(outer).transpose()?,
        })
    }

    fn check_types(&self) -> Result<()> {
        check_float(OPERATION, self.q)?;
        for other in [self.k, self.v] {
            self.q.same_engine(OPERATION, other)?;
            same_dtype(OPERATION, self.q.dtype, other.dtype)?;
        }
        let Some(mask) = self.mask else { return Ok(()) };
        self.q.same_engine(OPERATION, mask)?;
        match mask.dtype == DType::Bool || mask.dtype.is_float() {
            true => Ok(()),
            false => Err(Error::DType {
                operation: OPERATION,
                expected: "a mask of bool, f32, f16 or bf16".into(),
                got: mask.dtype,
                hint: "Cast it to bool",
            }),
        }
    }
}

/// Copied operands of a call.
struct Regular {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Option<Tensor>,
}

impl Regular {
    fn call<'a>(&'a self, given: &Call<'_>) -> Call<'a> {
        Call {
            q: &self.q,
            k: &self.k,
            v: &self.v,
            mask: self.mask.as_ref(),
            is_causal: given.is_causal,
            first: given.first,
            scale: given.scale,
        }
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
    x.engine.clear(&padded.storage)?;
    padded.narrow(-1, 0, shape[last])?.copy_(x)?;
    Ok(padded)
}
