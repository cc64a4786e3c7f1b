//! Pooling and its gradients.

use lapidary::{DType, Gpu, Options, Result, Tensor, operations::Pool};

use crate::devices::{reference, refused};
use crate::ops_reduce::model::*;

/// The results of pooling and of its gradients.
fn results(x: &Tensor, pool: &Pool<2>) -> Result<[Tensor; 6]> {
    let of_max = Pool {
        count_include_pad: true,
        divisor_override: None,
        ..*pool
    };
    let (max, places) = x.max_pool2d_with_indices(&of_max)?;
    let (alone, mean) = (x.max_pool2d(&of_max)?, x.avg_pool2d(pool)?);
    let by_max = max.max_pool2d_backward(x, &of_max)?;
    let by_mean = max.avg_pool2d_backward(x, pool)?;
    Ok([max, places, alone, mean, by_max, by_mean])
}

fn adaptive_results(x: &Tensor, size: [usize; 2]) -> Result<[Tensor; 6]> {
    let (max, places) = x.adaptive_max_pool2d_with_indices(size)?;
    let (alone, mean) = (x.adaptive_max_pool2d(size)?, x.adaptive_avg_pool2d(size)?);
    let by_max = max.adaptive_max_pool2d_backward(x)?;
    let by_mean = max.adaptive_avg_pool2d_backward(x)?;
    Ok([max, places, alone, mean, by_max, by_mean])
}

/// Poolings that differ in every option.
const POOLS: [fn(&mut Pool<2>); 8] = [
    |_| {},
    overlap,
    |of| of.stride = [3, 4],
    |of| {
        overlap(of);
        of.count_include_pad = false;
    },
    |of| {
        overlap(of);
        (of.ceil_mode, of.stride) = (true, [2, 3]);
    },
    |of| {
        (of.kernel, of.stride, of.padding) = ([3, 3], [2, 2], [0, 1]);
        (of.ceil_mode, of.count_include_pad) = (true, false);
    },
    |of| {
        overlap(of);
        (of.divisor_override, of.ceil_mode) = (Some(5), true);
    },
    |of| (of.dilation, of.padding, of.stride) = ([2, 1], [1, 0], [1, 2]),
];

fn overlap(of: &mut Pool<2>) {
    (of.kernel, of.stride, of.padding) = ([3, 2], [2, 1], [1, 1]);
}

/// Of f32 they are PyTorch's, as `tests/torch/networks.rs` says.
#[test]
fn pooling_of_halves_is_that_of_the_simulation() {
    let reference = reference();
    for gpu in each() {
        for dtype in [DType::F16, DType::Bf16] {
            let tolerance = 2.0 * tolerance(dtype);
            for shape in [[2, 3, 8, 9], [1, 1, 3, 3], [0, 2, 4, 4]] {
                let x = made(&gpu, &shape, dtype);
                for set in POOLS {
                    let mut pool = Pool::new([2, 2]);
                    set(&mut pool);
                    let what = format!("{dtype} {shape:?} {pool:?}");
                    all_same(&what, &reference, &[&x], tolerance, |t| {
                        results(&t[0], &pool)
                    });
                }
            }
            let x = made(&gpu, &[2, 3, 8, 9], dtype);
            for size in [[3, 4], [4, 3], [1, 1], [5, 9], [8, 9], [11, 2], [0, 3]] {
                let what = format!("{dtype} {size:?}");
                all_same(&what, &reference, &[&x], tolerance, |t| {
                    adaptive_results(&t[0], size)
                });
            }
        }
    }
}

#[test]
fn lines_are_pooled_as_planes_of_one_row() -> Result<()> {
    for gpu in each() {
        let x = gpu.tensor(&[1.0_f32, 7.0, 3.0, 4.0, 5.0], &[1, 1, 5])?;
        let pool = Pool {
            stride: [2],
            ceil_mode: true,
            ..Pool::new([2])
        };
        let (values, places) = x.max_pool1d_with_indices(&pool)?;
        assert_eq!(values.to_vec::<f32>()?, [7.0, 4.0, 5.0]);
        assert_eq!(places.to_vec::<u32>()?, [1, 3, 4]);
        let mean = x.avg_pool1d(&pool)?;
        assert_eq!(mean.to_vec::<f32>()?, [4.0, 3.5, 5.0]);
        let (values, places) = x.adaptive_max_pool1d_with_indices([2])?;
        assert_eq!(values.to_vec::<f32>()?, [7.0, 5.0]);
        assert_eq!(places.to_vec::<u32>()?, [1, 4]);
        let mean = x.adaptive_avg_pool1d([2])?;
        assert_eq!(mean.shape(), [1, 1, 2]);
        // WGSL grants quotients 2.5 units in the last place.
        let is_near = |got: f32, expected: f32| (got - expected).abs() <= 1e-6 * expected;
        let means = mean.to_vec::<f32>()?;
        assert!(is_near(means[0], 11.0 / 3.0), "{means:?}");
        assert_eq!(means[1], 4.0);
        let by_x = mean.adaptive_avg_pool1d_backward(&x)?;
        let by_x = by_x.to_vec::<f32>()?;
        assert!(is_near(by_x[0], 11.0 / 9.0), "{by_x:?}");
        assert!(is_near(by_x[2], 11.0 / 9.0 + 4.0 / 3.0), "{by_x:?}");
        let by_x = values.adaptive_max_pool1d_backward(&x)?;
        assert_eq!(by_x.to_vec::<f32>()?, [0.0, 7.0, 0.0, 0.0, 5.0]);
    }
    Ok(())
}

