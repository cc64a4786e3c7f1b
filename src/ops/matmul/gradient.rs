//! The gradients of products.

use smallvec::SmallVec;

use super::right::Right;
use super::{Epilogue, Shapes, product_dtype};
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Save, grads};
use crate::tensor::layout::Dims;
use lapidary_core::{DType, Result};

impl Tensor {
    /// Is a product with this epilogue recorded?
    pub(super) fn records_product(&self, other: Right<'_>, end: &Epilogue) -> bool {
        self.is_tracked() || other.tensor.is_tracked() || end.is_tracked()
    }

    /// The product, with its gradients. Its kernel adds a bias; the rest of the epilogue becomes
    /// operations of their own, whose operands the backward needs.
    #[cold]
    #[track_caller]
    pub(super) fn matmul_recorded(&self, other: Right<'_>, end: &Epilogue) -> Result<Tensor> {
        let dtype = product_dtype(self.dtype, other.tensor.dtype)?;
        self.same_engine("matmul", other.tensor)?;
        let shapes = Shapes::new(&self.layout, &other.tensor.layout)?;
        end.check(self, dtype, &shapes.result, other.tensor.rank() > 1)?;
        let mut first = Epilogue::new();
        let mut rest = end.clone();
        if rest.scale.is_none() && rest.columns.is_none() {
            first.bias = rest.bias.take();
        }
        // The kernel rounds once, at its end, and so do the operations in its place.
        if dtype != DType::F32 && rest.needs_f32() {
            first.cast = Some(DType::F32);
        }
        let product = self.product_recorded(other, &first)?;
        rest.apply_in(product)?.cast(end.cast.unwrap_or(dtype))
    }

    #[track_caller]
    fn product_recorded(&self, other: Right<'_>, end: &Epilogue) -> Result<Tensor> {
        let bias = end.bias.as_ref();
        let plain = Epilogue {
            bias: bias.map(Tensor::untracked),
            ..end.clone()
        };
        let right = other.tensor.untracked();
        let right = Right::grouped(&right, other.groups);
        let y = self.untracked().matmul_by_right(right, &plain)?;
        let operands: SmallVec<[&Tensor; 3]> =
            [self, other.tensor].into_iter().chain(bias).collect();
        if !operands.iter().any(|operand| operand.is_tracked()) {
            return Ok(y);
        }
        let saves = Save::factors(self, other.tensor);
        let shapes: [Dims; 2] = [self, other.tensor].map(|operand| operand.layout.shape.clone());
        let dtypes: SmallVec<[DType; 3]> = operands.iter().map(|operand| operand.dtype).collect();
        let rule = move |b: &Backward| {
            let [a, w] = &shapes;
            let g = matrix_of(&b.grad, a.len() == 1, w.len() == 1)?;
            grads![b;
                {
                    let wide = of_left(&g, &as_matrix(b.factor_of_first(), -1)?)?;
                    wide.sum_to(&matrix_shape(a, 0))?.reshape(a)?.cast(dtypes[0])?
                },
                {
                    let left = as_matrix(b.factor_of_second(), 0)?;
                    of_right(&left, &g, &matrix_shape(w, 1))?.reshape(w)?.cast(dtypes[1])?
                },
                b.grad.sum_to(&g.shape()[g.rank() - 1..])?.cast(dtypes[2])?,
            ]
        };
        Ok(y.recorded_as("matmul", &operands, &saves, rule))
    }
}

/// The shape of an operand as a matrix; `axis` is where one dimension is added.
fn matrix_shape(shape: &Dims, axis: usize) -> Dims {
    let mut matrix = shape.clone();
    if shape.len() == 1 {
        matrix.insert(axis, 1);
    }
    matrix
}

/// A tensor of one dimension as a matrix.
#[track_caller]
fn as_matrix(x: &Tensor, axis: isize) -> Result<Tensor> {
    match x.rank() {
        1 => x.unsqueeze(axis),
        _ => Ok(x.clone()),
    }
}

/// The gradient of a product as matrices.
#[track_caller]
fn matrix_of(g: &Tensor, is_row: bool, is_column: bool) -> Result<Tensor> {
    let g = match is_column {
        true => g.unsqueeze(-1)?,
        false => g.clone(),
    };
    match is_row {
        true => g.unsqueeze(-2),
        false => Ok(g),
    }
}

/// `g · bᵀ`.
#[track_caller]
fn of_left(g: &Tensor, b: &Tensor) -> Result<Tensor> {
    g.matmul(&b.transpose(-2, -1)?)
}

/// `aᵀ · g`, summed over the batches that `b` does not have. One matrix is one product over all
/// rows of all batches.
#[track_caller]
fn of_right(a: &Tensor, g: &Tensor, b: &[usize]) -> Result<Tensor> {
    let (k, n) = (a.shape()[a.rank() - 1], g.shape()[g.rank() - 1]);
    let is_flat = b.len() == 2 && a.rank() == g.rank() && a.len() / k.max(1) == g.len() / n.max(1);
    if is_flat && !a.is_empty() && !g.is_empty() {
        let a = a.reshape(&[a.len() / k, k])?;
        return a.t()?.matmul(&g.reshape(&[g.len() / n, n])?);
    }
    a.transpose(-2, -1)?.matmul(g)?.sum_to(b)
}
