//! Layer and RMS normalization over the last dimensions, and group normalization, which uses them.

pub(super) mod gradient;
#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use super::elementwise::arg;
use super::normalize::{self, Form};
use super::reduce::{Op, fold, mean_and_spread};
use super::rows::{Axes, RowParams, Rows};
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::internal::{Arg, BuiltInKernel, Launch, MadeFor, Operand, Variant};
use lapidary_core::{DType, Error, Result};

const WGSL: &str = include_str!("../../shaders/layer_norm.wgsl");

/// Normalizes whole rows in one launch. A missing weight or bias is replaced by `x`, which is not
/// read.
pub(super) static LAYER_NORM: BuiltInKernel = BuiltInKernel {
    name: "layer_norm",
    operands: &[
        Operand::read("x"),
        Operand::read("w"),
        Operand::read("b"),
        Operand::write("y"),
    ],
    text,
    reference: reference!(reference::run),
};

/// Applies the mean `s` of every row from its first element, and the sum `t` of the squared
/// distances from the mean.
static LAYER_NORM_APPLY: BuiltInKernel = BuiltInKernel {
    name: "layer_norm_apply",
    operands: &[
        Operand::read("x"),
        Operand::read("w"),
        Operand::read("b"),
        Operand::read("s"),
        Operand::read("t"),
        Operand::write("y"),
    ],
    text,
    reference: reference!(reference::apply),
};

/// Bits of a variant's code.
pub(super) const HAS_WEIGHT: u64 = 1 << 8;
pub(super) const HAS_BIAS: u64 = 1 << 9;
/// Weight and bias are read by vec4s, and start at vec4s.
const VEC4S: u64 = 1 << 10;
/// Divides by the root of the mean square.
pub(super) const RMS: u64 = 1 << 11;

/// The name of what a variant computes.
pub(super) fn name_of(code: u64) -> &'static str {
    match code & RMS {
        0 => "layer_norm",
        _ => "rms_norm",
    }
}

impl Tensor {
    /// `(x − mean) / √(variance + eps) · weight + bias` over the last dimensions, as in PyTorch.
    /// `normalized_shape` repeats their sizes. The variance is that of the population.
    ///
    /// Weight and bias have the shape `normalized_shape` and any float type. The statistics are
    /// computed in f32, in two passes from the row's first element, so that a mean far from 0 costs
    /// no precision. Distances from the mean beyond about 1e19 have squares beyond f32: such a row
    /// becomes its bias.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(x: &Tensor, weight: &Tensor, bias: &Tensor) -> lapidary::Result<()> {
    /// let y = x.layer_norm(&[768], Some(weight), Some(bias), 1e-5)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the shape does not end with `normalized_shape`, if that is empty, or if
    /// a weight or bias has another shape. [`Error::DType`] for integers and bools.
    /// [`Error::Foreign`] for tensors of another `Gpu`.
    #[track_caller]
    pub fn layer_norm(
        &self,
        normalized_shape: &[usize],
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f32,
    ) -> Result<Tensor> {
        let _method = MadeFor::method("layer_norm");
        self.normalized(
            "layer_norm",
            normalized_shape,
            [weight, bias],
            eps,
            (0, self.dtype),
        )
    }

    /// `x / √(mean of x² + eps) · weight` over the last dimensions, as in PyTorch.
    /// `normalized_shape` repeats their sizes. The weight is as in
    /// [`layer_norm`](Tensor::layer_norm). Elements beyond about 1e19 have squares beyond f32: such
    /// a row becomes 0.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(x: &Tensor, weight: &Tensor) -> lapidary::Result<()> {
    /// let y = x.rms_norm(&[4096], Some(weight), 1e-6)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`layer_norm`](Tensor::layer_norm).
    #[track_caller]
    pub fn rms_norm(
        &self,
        normalized_shape: &[usize],
        weight: Option<&Tensor>,
        eps: f32,
    ) -> Result<Tensor> {
        let _method = MadeFor::method("rms_norm");
        self.normalized(
            "rms_norm",
            normalized_shape,
            [weight, None],
            eps,
            (RMS, self.dtype),
        )
    }

