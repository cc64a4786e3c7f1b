//! Weights of eight bits: quantization, dequantization, and products with them. The kernels are
//! those of matmul, which widens and scales the weights as it loads them.

mod gradient;

use crate::ops::matmul::{Epilogue, Groups, Right};
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::internal::MadeFor;
use lapidary_core::{DType, Error, Result};
use quantizing::checked_group;

/// The largest value. The range is symmetric, so -128 is not used.
const MOST: f32 = 127.0;

/// Most bytes of weights that are there in f32 at a time.
pub(super) const MOST_WIDE_BYTES: usize = 64 << 20;

/// Groups have 2³ to 2¹² elements.
const GROUPS_LOG2: std::ops::RangeInclusive<u8> = 3..=12;

/// A matrix of weights in eight bits, with a scale for each row or for each group of a row. An
/// element is its value times its scale.
///
/// It is a plain pair of tensors, which can be named, written to files, backed by them and evicted
/// like any other. [`Tensor::quantize`] creates one. A pair from elsewhere can be put into this
/// struct as it is. The format is symmetric (without a zero point), as ggml's `Q8_0` and PyTorch's
/// `per_channel_symmetric`.
///
/// | | bytes of an element |
/// | --- | --- |
/// | f32 | 4 |
/// | f16, bf16 | 2 |
/// | a scale a row | 1, and 4 a row |
/// | a scale for 128, 64, 32 | 1.03, 1.06, 1.13 |
///
/// ```no_run
/// use lapidary::{DType, Gpu, Options, operations::{Activation, Epilogue}};
///
/// let gpu = Gpu::open(Options::default())?;
/// let weight = gpu.rand_normal(&[1536, 384], 0.0, 0.02, 1, DType::F32)?;
/// let bias = gpu.zeros(&[1536], DType::F32)?;
/// let x = gpu.rand_normal(&[8, 384], 0.0, 1.0, 2, DType::F32)?;
///
/// let small = weight.quantize(Some(64))?;
/// drop(weight); // What is kept is 27 % of it.
/// let end = Epilogue::new().bias(&bias).activation(Activation::Gelu);
/// let y = x.matmul_quantized_with(&small, &end)?;
/// assert_eq!(y.shape(), [8, 1536]);
/// # Ok::<(), lapidary::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Quantized {
    /// `[n, k]` of i8: a row for each output, as in a linear layer.
    pub values: Tensor,
    /// `[n]` of f32; or `[n, ⌈k / group⌉]`. The group is a power of two from 8 to 4096, and the
    /// last one of a row may be shorter.
    pub scales: Tensor,
}

impl Tensor {
    /// Quantizes a matrix of weights, `[n, k]` of any float type, to eight bits. Each row has a
    /// scale, or each `group` elements of a row.
    ///
    /// The scale is the largest absolute value divided by 127. A value is the nearest whole number
    /// of scales, ties to even. A group of zeros, or of nothing larger than 1.5e-36, gets the scale
    /// 0. A group with a NaN or an infinity gets a scale that is not finite, so all of it
    /// dequantizes to NaN.
    ///
    /// With fusion, a matrix of f32 whose rows the groups divide needs no memory beside the result.
    /// Otherwise the rest of each row is computed apart and joined, so both are there twice for a
    /// moment. Dropping the matrix saves the memory. So quantize a model one matrix at a time, as
    /// it is loaded. No gradient passes through a quantization.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] unless it is a matrix. [`Error::DType`] for integers and bools.
    /// [`Error::Option`] for a group that is not a power of two from 8 to 4096. Those of any
    /// operation.
    #[track_caller]
    pub fn quantize(&self, group: Option<u64>) -> Result<Quantized> {
        const OPERATION: &str = "quantize";
        let _method = MadeFor::method(OPERATION);
        let [n, k] = check_matrix(OPERATION, self).located()?;
        let group_len = group.map(checked_group).transpose()?.unwrap_or(k);
        if k == 0 {
            let shape = [n, 0];
            let scales = Tensor::output(
                &self.engine,
                &shape[..1 + usize::from(group.is_some())],
                DType::F32,
            )?;
            scales.clear_storage()?;
            return Ok(Quantized {
                values: self.cast(DType::I8)?,
                scales,
            });
        }
        let plain = self.untracked();
        let mut values = Vec::new();
        let mut scales = Vec::new();
        for piece in pieces(k, group_len) {
            let (of_piece, of_groups) = piece
                .groups_of(&plain)?
                .cast(DType::F32)?
                .quantize_groups()?;
            values.push(of_piece.reshape(&[n, piece.len()])?);
            scales.push(of_groups);
        }
        let scales = joined(&scales)?;
        Ok(Quantized {
            values: joined(&values)?,
            scales: match group {
                Some(_) => scales,
                None => scales.reshape(&[n])?,
            },
        })
    }

