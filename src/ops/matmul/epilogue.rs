//! The epilogue of a product: scale, bias, activation, residual, type. If one kernel cannot do it
//! all, separate operations follow.

use crate::ops::unary::UnaryOp;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::{DType, Error, Result};

/// An activation of a product's epilogue: see [`Epilogue::activation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// [`Tensor::relu`].
    Relu,
    /// [`Tensor::gelu`], exact.
    Gelu,
    /// [`Tensor::gelu_tanh`], the approximation.
    GeluTanh,
    /// [`Tensor::silu`].
    Silu,
    /// [`Tensor::sigmoid`].
    Sigmoid,
    /// [`Tensor::tanh`].
    Tanh,
}

impl Activation {
    /// All activations, in the order of their numbers in a variant's code, which begin at 1.
    pub(super) const ALL: [Activation; 6] = [
        Activation::Relu,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Silu,
        Activation::Sigmoid,
        Activation::Tanh,
    ];

    pub(crate) fn op(self) -> UnaryOp {
        match self {
            Activation::Relu => UnaryOp::Relu,
            Activation::Gelu => UnaryOp::Gelu,
            Activation::GeluTanh => UnaryOp::GeluTanh,
            Activation::Silu => UnaryOp::Silu,
            Activation::Sigmoid => UnaryOp::Sigmoid,
            Activation::Tanh => UnaryOp::Tanh,
        }
    }
}

/// What [`Tensor::matmul_with`] does with a product before it stores it, in this order:
/// `cast(activation(scale * columns * product + bias) + residual)`. Each step is optional.
///
/// It is computed in f32 and rounded once, in the product's kernel if possible. It then needs no
/// further pass over memory.
///
/// ```
/// use lapidary::{DType, Tensor, operations::{Activation, Epilogue}};
///
/// # fn demo(x: &Tensor, w: &Tensor, b: &Tensor, skip: &Tensor) -> lapidary::Result<()> {
/// let end = Epilogue::new().bias(b).activation(Activation::Gelu).residual(skip);
/// let y = x.matmul_with(w, &end.cast(DType::F16))?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Epilogue {
    pub(super) scale: Option<f32>,
    pub(super) columns: Option<Tensor>,
    pub(super) bias: Option<Tensor>,
    pub(super) activation: Option<Activation>,
    pub(super) residual: Option<Tensor>,
    pub(super) cast: Option<DType>,
}

impl Epilogue {
    /// An empty epilogue: the product as it is.
    pub fn new() -> Self {
        Epilogue::default()
    }

    /// Multiplies the product by a number, such as the one scale of i8 weights.
    pub fn scale(mut self, factor: f32) -> Self {
        self.scale = Some(factor);
        self
    }

    /// Multiplies each column by its own number, such as the scales of i8 weights with one for each
    /// output. Their shape is `[n]` and their type f32, whatever the product's type.
    pub fn scale_columns(mut self, factors: &Tensor) -> Self {
        self.columns = Some(factors.clone());
        self
    }

    /// Multiplies each column by one more number, beside the scales that are set.
    #[track_caller]
    pub(in crate::ops) fn and_scale_columns(self, factors: &Tensor) -> Result<Self> {
        match &self.columns {
            Some(columns) if columns.shape() != factors.shape() => Err(Error::Shape {
                operation: "matmul_with",
                reason: format!(
                    "scales of {:?} for {:?} columns: there must be one number a column",
                    columns.shape(),
                    factors.shape()
                ),
            })
            .located(),
            Some(columns) => {
                let factors = columns.mul(factors)?;
                Ok(self.scale_columns(&factors))
            }
            None => Ok(self.scale_columns(factors)),
        }
    }

    /// Adds a vector along the columns, of shape `[n]` and of the product's type.
    pub fn bias(mut self, bias: &Tensor) -> Self {
        self.bias = Some(bias.clone());
        self
    }

