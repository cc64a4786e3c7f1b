//! Copies from one view to another: `contiguous`, `cast`, `reshape`, `copy_`.
//!
//! | kernel | from | to |
//! | --- | --- | --- |
//! | `COPY` | any view | a new tensor, or a part of a storage that is row-major and starts at a vec4 |
//! | `TRANSPOSE` | a view whose columns are contiguous | a new tensor |
//! | `SCATTER` | any view | a view with gaps, flips, any order of axes |
//!
//! Every kernel writes whole vec4s of one storage, each in one invocation. So in-place operations
//! on views that are not row-major compute a new tensor first and scatter it.

mod plan;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

pub(crate) use plan::{Block, Scatter, Transpose, TransposeForm};

use super::elementwise::element::Element;
use super::elementwise::{
    self, Call, Input, arg, do_fit, groups, halves, head, is_wide, launch_of, ranges, within,
};
use super::functions::push_functions;
use super::operation::same_dtype;
use super::skeleton::Skeleton;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::history::grads;
use crate::tensor::layout::checked;
use lapidary_core::internal::sections::section_for;
use lapidary_core::internal::{BuiltInKernel, Launch, MadeFor, Operand, Ranges, Variant};
use lapidary_core::{DType, Error, Result};

const WGSL: &str = include_str!("../../shaders/copy.wgsl");

macro_rules! kernels {
    ($($(#[$doc:meta])* $kernel:ident $name:literal $y:ident $text:ident $reference:ident;)*) => {$(
        $(#[$doc])*
        pub(super) static $kernel: BuiltInKernel = BuiltInKernel {
            name: $name,
            operands: &[Operand::read("x"), Operand::$y("y")],
            text: $text,
            reference: reference!(reference::$reference),
        };
    )*};
}

kernels! {
    /// `y = x`, converted if the types differ.
    COPY "copy" write copy_text copy;
    /// The same, but `y` is a part of its storage.
    COPY_INTO "copy_into" update copy_text copy;
    /// `y = x`, where `x` is contiguous along the last axis but one.
    TRANSPOSE "transpose" write transpose_text transpose;
    /// `y = x` through a view with gaps.
    SCATTER "scatter" update scatter_text scatter;
}

pub(super) static ELEMENT: Element = Element {
    fresh: &COPY,
    into: &COPY_INTO,
    names: &["x"],
    main: 0,
    file: WGSL,
    section: conversion,
};

/// The section that converts the elements.
fn conversion(variant: &Variant) -> &'static str {
    let (from, to) = (variant.dtypes[0], variant.dtypes[1]);
    match (from, to) {
        _ if from == to => "same",
        (_, DType::Bool) => "to_bool",
        (_, DType::I32) if from.is_float() => "to_i32",
        (_, DType::U32) if from.is_float() => "to_u32",
        (_, DType::U8) if from.is_float() => "to_u8",
        (_, DType::I8) if from.is_float() => "to_i8",
        // The store narrows types of less than a word.
        _ if from.wgsl() == to.wgsl() => "same",
        _ => "convert",
    }
}

fn copy_text(variant: &Variant) -> Cow<'static, str> {
    elementwise::text(variant, &ELEMENT)
}

/// Parameters, aliases and `op`.
fn prelude(variant: &Variant, words: usize) -> String {
    let mut out = String::with_capacity(4 << 10);
    head(&mut out, words, variant.dtypes[0], variant.dtypes[1]);
    let kind = variant.dtypes[0].wgsl();
    out.push_str(section_for(WGSL, conversion(variant), kind));
    push_functions(&mut out);
    out
}

fn transpose_text(variant: &Variant) -> Cow<'static, str> {
    let form = TransposeForm::unpack(variant.code);
    let TransposeForm {
        rank,
        width_log2,
        height_log2,
        is_grid,
        block,
    } = form;
    let mut out = prelude(variant, Transpose::words_of(rank));
    let map = [Transpose::MAP, Transpose::MAP + rank].map(|word| word as u32);
    let batch_at = Skeleton::new(section_for(WGSL, "batch_at", ""));
    let numbers = [("rank", rank as u32), ("dims", map[0]), ("strides", map[1])];
    out.push_str(&batch_at.numbers(numbers).fill());
    let block = match block {
        Block::Vec4s => "transpose_vec4s",
        Block::Words => "transpose_words",
        Block::Ragged => "transpose_ragged",
    };
    out.push_str(section_for(WGSL, block, ""));
    // Eight lanes take two blocks side by side and four below each other, if the tile is large
    // enough.
    let beside_log2 = 1_u32.clamp(3_u32.saturating_sub(height_log2), width_log2.min(3));
    let numbers = [
        ("width", 1 << width_log2),
        ("height", 1 << height_log2),
        ("beside", 1 << beside_log2),
        ("eighths", 1 << (width_log2 - beside_log2)),
        ("below", 8 >> beside_log2),
        ("lanes", 1 << (width_log2 + height_log2)),
    ];
    let filled = |section: &str, place: &str| {
        let skeleton = Skeleton::new(section_for(WGSL, section, ""));
        skeleton.numbers(numbers).with("place", place).fill()
    };
    let place = if is_grid {
        "tile_of_grid"
    } else {
        "tile_of_count"
    };
    out.push_str(&filled("transpose", &filled(place, "")));
    Cow::Owned(out)
}