    /// Quantizes `[n, groups, len]` of f32 to values and scales `[n, groups]`.
    #[track_caller]
    fn quantize_groups(&self) -> Result<(Tensor, Tensor)> {
        let largest = self.abs()?.max_keepdim(&[2])?;
        let is_tiny = largest.lt(MOST * f32::MIN_POSITIVE)?;
        let scales = largest.div(MOST)?.masked_fill(&is_tiny, 0.0)?;
        let divisor = scales.masked_fill(&is_tiny, 1.0)?;
        let values = self.div(&divisor)?.round()?.cast(DType::I8)?;
        let scales = scales.reshape(&self.shape()[..2])?;
        Ok((values, scales))
    }

    /// A linear layer with weights of eight bits: `self`, `[…, k]` of floats, times the transposed
    /// weights, `[n, k]`. The result is `[…, n]`, of the type of `self`.
    ///
    /// The kernel widens and scales weights as it loads them, so they are never stored in a wider
    /// type. Sums are in f32. Large products may use a packed copy of the weights, which is also
    /// eight bits wide.
    ///
    /// `self` has a gradient, and so have scales that are parameters; the values have none. With
    /// several scales a row, a backward stores up to 64 MiB of the weights in f32.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] for weights whose tensors do not match each other or `self`.
    /// [`Error::DType`] for values that are not i8, scales that are not f32, and a `self` that is
    /// not a float. [`Error::Foreign`]. Those of [`matmul`](Tensor::matmul).
    #[track_caller]
    pub fn matmul_quantized(&self, weights: &Quantized) -> Result<Tensor> {
        let _method = MadeFor::method("matmul_quantized");
        self.quantized_product(weights, &Epilogue::new())
            .called(OPERATION)
    }

    /// [`matmul_quantized`](Tensor::matmul_quantized) with an epilogue.
    ///
    /// # Errors
    ///
    /// Those of [`matmul_quantized`](Tensor::matmul_quantized) and of
    /// [`matmul_with`](Tensor::matmul_with).
    #[track_caller]
    pub fn matmul_quantized_with(&self, weights: &Quantized, end: &Epilogue) -> Result<Tensor> {
        let _method = MadeFor::method("matmul_quantized_with");
        (self.quantized_product(weights, end)).called("matmul_quantized_with")
    }

    #[track_caller]
    fn quantized_product(&self, weights: &Quantized, end: &Epilogue) -> Result<Tensor> {
        let group = weights.check(OPERATION)?;
        let Quantized { values, scales } = weights;
        self.same_engine(OPERATION, values)?;
        let [n, k] = [values.shape()[0], values.shape()[1]];
        check_last(OPERATION, self, [n, k]).located()?;
        if weights.scales.is_tracked() {
            let wide = weights.dequantize()?.cast(self.dtype)?;
            return self.matmul_with(&wide.t()?, end);
        }
        if k == 0 {
            return self.matmul_with(&values.t()?, end);
        }
        if self.is_tracked() || end.is_tracked() {
            return self.quantized_recorded(weights, end);
        }
        let is_by_rows = k < 2 || values.layout.strides[1] == 1;
        let values = match (group, is_by_rows) {
            (Some(_), false) => values.contiguous()?,
            _ => values.clone(),
        };
        let transposed = values.t()?;
        let Some(log2) = group else {
            let scales = scales.reshape(&[n])?;
            return self.matmul_with(&transposed, &end.clone().and_scale_columns(&scales)?);
        };
        let groups = Some(Groups { scales, log2 });
        self.matmul_by_right(Right::grouped(&transposed, groups), end)
    }
}

const OPERATION: &str = "matmul_quantized";

/// Refuses an operand whose last dimension is not that of the weights.
pub(super) fn check_last(operation: &'static str, x: &Tensor, [n, k]: [usize; 2]) -> Result<()> {
    match x.shape().last() == Some(&k) {
        true => Ok(()),
        false => Err(Error::Shape {
            operation,
            reason: format!(
                "{:?} by weights of [{n}, {k}]: the last dimension has to be {k}",
                x.shape()
            ),
        }),
    }
}

/// The shape of a matrix of floats; an error for anything else.
pub(super) fn check_matrix(operation: &'static str, x: &Tensor) -> Result<[usize; 2]> {
    if !x.dtype.is_float() {
        return Err(Error::DType {
            operation,
            expected: "a float".into(),
            got: x.dtype,
            hint: "Weights that are i8 and have scales: create a `Quantized` of both",
            at: String::new(),
        });
    }
    x.shape().try_into().map_err(|_| Error::Shape {
        operation,
        reason: format!("a tensor of {:?}: it is a matrix, [n, k]", x.shape()),
    })
}

