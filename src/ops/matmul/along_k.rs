//! Products with a small result and long sums, which only a few workgroups would compute in
//! sequence. So k is cut into parts. They run in parallel as the matrices of a batch, and their
//! results are added ("split-k" in CUTLASS).

use super::problem::Problem;
use super::{Epilogue, Right, Shapes, choice, product_dtype};
use crate::tensor::Tensor;
use crate::tensor::layout::{Layout, MAX_RANK};
use lapidary_core::{DType, Result};

/// The length of a part is a multiple of this many steps of k, so that its rows keep their
/// alignment to vec4s.
const UNIT: usize = 32;

impl Tensor {
    /// The product in parts of k, if that keeps more of the device busy. Each part takes as much
    /// memory as the result.
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
        let rank = shapes.batch.len() + 2;
        let len = (shapes.result.iter()).fold(1, |len: usize, &dim| len.saturating_mul(dim));
        if len == 0 || len > choice::MOST_SPLIT_LEN || rank + 1 > MAX_RANK {
            return Ok(None);
        }
        let problem = Problem::new(&shapes.batch, &shapes.a, &shapes.b, true);
        let room_bytes = || self.engine.here().slab_limit_bytes();
        let dtypes = right.dtypes(self.dtype, dtype);
        let parts = choice::parts_of_k(self.engine.caps(), dtypes, &problem, room_bytes);
        let Some(parts) = parts else { return Ok(None) };
        end.check(self, dtype, &shapes.result, other.rank() > 1)?;

        let step = k / parts as usize / UNIT * UNIT;
        let (parts, rest) = (k / step, k % step);
        let a = self.view(in_parts(&shapes.a, rank, 1, [parts, step]));
        let b = other.view(in_parts(&shapes.b, rank, 2, [parts, step]));
        let to_sum = Epilogue::new().cast(DType::F32);
        let products = a.matmul_by_right((&b).into(), &to_sum)?;
        let mut sum = products.sum(&[0])?.reshape(&shapes.result)?;
        drop(products);
        if rest > 0 {
            let rows = if other.rank() == 1 { 0 } else { -2 };
            let a = self.narrow(-1, parts * step, rest)?;
            let b = other.narrow(rows, parts * step, rest)?;
            sum = (sum + a.matmul_by_right((&b).into(), &to_sum)?)?;
        }
        let ended = end.apply_in(sum)?;
        Ok(Some(ended.cast(end.cast.unwrap_or(dtype))?))
    }
}

/// Cuts matrices, whose k is the axis `from_end`, into `parts` parts of `step` steps of k. The
/// parts are the outermost of `rank + 1` axes. So a batch that shares one matrix still folds into
/// rows of the other.
fn in_parts(whole: &Layout, rank: usize, from_end: usize, [parts, step]: [usize; 2]) -> Layout {
    let mut layout = whole.clone();
    let k = whole.rank() - from_end;
    layout.shape[k] = step;
    for _ in whole.rank()..rank {
        layout.shape.insert(0, 1);
        layout.strides.insert(0, 0);
    }
    layout.shape.insert(0, parts);
    layout.strides.insert(0, whole.strides[k] * step as isize);
    layout
}

#[cfg(test)]
mod tests {
    use super::super::Activation;
    use super::*;
    use crate::{Gpu, Options};
    use lapidary_core::{Error, adapter::AdapterKind};

    /// Whole numbers, so that no order of summation rounds.
    fn small(gpu: &Gpu, seed: u64, shape: &[usize], dtype: DType) -> Tensor {
        let numbers = gpu
            .rand_uniform(shape, -4.0, 5.0, seed, DType::F32)
            .unwrap();
        numbers.floor().unwrap().cast(dtype).unwrap()
    }

    /// Compares a product in parts with the whole one, and returns whether it was cut. Software
    /// adapters with subgroups of 8 must cut it.
    fn check(a: &Tensor, b: &Tensor, end: &Epilogue) -> bool {
        let Some(parts) = a.matmul_along_k(b.into(), end).unwrap() else {
            let caps = a.engine.caps();
            let is_meant = caps.kind == AdapterKind::Cpu && caps.subgroup_lanes == Some((8, 8));
            assert!(!is_meant, "{a:?} times {b:?}");
            return false;
        };
        let whole = a.matmul_in_slices(b.into(), end).unwrap();
        assert_eq!(
            (parts.shape(), parts.dtype()),
            (whole.shape(), whole.dtype())
        );
        let [parts, whole] = [parts, whole].map(|x| x.cast(DType::F32).unwrap());
        assert_eq!(
            parts.to_vec::<f32>().unwrap(),
            whole.to_vec::<f32>().unwrap(),
            "{a:?} times {b:?}"
        );
        true
    }