fn scatter_text(variant: &Variant) -> Cow<'static, str> {
    let (rank, outer) = Scatter::ranks_of(variant.code);
    let mut out = prelude(variant, Scatter::words_of(rank));
    let map = [0, 1, 2].map(|list| (Scatter::MAP + list * rank) as u32);
    let skeleton = Skeleton::new(section_for(WGSL, "rows_and_elements", "")).numbers([
        ("rank", rank as u32),
        ("outer", outer as u32),
        ("dims", map[0]),
        ("to", map[1]),
        ("from", map[2]),
    ]);
    out.push_str(&skeleton.fill());
    out.push_str(section_for(WGSL, "scatter", ""));
    Cow::Owned(out)
}

impl Tensor {
    /// The same elements, row-major without gaps. Returns `self` if it is so already, else a copy.
    ///
    /// # Errors
    ///
    /// Those of creating a tensor.
    #[track_caller]
    pub fn contiguous(&self) -> Result<Tensor> {
        let _method = MadeFor::method("contiguous");
        match self.layout.is_contiguous() {
            true => Ok(self.clone()),
            false => self.copied(self.dtype),
        }
    }

    /// The same elements, row-major from a multiple of four elements of the storage on. Returns
    /// `self` if it is so already, else a copy.
    #[track_caller]
    pub(super) fn at_a_vec4(&self) -> Result<Tensor> {
        match self.layout.is_contiguous() && self.layout.offset.is_multiple_of(4) {
            true => Ok(self.clone()),
            false => self.copy(),
        }
    }

    /// A copy with its own storage, row-major.
    ///
    /// # Errors
    ///
    /// Those of creating a tensor.
    #[track_caller]
    pub fn copy(&self) -> Result<Tensor> {
        let _method = MadeFor::method("copy");
        self.copied(self.dtype)
    }

