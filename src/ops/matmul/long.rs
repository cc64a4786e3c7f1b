//! Products too long for one submission, in parts of rows or of the batch.

use super::{Epilogue, Right, Shapes, product_dtype};
use crate::ops::long::{assemble, part};
use crate::tensor::Tensor;
use lapidary_core::{DType, Result};

/// The rows of a part are a multiple of this, so that tiles stay whole.
const UNIT: usize = 128;

/// The cost of a multiply-add. The naive kernel multiplies integers, and takes several times as
/// long.
pub(super) fn cost(dtype: DType) -> u64 {
    if dtype.is_float() { 1 } else { 8 }
}

impl Tensor {
    /// The product in parts, if it is too long for one submission.
    #[track_caller]
    pub(super) fn matmul_in_parts(
        &self,
        right: Right<'_>,
        end: &Epilogue,
        most_work: u64,
    ) -> Result<Option<Tensor>> {
        let other = right.tensor;
        let of_product = product_dtype(self.dtype, other.dtype)?;
        self.same_engine("matmul", other)?;
        let shapes = Shapes::new(&self.layout, &other.layout)?;
        // Products of a row or a column are never that long.
        if self.rank() < 2 || other.rank() < 2 || shapes.result.contains(&0) {
            return Ok(None);
        }
        let work = (shapes.result.iter().chain(shapes.a.shape.last()))
            .fold(cost(of_product), |work: u64, &dim| {
                work.saturating_mul(dim as u64)
            });
        let rank = shapes.result.len();
        let axis = (0..rank - 1).max_by_key(|&axis| (shapes.result[axis], rank - axis));
        let Some((axis, len)) = axis.map(|axis| (axis, shapes.result[axis])) else {
            return Ok(None);
        };
        let from_end = rank - axis;
        let unit = if from_end == 2 { UNIT } else { 1 };
        let Some(step) = part(work, most_work, len, unit) else {
            return Ok(None);
        };
        end.check(self, of_product, &shapes.result, true)?;
        let residual = match &end.residual {
            Some(residual) => Some(residual.broadcast_to(&shapes.result)?),
            None => None,
        };
        let of = |operand: &Tensor, start, len| {
            let axis = operand.rank().checked_sub(from_end);
            match axis.filter(|&axis| operand.shape()[axis] > 1) {
                Some(axis) => operand.narrow(axis as isize, start, len),
                None => Ok(operand.clone()),
            }
        };
        let dtype = end.cast.unwrap_or(of_product);
        let made = assemble(self, &shapes.result, dtype, (axis, step), |start, len| {
            let residual = residual.as_ref();
            let end = Epilogue {
                residual: residual.map(|whole| of(whole, start, len)).transpose()?,
                ..end.clone()
            };
            let b = match from_end {
                // The product sums over the rows of B.
                2 => other.clone(),
                _ => of(other, start, len)?,
            };
            let a = of(self, start, len)?;
            // A part with many large matrices may still be too long.
            let b = Right::grouped(&b, right.groups);
            match a.matmul_in_parts(b, &end, most_work)? {
                Some(made) => Ok(made),
                None => a.matmul_by(b, &end, None),
            }
        })?;
        Ok(Some(made))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Activation;
    use super::*;
    use crate::{Gpu, Options};

    #[test]
    fn products_in_parts_are_what_they_are_as_one() {
        let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
        let noise = |seed, shape: &[usize]| {
            gpu.rand_uniform(shape, -1.0, 1.0, seed, DType::F32)
                .unwrap()
        };
        for (a, b) in [
            (&[300, 24][..], &[24, 50][..]),
            (&[7, 9, 24], &[24, 50]),
            (&[5, 1, 20, 24], &[3, 24, 10]),
            (&[20, 24], &[6, 24, 10]),
            (&[1, 24], &[24, 50]),
        ] {
            let (a, b) = (noise(1, a), noise(2, b));
            let columns = b.shape()[b.rank() - 1];
            let end = Epilogue::new()
                .bias(&noise(3, &[columns]))
                .activation(Activation::Relu)
                .residual(&noise(4, &[columns]));
            for end in [Epilogue::new(), end] {
                let whole = a.matmul_with(&b, &end).unwrap();
                let parts = a.matmul_in_parts((&b).into(), &end, 7000).unwrap();
                let of_row = a.len() == 24 && b.rank() == 2;
                assert_eq!(parts.is_none(), of_row);
                let Some(parts) = parts else { continue };
                assert_eq!(parts.shape(), whole.shape());
                let parts = parts.to_vec::<f32>().unwrap();
                for (part, whole) in parts.iter().zip(whole.to_vec::<f32>().unwrap()) {
                    assert!((part - whole).abs() < 1e-4, "{part} for {whole}");
                }
            }
        }
    }
}