    /// Applies a function to each element after the bias.
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = Some(activation);
        self
    }

    /// Adds a tensor after the activation, of the product's type and of a shape that broadcasts to
    /// the product's.
    pub fn residual(mut self, residual: &Tensor) -> Self {
        self.residual = Some(residual.clone());
        self
    }

    /// Rounds the result to another float type.
    pub fn cast(mut self, dtype: DType) -> Self {
        self.cast = Some(dtype);
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.scale.is_none()
            && self.columns.is_none()
            && self.bias.is_none()
            && self.activation.is_none()
            && self.residual.is_none()
            && self.cast.is_none()
    }

    /// Its residual, if it does nothing else but round.
    pub(in crate::ops) fn only_residual(&self) -> Option<&Tensor> {
        let has_others = self.scale.is_some() || self.columns.is_some() || self.bias.is_some();
        let residual = self.residual.as_ref();
        residual.filter(|with| !has_others && self.activation.is_none() && with.dtype == DType::F32)
    }

    /// Is one of its tensors tracked?
    pub(in crate::ops) fn is_tracked(&self) -> bool {
        let tensors = [&self.columns, &self.bias, &self.residual];
        tensors.into_iter().flatten().any(Tensor::is_tracked)
    }

    /// The type that it rounds to.
    pub(in crate::ops) fn cast_to(&self) -> Option<DType> {
        self.cast
    }

    /// Checks the epilogue against a product of this type and shape. `operand` is one of its
    /// operands; `has_columns` says that the shape ends with the product's columns.
    pub(in crate::ops) fn check(
        &self,
        operand: &Tensor,
        dtype: DType,
        shape: &[usize],
        has_columns: bool,
    ) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let refuse = |expected: String, got, hint| {
            let operation = "matmul_with";
            Err(Error::DType {
                operation,
                expected,
                got,
                hint,
                at: String::new(),
            })
        };
        if !dtype.is_float() {
            return refuse("a float".into(), dtype, "Only floats have an epilogue");
        }
        if let Some(cast) = self.cast.filter(|cast| !cast.is_float()) {
            return refuse("a float".into(), cast, "Use `cast` on the result");
        }
        for other in [&self.bias, &self.residual].into_iter().flatten() {
            operand.same_engine("matmul_with", other)?;
            if other.dtype != dtype {
                return refuse(dtype.to_string(), other.dtype, "Convert it first");
            }
        }
        if let Some(scales) = &self.columns {
            operand.same_engine("matmul_with", scales)?;
            if scales.dtype != DType::F32 {
                return refuse(
                    DType::F32.to_string(),
                    scales.dtype,
                    "Scales of columns are f32",
                );
            }
        }
        let columns = shape.last().copied().filter(|_| has_columns);
        for (what, vector) in [("a bias", &self.bias), ("scales", &self.columns)] {
            let Some(vector) = vector else { continue };
            if vector.rank() != 1 || Some(vector.shape()[0]) != columns {
                return Err(Error::Shape {
                    operation: "matmul_with",
                    reason: format!(
                        "{what} of {:?} for a product of {shape:?}: there must be one number a column",
                        vector.shape()
                    ),
                });
            }
        }
        if let Some(residual) = &self.residual {
            residual.broadcast_to(shape)?;
        }
        Ok(())
    }

    /// Must operations in its place get the product in f32, so that it is not rounded twice?
    pub(in crate::ops) fn needs_f32(&self) -> bool {
        self.scale.is_some()
            || self.columns.is_some()
            || self.bias.is_some()
            || self.activation.is_some()
            || self.residual.is_some()
            || self.cast == Some(DType::F32)
    }

    /// Applies the epilogue, except for the cast, to a finished product by separate operations.
    #[track_caller]
    pub(in crate::ops) fn apply_in(&self, product: Tensor) -> Result<Tensor> {
        let mut value = product;
        if let Some(scale) = self.scale {
            value = (&value * scale)?;
        }
        if let Some(columns) = &self.columns {
            value = (&value * columns.cast(value.dtype)?)?;
        }
        if let Some(bias) = &self.bias {
            value = (&value + bias.cast(value.dtype)?)?;
        }
        if let Some(activation) = self.activation {
            value = value.unary(activation.op())?;
        }
        if let Some(residual) = &self.residual {
            value = (&value + residual.cast(value.dtype)?)?;
        }
        Ok(value)
    }
}
