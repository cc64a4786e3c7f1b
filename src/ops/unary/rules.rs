//! Parts of gradients that several rows of the [table](super::table) have, or that are long.

use std::f64::consts::PI;

use crate::tensor::Tensor;
use lapidary_core::Result;

/// `1 - x²`.
pub(super) fn one_less_square(x: &Tensor) -> Result<Tensor> {
    1.0 - x.square()?
}

/// `exp(-scale · x²)`.
pub(super) fn bell(x: &Tensor, scale: f64) -> Result<Tensor> {
    (x.square()? * -scale)?.exp()
}

pub(super) fn by_gelu_tanh(g: &Tensor, x: &Tensor) -> Result<Tensor> {
    const CUBE: f64 = 0.044_715;
    let scale = (2.0 / PI).sqrt();
    let square = x.square()?;
    let inner = ((x * scale)? * ((&square * CUBE)? + 1.0)?)?;
    let t = inner.tanh()?;
    let slope = ((square * (3.0 * CUBE))? + 1.0)?;
    let bend = ((x * (0.5 * scale))? * (one_less_square(&t)? * slope)?)?;
    g * (((t + 1.0)? * 0.5)? + bend)?
}