    #[test]
    fn long_sums_in_parts_are_what_they_are_as_one() {
        let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
        let (mut cut, mut all) = (0, 0);
        let mut check = |a: &Tensor, b: &Tensor| {
            cut += usize::from(check(a, b, &Epilogue::new()));
            all += 1;
        };
        let flipped = |x: &Tensor| x.t().unwrap().contiguous().unwrap().t().unwrap();
        for (a, b) in [
            (&[32, 16_384][..], &[16_384, 32][..]),
            (&[30, 20_001], &[20_001, 32]),
            (&[2, 1, 16, 18_000], &[18_000, 30]),
            (&[32, 1, 16_384], &[16_384, 32]),
            (&[2, 32, 17_000], &[17_000, 28]),
            (&[600_000], &[600_000, 28]),
            (&[8, 1_100_000], &[1_100_000]),
        ] {
            let (a, b) = (small(&gpu, 1, a, DType::F32), small(&gpu, 2, b, DType::F32));
            check(&a, &b);
            if a.rank() == 2 && b.rank() == 2 {
                check(&flipped(&a), &flipped(&b));
                let mirrored = |x: &Tensor, axis| x.flip(&[axis]).unwrap();
                check(&mirrored(&a, 1), &mirrored(&b, 0));
            }
        }
        for (of_a, of_b) in [
            (DType::F16, DType::F16),
            (DType::Bf16, DType::F32),
            (DType::F32, DType::I8),
        ] {
            let (a, b) = ([32, 16_390], [16_390, 32]);
            let (a, b) = (small(&gpu, 3, &a, of_a), small(&gpu, 4, &b, of_b));
            check(&a, &b);
        }
        let is_software = gpu.caps().kind == AdapterKind::Cpu;
        assert!(2 * cut > all || !is_software, "{cut} of {all} are cut");
    }

    #[test]
    fn what_a_product_ends_with_is_applied_to_the_sum_of_its_parts() {
        let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
        let of = |seed, shape: &[usize]| small(&gpu, seed, shape, DType::F32);
        let end = Epilogue::new()
            .scale(0.5)
            .scale_columns(&of(1, &[32]))
            .bias(&of(2, &[32]))
            .activation(Activation::Relu)
            .residual(&of(3, &[32, 1]));
        let (a, b) = (of(4, &[32, 9001]), of(5, &[9001, 32]));
        check(&a, &b, &end);
        check(&a, &b, &end.cast(DType::F16));
    }

    #[test]
    fn a_batch_over_one_matrix_is_more_rows_also_in_parts() {
        let layout = |shape: &[usize]| Layout::contiguous(shape);
        let a = in_parts(&layout(&[32, 1, 4096]), 3, 1, [4, 1024]);
        let b = in_parts(&layout(&[4096, 64]), 3, 2, [4, 1024]);
        assert_eq!(
            (&a.shape[..], &b.shape[..]),
            (&[4, 32, 1, 1024][..], &[4, 1, 1024, 64][..])
        );
        let shapes = Shapes::new(&a, &b).unwrap();
        let problem = Problem::new(&shapes.batch, &shapes.a, &shapes.b, true);
        assert_eq!((problem.m, problem.n, problem.matrices), (32, 64, 4));
    }

    #[test]
    fn results_beyond_every_device_are_refused_as_ever() {
        let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
        let zeros = |shape: &[usize], seen: &[usize]| {
            let zeros = gpu.zeros(shape, DType::F32).unwrap();
            zeros.broadcast_to(seen).unwrap()
        };
        for (a, b) in [
            (
                zeros(&[64, 2048], &[16_384, 1, 64, 2048]),
                zeros(&[2048, 64], &[1, 16_384, 2048, 64]),
            ),
            (
                zeros(&[65_536, 1, 1, 1], &[65_536, 1, 1, 2048]),
                zeros(&[1, 65_536, 1, 1], &[1, 65_536, 2048, 1]),
            ),
            (
                zeros(&[65_536, 1, 1, 2], &[65_536, 1, 1, 2]),
                zeros(&[65_536, 2, 1], &[65_536, 2, 1]),
            ),
        ] {
            let cut = a.matmul_along_k((&b).into(), &Epilogue::new()).unwrap();
            assert!(cut.is_none());
            let error = a.matmul(&b).unwrap_err();
            assert!(matches!(error, Error::NeverFits { .. }), "{error}");
        }
    }
}