    /// Converts the elements by the rules of Rust's `as`. Floats are truncated towards 0 and
    /// clamped to the integer's range; NaN becomes 0. Integers wrap. f16 and bf16 are rounded to
    /// the nearest. All values except 0 become true. Returns `self` if it has the type already.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let half = x.cast(lapidary::DType::F16)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of creating a tensor.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        let _method = MadeFor::method("cast");
        match self.dtype == dtype {
            true => Ok(self.clone()),
            false => self.copied(dtype),
        }
    }

    /// Writes the elements of `src` through `self`. `src` broadcasts to the shape of `self`.
    ///
    /// ```
    /// # fn demo(cache: &lapidary::Tensor, keys: &lapidary::Tensor) -> lapidary::Result<()> {
    /// cache.narrow(0, 7, 1)?.copy_(keys)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] if the types differ. [`Error::Shape`] if `src` does not broadcast, or if
    /// several indices of `self` name one element. [`Error::Foreign`].
    #[track_caller]
    pub fn copy_(&self, src: &Tensor) -> Result<()> {
        const OPERATION: &str = "copy_";
        let _method = MadeFor::method(OPERATION);
        self.same_engine(OPERATION, src)?;
        same_dtype(OPERATION, self.dtype, src.dtype)?;
        self.check_writable(OPERATION)?;
        let view = (src.layout.broadcast_to(&self.layout.shape)).called(OPERATION)?;
        if self.records_write(&[src]) {
            return self.assign(OPERATION, src);
        }
        if self.layout.len() == 0 {
            return Ok(());
        }
        let copy;
        let src = match self.shares_storage_with(src) {
            true if view.same_map(&self.layout) => return Ok(()),
            true => {
                copy = src.copied(src.dtype)?;
                &copy
            }
            false => src,
        };
        if !self.layout.is_vec4_aligned() {
            return self.copy_through(src);
        }
        let inputs = [Input::Tensor(src)];
        ELEMENT.call(0, &inputs, &[]).write_to(self)
    }

    /// Returns an error if several indices of the view name one element.
    #[track_caller]
    pub(super) fn check_writable(&self, operation: &'static str) -> Result<()> {
        match self.layout.has_overlap() {
            false => Ok(()),
            true => Err(Error::Shape {
                operation,
                reason: format!(
                    "a view by broadcast or unfold (shape {:?}, strides {:?}) cannot be written \
                     through: several indices name one element. Use `copy` first",
                    self.layout.shape, self.layout.strides
                ),
            })
            .located(),
        }
    }

    /// A new row-major tensor with these elements.
    #[track_caller]
    fn copied(&self, dtype: DType) -> Result<Tensor> {
        let shape = &self.layout.shape;
        let (_, bytes) = checked(shape, dtype)?;
        if self.is_tracked() && dtype.is_float() {
            let (copy, from) = (self.untracked().copied(dtype)?, self.dtype);
            return Ok(copy.recorded_as(
                "copy",
                &[self],
                &[],
                move |b| grads![b; b.grad.cast(from)?],
            ));
        }
        let plan = match is_wide(&self.engine, [self].into_iter(), bytes) {
            true => None,
            false => Transpose::new(&self.layout, self.dtype, self.engine.caps()),
        };
        let Some(plan) = plan else {
            let inputs = [Input::Tensor(self)];
            let call = ELEMENT.call(0, &inputs, &[]);
            return call.output(&self.engine, shape, dtype);
        };
        let out = Tensor::output(&self.engine, shape, dtype)?;
        let args = [arg(self, plan.form.block == Block::Vec4s), arg(&out, true)];
        let (code, groups) = (plan.form.pack(), plan.groups(self.engine.caps()));
        let launch = launch_of(&TRANSPOSE, code, args, &plan.words, groups);
        self.engine.launch(launch)?;
        Ok(out)
    }

    /// Writes `src` through any view. `src` must have another storage.
    #[track_caller]
    fn copy_through(&self, src: &Tensor) -> Result<()> {
        let src = src.view(src.layout.broadcast_to(&self.layout.shape)?);
        match is_wide(&self.engine, [&src, self].into_iter(), 0) {
            false => self.launch_scatter(&src, Ranges::new()),
            true => self.scatter_part(&src),
        }
    }

    /// As `copy_through`, in as few launches as possible. Both tensors have one shape.
    #[track_caller]
    fn scatter_part(&self, src: &Tensor) -> Result<()> {
        let operands = [src, self];
        let shown = ranges(&self.engine, &operands);
        if !do_fit(&self.engine, &operands, &shown) {
            if let Some(halves) = halves(&operands) {
                return halves
                    .iter()
                    .try_for_each(|half| half[1].scatter_part(&half[0]));
            }
        }
        let (src, to) = (within(src, shown[0]), within(self, shown[1]));
        to.launch_scatter(&src, shown)
    }

    /// Both tensors have one shape. Their offsets count from the starts of `ranges`.
    #[track_caller]
    fn launch_scatter(&self, src: &Tensor, ranges: Ranges) -> Result<()> {
        let plan = Scatter::new(&self.layout, &src.layout).ok_or_else(|| Error::Shape {
            operation: "copy_",
            reason: format!(
                "a view of shape {:?} and strides {:?} may name one element twice",
                self.layout.shape, self.layout.strides
            ),
        })?;
        let args = [arg(src, false), arg(self, true)];
        let groups = groups(self.engine.caps(), u64::from(plan.words[0]));
        self.engine.launch(Launch {
            ranges,
            ..launch_of(&SCATTER, plan.code, args, &plan.words, groups)
        })
    }

    /// Runs a call whose first input is `self`, and writes the result through `self`.
    #[track_caller]
    pub(super) fn write_through(&self, operation: &'static str, call: &Call<'_>) -> Result<()> {
        self.check_writable(operation)?;
        // The kernel must not read the same storage through another view while it writes.
        let is_apart = |input: &Input<'_>| match input {
            Input::Scalar => true,
            Input::Tensor(tensor) => {
                !tensor.shares_storage_with(self) || tensor.layout.same_map(&self.layout)
            }
        };
        if self.layout.is_vec4_aligned() && call.inputs.iter().all(is_apart) {
            return call.write_to(self);
        }
        let made = call.output(&self.engine, &self.layout.shape, self.dtype)?;
        self.copy_(&made)
    }
}
