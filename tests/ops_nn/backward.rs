//! The gradients of softmax, layer normalization and gelu. `tests/torch/gradients` compares them
//! with PyTorch.

use lapidary::{DType, Gpu, Options, Result, Tensor};

use crate::devices::{reference, refused};
use crate::ops_reduce::model::*;

#[test]
fn gradients_are_those_of_the_reference() {
    let reference = reference();
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let tolerance = 10.0 * tolerance(dtype);
            let mut noise = noise(dtype);
            let mut made = |shape: &[usize]| {
                let array = Array::new(shape, &mut noise).rounded(dtype);
                array.upload(&gpu, dtype)
            };
            let (x, grad, weight) = (made(&[3, 4, 5]), made(&[3, 4, 5]), made(&[4, 5]));
            let (what, operands) = (format!("{dtype}"), [&grad, &x, &weight]);
            all_same(&what, &reference, &operands, tolerance, |t| {
                let [x, weight, bias] =
                    t[0].layer_norm_backward(&t[1], &[4, 5], Some(&t[2]), 1e-3)?;
                Ok([x, weight, bias, t[0].gelu_backward(&t[1])?])
            });
            for axis in 0..3 {
                let what = format!("{dtype} softmax along {axis}");
                all_same(&what, &reference, &operands, 2.0 * tolerance, |t| {
                    let [y, log] = [t[1].softmax(axis)?, t[1].log_softmax(axis)?];
                    let by_log = t[0].log_softmax_backward(&log, axis)?;
                    Ok([t[0].softmax_backward(&y, axis)?, by_log])
                });
            }
        }
    }
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
        assert_eq!(by_x.shape(), [0, 3]);
        assert_eq!(by_weight.to_vec::<f32>()?, [0.0; 3]);
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
