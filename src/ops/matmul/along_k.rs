//! Products with a small result and long sums: a few workgroups would do all of it, one after the
//! other. So the sums are cut along k, the parts computed side by side as the matrices of a batch, and
//! added up ("split-k" in CUTLASS).

use super::problem::Problem;
use super::{Epilogue, Right, Shapes, choice, product_dtype};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;
use crate::tensor::layout::{Layout, MAX_RANK};

/// Parts are so many steps of k, or a multiple: rows of them start where those of the whole do, in quads.
const UNIT: usize = 32;

impl Tensor {
    /// The product in parts of k, if that keeps more of the device busy. The parts take memory, a few
    /// times what the result takes, which is small.
    #[track_caller]
    pub(super) fn matmul_along_k(
        &self,
        right: Right<'_>,
        end: &Epilogue,
    ) -> Result<Option<Tensor>> {
        let other = right.tensor;
        let k = self.shape().last().copied().unwrap_or(0);
        if right.groups.is_some() || k < choice::LEAST_SPLIT_K {
            return Ok(None);
        }
        let dtype = product_dtype(self.dtype, other.dtype)?;
        self.same_engine("matmul", other)?;
        let shapes = Shapes::new(&self.layout, &other.layout)?;
        if shapes.result.contains(&0) || shapes.batch.len() + 3 > MAX_RANK {
            return Ok(None);
        }
        let problem = Problem::new(&shapes.batch, &shapes.a, &shapes.b, true);
        let room_bytes = || self.engine.slab_limit_bytes();
        let parts = choice::parts_of_k(self.engine.caps(), dtype, &problem, room_bytes);
        let Some(parts) = parts else { return Ok(None) };
        end.check(self, dtype, &shapes.result, other.rank() > 1)?;

        let step = k / parts as usize / UNIT * UNIT;
        let (parts, rest) = (k / step, k % step);
        let a = self.view(in_parts(&shapes.a, 1, parts, step));
        let b = other.view(in_parts(&shapes.b, 2, parts, step));
        let to_sum = Epilogue::new().cast(DType::F32);
        let products = a.matmul_by_right((&b).into(), &to_sum)?;
        let mut sum = products.sum(&[-3])?.reshape(&shapes.result)?;
        drop(products);
        if rest > 0 {
            let rows = if other.rank() == 1 { 0 } else { -2 };
            let a = self.narrow(-1, parts * step, rest)?;
            let b = other.narrow(rows, parts * step, rest)?;
            sum = (sum + a.matmul_by(&b, &to_sum, None)?)?;
        }
        let ended = end.apply_in(sum)?;
        Ok(Some(ended.cast(end.cast.unwrap_or(dtype))?))
    }
}

/// A matrix, whose k is the axis `from_end`, as a batch of its parts along k.
fn in_parts(whole: &Layout, from_end: usize, parts: usize, step: usize) -> Layout {
    let mut layout = whole.clone();
    let (k, before) = (whole.rank() - from_end, whole.rank() - 2);
    layout.shape[k] = step;
    layout.shape.insert(before, parts);
    layout
        .strides
        .insert(before, whole.strides[k] * step as isize);
    layout
}

#[cfg(test)]
mod tests {
    use super::super::Activation;
    use super::*;
    use crate::{Gpu, Options};

    #[test]
    fn long_sums_in_parts_are_what_they_are_as_one() {
        let gpu = Gpu::open(Options::default()).unwrap();
        let small = |seed, shape: &[usize]| {
            let numbers = gpu
                .rand_uniform(shape, -4.0, 5.0, seed, DType::F32)
                .unwrap();
            // Whole numbers, so that no order of adding them up rounds.
            numbers.floor().unwrap()
        };
        let flipped = |x: &Tensor| x.t().unwrap().contiguous().unwrap().t().unwrap();
        let mut were_cut = 0;
        for (a, b) in [
            (&[32, 16_384][..], &[16_384, 32][..]),
            (&[30, 20_001], &[20_001, 32]),
            (&[2, 1, 16, 18_000], &[18_000, 30]),
            (&[300_000], &[300_000, 28]),
            (&[8, 1_100_000], &[1_100_000]),
        ] {
            let (a, b) = (small(1, a), small(2, b));
            for (a, b) in [(a.clone(), b.clone())]
                .into_iter()
                .chain((a.rank() == 2 && b.rank() == 2).then(|| (flipped(&a), flipped(&b))))
            {
                let parts = a.matmul_along_k((&b).into(), &Epilogue::new()).unwrap();
                let whole = a.matmul_in_slices((&b).into(), &Epilogue::new()).unwrap();
                let Some(parts) = parts else { continue };
                were_cut += 1;
                assert_eq!(parts.shape(), whole.shape());
                assert_eq!(
                    parts.to_vec::<f32>().unwrap(),
                    whole.to_vec::<f32>().unwrap()
                );
            }
        }
        let cores = std::thread::available_parallelism().unwrap().get();
        assert!(were_cut > 6 || cores == 1, "{were_cut}");
    }

    #[test]
    fn what_a_product_ends_with_is_applied_to_the_sum_of_its_parts() {
        let gpu = Gpu::open(Options::default()).unwrap();
        let ones = |shape: &[usize]| gpu.full(shape, 1.0, DType::F32).unwrap();
        let (a, b) = (ones(&[32, 9001]), ones(&[9001, 32]));
        let end = Epilogue::new()
            .scale(0.5)
            .bias(&gpu.full(&[32], -5000.0, DType::F32).unwrap())
            .activation(Activation::Relu)
            .residual(&gpu.full(&[32, 1], 3.0, DType::F32).unwrap())
            .cast(DType::F16);
        let made = a.matmul_with(&b, &end).unwrap();
        assert_eq!(made.dtype(), DType::F16);
        assert_eq!(made.shape(), [32, 32]);
        assert_eq!(
            made.cast(DType::F32).unwrap().to_vec::<f32>().unwrap(),
            [3.0; 1024]
        );
    }
}