    /// `(x − mean) / √(variance + eps) · weight + bias` of a tensor `[batch, channels, ..]`, as in
    /// PyTorch. The statistics are over the channels of each of `groups` groups and all dimensions
    /// after them. Weight and bias have one element a channel and any float type. f16 and bf16 are
    /// computed in f32 and rounded once, as in [`layer_norm`](Tensor::layer_norm).
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(image: &Tensor, weight: &Tensor, bias: &Tensor) -> lapidary::Result<()> {
    /// let y = image.group_norm(32, Some(weight), Some(bias), 1e-5)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] for fewer than two dimensions, channels that `groups` does not divide, or a
    /// weight or bias of another shape. [`Error::DType`] for integers and bools. [`Error::Foreign`]
    /// for tensors of another `Gpu`.
    #[track_caller]
    pub fn group_norm(
        &self,
        groups: usize,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f32,
    ) -> Result<Tensor> {
        const OPERATION: &str = "group_norm";
        let _method = MadeFor::method(OPERATION);
        if is_recorded(self, [weight, bias]) {
            let _line = MadeFor::caller();
            return self.group_norm_recorded(OPERATION, groups, [weight, bias], eps);
        }
        normalize::check_float(OPERATION, self)?;
        let shape = &self.layout.shape;
        let (batch, channels) = match shape[..] {
            [batch, channels, ..] if groups > 0 && channels % groups == 0 => (batch, channels),
            _ => {
                return Err(Error::Shape {
                    operation: OPERATION,
                    reason: format!("{groups} groups do not divide the channels of {shape:?}"),
                })
                .located();
            }
        };
        let weight = self.affine(OPERATION, "weight", weight, &[channels])?;
        let bias = self.affine(OPERATION, "bias", bias, &[channels])?;
        let length = channels / groups * shape[2..].iter().product::<usize>();
        let rows = self.reshape(&[batch, groups, length])?;
        let has_more = weight.is_some() || bias.is_some();
        let dtype = if has_more { DType::F32 } else { self.dtype };
        let made = rows.normalized(OPERATION, &[length], [None; 2], eps, (0, dtype))?;
        let mut made = made.reshape(shape)?;
        // One element a channel, in a shape that broadcasts over the following dimensions.
        let mut one_each: Vec<usize> = vec![1; shape.len() - 1];
        one_each[0] = channels;
        if let Some(weight) = weight {
            made = made.mul(&weight.cast(dtype)?.reshape(&one_each)?)?;
        }
        if let Some(bias) = bias {
            made = made.add(&bias.cast(dtype)?.reshape(&one_each)?)?;
        }
        match dtype == self.dtype {
            true => Ok(made),
            false => made.cast(self.dtype),
        }
    }

    /// Normalizes by `kind`, 0 or `RMS`, with a weight and a bias, to the result's type.
    #[track_caller]
    fn normalized(
        &self,
        operation: &'static str,
        normalized_shape: &[usize],
        [weight, bias]: [Option<&Tensor>; 2],
        eps: f32,
        (kind, dtype): (u64, DType),
    ) -> Result<Tensor> {
        if is_recorded(self, [weight, bias]) {
            let (affine, kind) = ([weight, bias], (kind, dtype));
            let _line = MadeFor::caller();
            return self.normalized_recorded(operation, normalized_shape, affine, eps, kind);
        }
        normalize::check_float(operation, self)?;
        let shape = &self.layout.shape;
        if normalized_shape.is_empty() || !shape.ends_with(normalized_shape) {
            return Err(Error::Shape {
                operation,
                reason: format!("shape {shape:?} does not end in {normalized_shape:?}"),
            })
            .located();
        }
        let weight = self.affine(operation, "weight", weight, normalized_shape)?;
        let bias = self.affine(operation, "bias", bias, normalized_shape)?;
        let rank = shape.len();
        let folded = Axes::from(rank - normalized_shape.len(), rank);
        let rows = Rows::new(&self.layout, folded, false);
        let affine = Affine {
            kind,
            dtype,
            weight,
            bias,
            eps,
        };
        let rows = rows.as_ref();
        let form = Form::choose(self, dtype, rows);
        normalize_as(self, folded, rows, form, &affine)
    }

    /// A weight or bias, checked and contiguous.
    #[track_caller]
    fn affine(
        &self,
        operation: &'static str,
        name: &str,
        given: Option<&Tensor>,
        wanted: &[usize],
    ) -> Result<Option<Tensor>> {
        let Some(given) = given else { return Ok(None) };
        self.same_engine(operation, given)?;
        normalize::check_float(operation, given)?;
        if given.layout.shape[..] != *wanted {
            return Err(Error::Shape {
                operation,
                reason: format!(
                    "the {name} has shape {:?}, not {wanted:?}",
                    given.layout.shape
                ),
            })
            .located();
        }
        match given.layout.is_contiguous() {
            true => Ok(Some(given.clone())),
            false => given.contiguous().map(Some),
        }
    }
}

/// Is a normalization with this weight and bias recorded?
fn is_recorded(x: &Tensor, affine: [Option<&Tensor>; 2]) -> bool {
    x.is_tracked() || affine.into_iter().flatten().any(Tensor::is_tracked)
}

/// The steps after the normalization.
#[derive(Debug)]
pub(super) struct Affine {
    /// 0, or [`RMS`].
    pub(super) kind: u64,
    /// The type of the result.
    pub(super) dtype: DType,
    pub(super) weight: Option<Tensor>,
    pub(super) bias: Option<Tensor>,
    pub(super) eps: f32,
}

impl Affine {
    /// Completes the parameters and the code, and returns the operands.
    fn bind(&self, x: &Arg, fused: bool, params: &mut RowParams, code: &mut u64) -> [Arg; 2] {
        let given = [&self.weight, &self.bias];
        let offset =
            |tensor: &Option<Tensor>| tensor.as_ref().map_or(0, |t| t.layout.offset as u32);
        let vec4s = fused && given.iter().all(|tensor| offset(tensor) % 4 == 0);
        *code |= self.kind | if vec4s { VEC4S } else { 0 };
        *code |= if self.weight.is_some() { HAS_WEIGHT } else { 0 };
        *code |= if self.bias.is_some() { HAS_BIAS } else { 0 };
        params.scalar = self.eps;
        params.second = offset(&self.weight);
        params.third = offset(&self.bias);
        given.map(|tensor| match tensor {
            Some(tensor) => arg(tensor, vec4s),
            None => x.clone(),
        })
    }
}

/// Normalizes by a form that suits the rows.
#[track_caller]
pub(super) fn normalize_as(
    x: &Tensor,
    folded: Axes,
    rows: Option<&Rows>,
    form: Form,
    affine: &Affine,
) -> Result<Tensor> {
    let engine = &x.engine;
    let elements = x.layout.len();
    let result = Tensor::output(engine, &x.layout.shape, affine.dtype)?;
    if elements == 0 {
        return Ok(result);
    }
    if let (Some(rows), false) = (rows, form.applies()) {
        let mut params = rows.params();
        let mut code = normalize::code_of(form, rows);
        let are_vec4s = rows.are_vec4s();
        let read = arg(x, are_vec4s);
        let [w, b] = affine.bind(&read, are_vec4s, &mut params, &mut code);
        let args = [read, w, b, arg(&result, are_vec4s)];
        let groups = form.groups(x, &params);
        engine.launch(Launch::new(&LAYER_NORM, code, args, &params, groups))?;
        return Ok(result);
    }
    let copy;
    let x = match x.layout.is_contiguous() {
        true => x,
        false => {
            copy = x.contiguous()?;
            &copy
        }
    };
    let form = Form::applied_to(x);
    let [s, t] = match affine.kind {
        RMS => {
            let t = fold(x, None, Op::SUM_SQUARES, folded, DType::F32)?;
            // RMS normalization has no `s`, and the kernel does not read its replacement.
            [t.clone(), t]
        }
        _ => mean_and_spread(x, Op::SUM_DISTANCES, folded, DType::F32)?,
    };
    let length = folded.length(&x.layout.shape);
    let mut params = normalize::apply_params(x, length, 1);
    let mut code = normalize::apply_code(form, &params);
    let read = arg(x, form == Form::ApplyVec4s);
    let [w, b] = affine.bind(&read, false, &mut params, &mut code);
    let args = [
        read,
        w,
        b,
        arg(&s, false),
        arg(&t, false),
        arg(&result, true),
    ];
    let groups = form.groups(x, &params);
    engine.launch(Launch::new(&LAYER_NORM_APPLY, code, args, &params, groups))?;
    Ok(result)
}

/// The WGSL of a variant.
fn text(variant: &Variant) -> Cow<'static, str> {
    let has = |bit| variant.code & bit != 0;
    let weight = match (has(HAS_WEIGHT), has(VEC4S)) {
        (false, _) => "weight_none",
        (true, true) => "weight_vec4s",
        (true, false) => "weight_apart",
    };
    let bias = match (has(HAS_BIAS), has(VEC4S)) {
        (false, _) => "bias_none",
        (true, true) => "bias_vec4s",
        (true, false) => "bias_apart",
    };
    let (origin, stats, finish) = match has(RMS) {
        true => ("from_zero", "stats_rms", "finish_rms"),
        false => ("from_first", "stats", "finish"),
    };
    let text = normalize::text(variant, origin);
    text.sections(WGSL, &[stats, finish, weight, bias]).done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::valid;

    #[test]
    fn every_form_gives_a_valid_shader() {
        let both = HAS_WEIGHT | HAS_BIAS;
        let affine = [0, HAS_WEIGHT, HAS_BIAS, both, RMS, RMS | HAS_WEIGHT];
        for x in [DType::F32, DType::F16] {
            for form in Form::ALL {
                for bits in affine.iter().flat_map(|bits| [*bits, bits | VEC4S]) {
                    let code = 0x12 | bits | (form as u64) << 12;
                    for w in [DType::F32, DType::F16] {
                        // The result may be wider than `x`, if more operations follow.
                        for y in [x, DType::F32] {
                            match form.applies() {
                                true => {
                                    let dtypes = [x, w, w, DType::F32, DType::F32, y];
                                    valid(&LAYER_NORM_APPLY, code, &dtypes, 0b100001);
                                }
                                false => {
                                    valid(&LAYER_NORM, code, &[x, w, w, y], 0b1111);
                                    if y == DType::F32 && bits & VEC4S == 0 {
                                        let ragged = code | normalize::RAGGED;
                                        valid(&LAYER_NORM, ragged, &[x, w, w, y], 0);
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