#[test]
fn planes_without_samples_are_pooled_as_one_sample() -> Result<()> {
    for (name, gpu) in gpus() {
        let batch = made(&gpu, &[1, 3, 6, 7], DType::F32);
        let x = batch.squeeze_axis(0)?;
        let pool = Pool {
            padding: [1, 1],
            count_include_pad: false,
            ..Pool::new([3, 2])
        };
        let whole = batch.avg_pool2d(&pool)?;
        let one = x.avg_pool2d(&pool)?;
        assert_eq!(one.shape(), &whole.shape()[1..]);
        let by_batch = whole.avg_pool2d_backward(&batch, &pool)?;
        let by_one = one.avg_pool2d_backward(&x, &pool)?;
        assert_eq!(by_one.shape(), x.shape());
        for (one, whole) in [(&one, &whole), (&by_one, &by_batch)] {
            near(one, &whole.squeeze_axis(0)?, 0.0, name);
        }
        assert_eq!(x.select(1, 0)?.adaptive_max_pool1d([2])?.shape(), [3, 2]);
        refused!(Shape: whole.avg_pool2d_backward(&x, &pool));
    }
    Ok(())
}

#[test]
fn windows_too_large_for_a_software_adapter_are_folded_along_one_axis_first() -> Result<()> {
    let gpu = Gpu::open(Options::from_env()?)?;
    let x = gpu.arange(0, 400 * 401, 1, DType::F32)?;
    let x = x.reshape(&[1, 400, 401])?;
    let max = x.adaptive_max_pool2d([3, 2])?;
    let corner = |row: usize, column: usize| (row * 401 + column) as f32;
    let expected = [133, 266, 399].map(|row| [corner(row, 200), corner(row, 400)]);
    assert_eq!(max.to_vec::<f32>()?, expected.concat());
    let mean = x.adaptive_avg_pool2d([3, 2])?.to_vec::<f32>()?;
    assert!(
        (mean[0] - (corner(0, 0) + corner(133, 200)) / 2.0).abs() < 1.0,
        "{mean:?}"
    );
    Ok(())
}

#[test]
fn poolings_that_cannot_be_are_refused() -> Result<()> {
    let gpu = Gpu::open(Options::from_env()?)?;
    let x = gpu.zeros(&[1, 4, 5, 5], DType::F32)?;
    let two = Pool::new([2, 2]);
    let settings: [fn(&mut Pool<2>); 6] = [
        |of| of.dilation = [0, 1],
        |of| of.dilation = [5, 1],
        |of| of.padding = [2, 0],
        |of| of.divisor_override = Some(2),
        |of| of.count_include_pad = false,
        |of| (of.kernel, of.dilation) = ([usize::MAX, 1], [usize::MAX, 1]),
    ];
    for set in settings {
        let mut pool = two;
        set(&mut pool);
        refused!(Shape: x.max_pool2d(&pool));
    }
    let zero = Pool {
        divisor_override: Some(0),
        ..two
    };
    refused!(Shape: x.avg_pool2d(&zero));
    let none = gpu.zeros(&[1, 4, 0, 5], DType::F32)?;
    refused!(Shape: none.adaptive_avg_pool2d([2, 2]));
    // With its padding this axis would have a window without elements.
    let padded = Pool {
        padding: [1, 1],
        ..two
    };
    for refused in [none.max_pool2d(&padded), none.avg_pool2d(&padded)] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("an axis of 0 elements"), "{refused}");
    }
    refused!(Shape: x.adaptive_max_pool2d([1, usize::MAX]));
    refused!(Shape: x.adaptive_max_pool2d([1, 1 << 31]));
    let flat = gpu.zeros(&[5], DType::F32)?;
    refused!(Shape: flat.adaptive_max_pool2d([1, 1]));
    let grad = gpu.zeros(&[2], DType::F32)?;
    refused!(Shape: grad.adaptive_avg_pool2d_backward(&x));
    Ok(())
}
