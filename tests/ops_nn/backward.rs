//! The gradients of softmax, layer normalization and gelu against differences of the operations in
//! f64.

use lapidary::{DType, Gpu, Options, Result, Tensor};

use crate::devices::refused;
use crate::ops_reduce::model::*;

/// `Σ grad · ∂f/∂x` by central differences of `f`, which maps a whole array.
fn by_differences(x: &Array, grad: &Array, f: impl Fn(&Array) -> Vec<f64>) -> Array {
    const STEP: f64 = 1e-5;
    let moved = |at: usize, by: f64| {
        let mut x = x.clone();
        x.values[at] += by;
        let y = f(&x);
        y.iter().zip(&grad.values).map(|(y, g)| y * g).sum::<f64>()
    };
    Array::new(&x.shape, |at| {
        (moved(at, STEP) - moved(at, -STEP)) / (2.0 * STEP)
    })
}

fn softmax(x: &Array, axis: usize, log: bool) -> Vec<f64> {
    let (_, rows) = x.rows(&[axis]);
    let stats: Vec<(f64, f64)> = (rows.iter())
        .map(|row| {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            (max, row.iter().map(|v| (v - max).exp()).sum())
        })
        .collect();
    let each = |flat: usize| {
        let index = x.index(flat);
        let kept = (0..index.len()).filter(|&at| at != axis);
        let (max, sum) = stats[kept.fold(0, |row, at| row * x.shape[at] + index[at])];
        let value = x.values[flat] - max;
        if log {
            value - sum.ln()
        } else {
            value.exp() / sum
        }
    };
    (0..x.values.len()).map(each).collect()
}

fn layer_norm(x: &Array, length: usize, weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let rows = x.values.chunks(length);
    rows.flat_map(|row| {
        let mean = row.iter().sum::<f64>() / length as f64;
        let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / length as f64;
        let scale = 1.0 / (variance + 1e-3).sqrt();
        row.iter()
            .enumerate()
            .map(move |(k, v)| (v - mean) * scale * weight[k] + bias[k])
    })
    .collect()
}

/// The sum to full precision. For f32, Abramowitz and Stegun's series would be enough.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

#[test]
fn gradients_agree_with_differences() -> Result<()> {
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let tolerance = 10.0 * tolerance(dtype);
            let mut noise = noise(dtype);
            let mut made = |shape: &[usize]| Array::new(shape, &mut noise).rounded(dtype);
            let (x, grad) = (made(&[3, 4, 5]), made(&[3, 4, 5]));
            let (weight, bias) = (made(&[4, 5]), made(&[4, 5]));
            let on = |array: &Array| array.upload(&gpu, dtype);
            let (on_x, on_grad) = (on(&x), on(&grad));
            for axis in 0..3 {
                for log in [false, true] {
                    let along = axis as isize;
                    let got = match log {
                        false => on_grad.softmax_backward(&on_x.softmax(along)?, along),
                        true => on_grad.log_softmax_backward(&on_x.log_softmax(along)?, along),
                    };
                    let expected = by_differences(&x, &grad, |x| softmax(x, axis, log));
                    let what = format!("{dtype} softmax along {axis}, log {log}");
                    assert_close(&download(&got?), &expected, 2.0 * tolerance, &what);
                }
            }
            let gelu = |x: &Array| -> Vec<f64> {
                let one = |&x: &f64| x * 0.5 * (1.0 + erf(x / 2.0_f64.sqrt()));
                x.values.iter().map(one).collect()
            };
            let got = download(&on_grad.gelu_backward(&on_x)?);
            assert_close(
                &got,
                &by_differences(&x, &grad, gelu),
                tolerance,
                &format!("{dtype} gelu"),
            );
            let [by_x, by_weight, by_bias] =
                on_grad.layer_norm_backward(&on_x, &[4, 5], Some(&on(&weight)), 1e-3)?;
            let what = format!("{dtype} layer norm");
            let norm = |x: &Array, weight: &Array, bias: &Array| {
                layer_norm(x, 20, &weight.values, &bias.values)
            };
            for (got, expected) in [
                (by_x, by_differences(&x, &grad, |x| norm(x, &weight, &bias))),
                (
                    by_weight,
                    by_differences(&weight, &grad, |weight| norm(&x, weight, &bias)),
                ),
                (
                    by_bias,
                    by_differences(&bias, &grad, |bias| norm(&x, &weight, bias)),
                ),
            ] {
                assert_close(&download(&got), &expected, tolerance, &what);
            }
        }
    }
    Ok(())
}

#[test]
fn gradients_at_the_ends_of_the_line_and_of_nothing() -> Result<()> {
    for gpu in each() {
        let ends = [f32::INFINITY, f32::NEG_INFINITY, 3e38, -3e38, f32::NAN];
        let x = gpu.tensor(&ends, &[5])?;
        let got = gpu.ones(&[5], DType::F32)?.gelu_backward(&x)?;
        let got = got.to_vec::<f32>()?;
        assert_eq!(got[..4], [1.0, 0.0, 1.0, 0.0]);
        assert!(got[4].is_nan());
        let none = gpu.zeros(&[0, 3], DType::F32)?;
        assert_eq!(none.softmax_backward(&none, 1)?.shape(), [0, 3]);
        let [by_x, by_weight, _] = none.layer_norm_backward(&none, &[3], None, 1e-5)?;
        assert_eq!(
            (by_x.shape(), by_weight.to_vec::<f32>()?),
            (&[0, 3][..], vec![0.0; 3])
        );
    }
    Ok(())
}

#[test]
fn gradients_refuse_what_does_not_go_together() -> Result<()> {
    let gpu = Gpu::open(Options::from_env()?)?;
    let zeros = |shape: &[usize], dtype| gpu.zeros(shape, dtype).unwrap();
    let (g, other) = (zeros(&[2, 3], DType::F32), zeros(&[3, 2], DType::F32));
    let halves = zeros(&[2, 3], DType::F16);
    refused!(Axis: g.softmax_backward(&g, 2));
    type Call = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let calls: [Call; 4] = [
        |g, x| g.softmax_backward(x, 0),
        |g, x| g.log_softmax_backward(x, 0),
        |g, x| g.gelu_backward(x),
        |g, x| g.layer_norm_backward(x, &[3], None, 1e-5).map(|[x, ..]| x),
    ];
    for call in calls {
        refused!(Shape: call(&g, &other));
        refused!(DType: call(&g, &halves));
        let ints = zeros(&[2, 3], DType::I32);
        refused!(DType: call(&ints, &ints));
    }
    refused!(Shape: g.layer_norm_backward(&g, &[2], None, 1e-5));
    refused!(Shape: g.layer_norm_backward(&g, &[3], Some(&other), 1e-5));
    Ok(())
}
