//! Softmax, layer normalization, and norms of channels and rows.

use lapidary::{DType, Gpu, Result, Tensor};

use super::model::*;
use crate::devices::{gives, reference, refused};

const SHAPES: &[&[usize]] = &[
    &[0],
    &[1],
    &[5],
    &[3, 0],
    &[0, 4],
    &[100, 16],
    &[70, 64],
    &[5, 1000],
    &[9, 37],
    &[4, 8, 12],
    &[33, 65, 7],
    &[2, 5000],
];

/// Compares the softmax and its logarithm with the simulation's.
fn check_softmax(what: &str, reference: &Gpu, x: &Tensor, axes: std::ops::Range<usize>) {
    let error = tolerance(x.dtype());
    for axis in axes {
        let (what, along) = (format!("{what} axis {axis}"), axis as isize);
        same(&what, reference, &[x], error, |t| t[0].softmax(along));
        same(&what, reference, &[x], error, |t| t[0].log_softmax(along));
    }
}

#[test]
fn softmax_along_every_axis_of_every_view() -> Result<()> {
    let reference = reference();
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for shape in shapes_for(dtype, SHAPES) {
                let tensor = made(&gpu, shape, dtype);
                for (view, x) in views(&tensor) {
                    let what = format!("{dtype} {shape:?} {view}");
                    check_softmax(&what, &reference, &x, 0..x.rank());
                }
            }
        }
        let ints = gpu.zeros(&[3], DType::I32)?;
        refused!(DType: ints.softmax(0));
    }
    Ok(())
}

#[test]
fn softmax_is_stable_and_rows_without_a_finite_number_are_nan() {
    let inf = f64::INFINITY;
    let rows = [
        [1e4, 1e4, -1e4, 0.0],
        [-3e38, -3e38, -3e38, -3e38],
        [-inf, -inf, -inf, -inf],
        [-inf, 0.0, -inf, 0.0],
        [inf, 0.0, 0.0, 0.0],
        [f64::NAN, 0.0, 0.0, 0.0],
        [3e38, -3e38, 0.0, 0.0],
        [0.0, -0.0, 0.0, 1e-30],
    ];
    let reference = reference();
    for gpu in each() {
        // Weights of 3 and of 5 elements are not whole vec4s.
        for width in [4, 3, 5] {
            let value = |at: usize| rows[at / width][at % width % 4];
            let array = Array::new(&[8, width], value).rounded(DType::F32);
            let tensor = array.upload(&gpu, DType::F32);
            for (view, x) in views(&tensor) {
                // Extremes of the type overflow along the other axis, so only rows are compared.
                if view != "transposed" {
                    let what = format!("{width} {view}");
                    check_softmax(&what, &reference, &x, x.rank() - 1..x.rank());
                }
            }
        }
    }
}

#[test]
fn layer_norm_with_and_without_weight_and_bias() {
    let reference = reference();
    for gpu in each() {
        for (dtype, affine) in [
            (DType::F32, DType::F32),
            (DType::F16, DType::F16),
            (DType::F16, DType::F32),
            (DType::Bf16, DType::Bf16),
        ] {
            for shape in shapes_for(dtype, SHAPES) {
                let tensor = made(&gpu, shape, dtype);
                for (view, x) in views(&tensor) {
                    for n in 1..=x.rank().min(2) {
                        let size = &x.shape()[x.rank() - n..];
                        let weight = Array::new(size, noise(affine)).rounded(affine);
                        let bias = Array::new(size, |k| k as f64 / 8.0).rounded(affine);
                        let (w, b) = (weight.upload(&gpu, affine), bias.upload(&gpu, affine));
                        for given in 0..4 {
                            let what = format!("{dtype} {affine} {shape:?} {view} {n}");
                            let error = 4.0 * tolerance(dtype);
                            same(&what, &reference, &[&x, &w, &b], error, |t| {
                                let [w, b] = [1, 2].map(|at| (given & at == at).then(|| &t[at]));
                                t[0].layer_norm(size, w, b, 1e-5)
                            });
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn layer_norm_checks_its_operands_and_reads_views_of_weights() -> Result<()> {
    let reference = reference();
    for gpu in each() {
        let array = Array::new(&[3, 8], noise(DType::F32));
        let x = array.upload(&gpu, DType::F32);
        let long = Array::new(&[17], |k| k as f64).upload(&gpu, DType::F32);
        let weight = long.slice(0, Some(1), None, 2)?;
        let bias = long.narrow(0, 3, 8)?;
        same("views", &reference, &[&x, &weight, &bias], 1e-5, |t| {
            t[0].layer_norm(&[8], Some(&t[1]), Some(&t[2]), 1e-5)
        });
        refused!(Shape: x.layer_norm(&[], None, None, 1e-5));
        refused!(Shape: x.layer_norm(&[3], None, None, 1e-5));
        refused!(Shape: x.layer_norm(&[8], Some(&x), None, 1e-5));
        let ints = gpu.zeros(&[8], DType::I32)?;
        refused!(DType: x.layer_norm(&[8], Some(&ints), None, 1e-5));
    }
    Ok(())
}

#[test]
fn norms_of_channels_and_of_rows() -> Result<()> {
    for gpu in each() {
        let x = gpu.rand_normal(&[2, 3, 5], 4.0, 2.0, 1, DType::F32)?;
        let y = x.instance_norm(None, None, 0.0)?;
        for (number, channel) in y.reshape(&[6, 5])?.unbind(0)?.iter().enumerate() {
            assert!(channel.mean_all()?.item::<f32>()?.abs() < 1e-5, "{number}");
            let spread = channel.var_all(0)?.item::<f32>()?;
            assert!((spread - 1.0).abs() < 1e-4, "{number}: {spread}");
        }
        let none = x.narrow(0, 0, 0)?.instance_norm(None, None, 0.1)?;
        assert_eq!(none.shape(), [0, 3, 5]);
        let two = gpu.ones(&[2], DType::F32)?;
        for refused in [
            x.select(0, 0)?.instance_norm(None, None, 0.1),
            x.narrow(2, 0, 1)?.instance_norm(None, None, 0.1),
            x.instance_norm(Some(&two), None, 0.1),
            x.instance_norm(None, Some(&two), 0.1),
        ] {
            refused!(Shape: refused);
        }
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            // The norm of f16 is beyond its range, and a row of zeros stays.
            let x = gpu.tensor(&[3e4_f32, 4e4, 0.0, 0.0], &[2, 2])?;
            let got = x.cast(dtype)?.normalize(2, -1, 1e-12)?;
            let expected = Array::new(&[2, 2], |at| [0.6, 0.8, 0.0, 0.0][at]);
            assert_close(&download(&got), &expected, 4e-3, &format!("{dtype}"));
        }
        gives!(f32: gpu.scalar(-2.0_f32)?.normalize(1, 0, 1e-12) => [-1.0]);
        refused!(Axis: x.normalize(2, 3, 0.1));
        let ints = gpu.zeros(&[3], DType::I32)?;
        refused!(DType: ints.normalize(2, 0, 0.1));
    }
    Ok(())
}
