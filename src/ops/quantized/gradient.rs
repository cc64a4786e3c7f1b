//! The gradient of a product with weights of eight bits.

use super::{MOST_WIDE_BYTES, OPERATION, Quantized};
use crate::ops::fill::full;
use crate::ops::matmul::Epilogue;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Save, grads};
use lapidary_core::{DType, Result};

impl Tensor {
    /// The product, with the gradient of `self`. The epilogue becomes operations of their own.
    #[cold]
    #[track_caller]
    pub(super) fn quantized_recorded(&self, weights: &Quantized, end: &Epilogue) -> Result<Tensor> {
        let dtype = self.dtype;
        // The kernel rounds once, at its end, and so do the operations in its place.
        let first = match dtype != DType::F32 && end.needs_f32() {
            true => Epilogue::new().cast(DType::F32),
            false => Epilogue::new(),
        };
        let plain = self.untracked().matmul_quantized_with(weights, &first)?;
        end.check(self, dtype, plain.shape(), true)?;
        let saves = [Save::Other(&weights.values), Save::Other(&weights.scales)];
        let rule = move |b: &Backward| {
            let weights = Quantized {
                values: b.saved[0].clone(),
                scales: b.saved[1].clone(),
            };
            grads![b; weights.through(&b.grad, MOST_WIDE_BYTES)?.cast(dtype)?]
        };
        let y = match self.is_tracked() {
            true => plain.recorded_as(OPERATION, &[self], &saves, rule),
            false => plain,
        };
        end.apply_in(y)?.cast(end.cast_to().unwrap_or(dtype))
    }
}

impl Quantized {
    /// `g`, `[…, n]`, times the weights, `[n, k]`, in f32.
    #[track_caller]
    fn through(&self, g: &Tensor, slab_bytes: usize) -> Result<Tensor> {
        let g = g.cast(DType::F32)?;
        let [n, k] = [self.values.shape()[0], self.values.shape()[1]];
        if self.scales.len() == n {
            let scaled = (g * self.scales.reshape(&[n])?)?;
            return scaled.matmul(&self.values);
        }
        let step = (slab_bytes / (4 * k)).max(1);
        let mut sum: Option<Tensor> = None;
        for start in (0..n).step_by(step) {
            let len = step.min(n - start);
            let rows = Quantized {
                values: self.values.narrow(0, start, len)?,
                scales: self.scales.narrow(0, start, len)?,
            };
            let product = g.narrow(-1, start, len)?.matmul(&rows.dequantize()?)?;
            sum = Some(match sum {
                Some(sum) => (sum + product)?,
                None => product,
            });
        }
        match sum {
            Some(sum) => Ok(sum),
            None => {
                let mut shape = g.shape().to_vec();
                shape.pop();
                shape.push(k);
                full(&g.engine, &shape, 0.0.into(), DType::F32)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gpu, Options};

    #[test]
    fn slabs_of_weights_give_what_the_whole_gives() {
        let gpu = Gpu::open(Options::from_env().unwrap()).expect("an adapter");
        let noise = |shape: &[usize]| gpu.rand_normal(shape, 0.0, 1.0, 5, DType::F32).unwrap();
        let weights = noise(&[5, 20]).quantize(Some(8)).unwrap();
        let g = noise(&[3, 5]);
        let [whole, rows] = [MOST_WIDE_BYTES, 2 * 4 * 20].map(|bytes| {
            let through = weights.through(&g, bytes).unwrap();
            through.to_vec::<f32>().unwrap()
        });
        for (got, expected) in rows.iter().zip(&whole) {
            assert!((got - expected).abs() < 1e-5, "{got} for {expected}");
        }
    }
}