impl Quantized {
    /// Converts the weights to `[n, k]` of f32, which takes four times the memory.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] and [`Error::DType`] for tensors that do not match; those of any operation.
    #[track_caller]
    pub fn dequantize(&self) -> Result<Tensor> {
        let _method = MadeFor::method("dequantize");
        let group = self.check("dequantize")?;
        let [n, k] = [self.values.shape()[0], self.values.shape()[1]];
        if k == 0 {
            let wide = self.values.cast(DType::F32)?;
            return match self.scales.len() == n {
                true => wide.mul(&self.scales.reshape(&[n, 1])?),
                false => Ok(wide),
            };
        }
        let scales = match group {
            Some(_) => self.scales.clone(),
            None => self.scales.reshape(&[n, 1])?,
        };
        let mut worth = Vec::new();
        let mut first = 0;
        for piece in pieces(k, group.map_or(k, |log2| 1 << log2)) {
            let scales = scales.narrow(1, first, piece.groups)?.unsqueeze(2)?;
            first += piece.groups;
            let wide = piece.groups_of(&self.values)?.cast(DType::F32);
            let wide = wide.called("dequantize")?;
            let product = wide.mul(&scales).called("dequantize")?;
            worth.push(product.reshape(&[n, piece.len()])?);
        }
        joined(&worth).called("dequantize")
    }

    /// Checks that the tensors match. Returns the group's logarithm, if a row has several groups.
    #[track_caller]
    fn check(&self, operation: &'static str) -> Result<Option<u8>> {
        let Quantized { values, scales } = self;
        values.same_engine(operation, scales)?;
        for (tensor, dtype, hint) in [
            (values, DType::I8, "Values are i8; `quantize` makes them"),
            (scales, DType::F32, "Scales are f32: use `cast`"),
        ] {
            if tensor.dtype != dtype {
                return Err(Error::DType {
                    operation,
                    expected: dtype.to_string(),
                    got: tensor.dtype,
                    hint,
                    at: String::new(),
                })
                .located();
            }
        }
        let refuse = |reason| Err(Error::Shape { operation, reason });
        let &[n, k] = values.shape() else {
            return refuse(format!(
                "values of {:?}: they are a matrix, [n, k]",
                values.shape()
            ))
            .located();
        };
        let none = usize::from(k > 0);
        match scales.shape() {
            &[rows] if rows == n => Ok(None),
            &[rows, groups] if rows == n && groups == none => Ok(None),
            &[rows, groups] if rows == n => {
                let fits = |log2: &u8| k.div_ceil(1 << log2) == groups;
                match GROUPS_LOG2.into_iter().find(fits) {
                    Some(log2) => Ok(Some(log2)),
                    None => refuse(format!(
                        "{groups} scales for a row of {k} values: groups are powers of two from 8 to 4096"
                    )).located(),
                }
            }
            other => refuse(format!(
                "scales of {other:?} for values of [{n}, {k}]: they are [{n}], or [{n}, {k} / group]"
            )).located(),
        }
    }
}

/// Adjacent groups of one length in a row.
struct Piece {
    start: usize,
    groups: usize,
    group_len: usize,
}

impl Piece {
    fn len(&self) -> usize {
        self.groups * self.group_len
    }

    /// The groups of a matrix: `[n, groups, group_len]`.
    #[track_caller]
    fn groups_of(&self, matrix: &Tensor) -> Result<Tensor> {
        let n = matrix.shape()[0];
        let columns = matrix.narrow(1, self.start, self.len())?;
        columns.reshape(&[n, self.groups, self.group_len])
    }
}

/// The whole groups of a row, and the shorter one at its end.
fn pieces(k: usize, group_len: usize) -> impl Iterator<Item = Piece> {
    let whole = Piece {
        start: 0,
        groups: k / group_len,
        group_len,
    };
    let rest = Piece {
        start: whole.len(),
        groups: 1,
        group_len: k % group_len,
    };
    [whole, rest]
        .into_iter()
        .filter(|piece| piece.groups * piece.group_len > 0)
}

/// Joins pieces to one matrix.
#[track_caller]
fn joined(pieces: &[Tensor]) -> Result<Tensor> {
    match pieces {
        [one] => Ok(one.clone()),
        several => Tensor::concat(&several.iter().collect::<Vec<_>>(), 1),
    }
}

/// The rule, for quantization on the host.
pub(crate) mod quantizing {
    #[cfg(feature = "model-files")]
    use super::MOST;
    use super::{Error, GROUPS_LOG2, Result};

    /// The length of a group.
    pub(crate) fn checked_group(group: u64) -> Result<usize> {
        let is_whole = group.is_power_of_two();
        if is_whole && GROUPS_LOG2.contains(&(group.trailing_zeros() as u8)) {
            return Ok(group as usize);
        }
        Err(Error::Option {
            option: "group",
            reason: format!("{group} elements: it is a power of two from 8 to 4096"),
        })
    }

    /// The scale of a group, as [`Tensor::quantize`](crate::Tensor::quantize) documents it.
    #[cfg(feature = "model-files")]
    pub(crate) fn scale_of(group: &[f32]) -> f32 {
        if group.iter().any(|v| v.is_nan()) {
            return f32::NAN;
        }
        match group.iter().fold(0.0_f32, |most, v| most.max(v.abs())) {
            tiny if tiny < MOST * f32::MIN_POSITIVE => 0.0,
            largest => largest / MOST,
        }
    }

    /// An element in units of the scale.
    #[cfg(feature = "model-files")]
    pub(crate) fn value_of(v: f32, scale: f32) -> i8 {
        let divisor = if scale == 0.0 { 1.0 } else { scale };
        (v / divisor).round_ties_even() as i8
    }
}
