//! Softmax, layer normalization, and norms of channels and rows.

use lapidary::{DType, Error, Result, Tensor};

use super::model::*;

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

fn check_softmax(what: &str, array: &Array, tensor: &Tensor) {
    let tolerance = tolerance(tensor.dtype());
    for axis in 0..array.shape.len() {
        let (_, rows) = array.rows(&[axis]);
        let stats: Vec<(f64, f64)> = (rows.iter())
            .map(|row| {
                let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                (max, row.iter().map(|v| (v - max).exp()).sum())
            })
            .collect();
        let row_of = |index: &[usize]| {
            let kept = (0..index.len()).filter(|&at| at != axis);
            kept.fold(0, |row, at| row * array.shape[at] + index[at])
        };
        for log in [false, true] {
            let expected = Array::new(&array.shape, |flat| {
                let (max, sum) = stats[row_of(&array.index(flat))];
                let value = array.values[flat] - max;
                if log {
                    value - sum.ln()
                } else {
                    value.exp() / sum
                }
            });
            let along = axis as isize;
            let got = if log {
                tensor.log_softmax(along)
            } else {
                tensor.softmax(along)
            };
            let got = got.unwrap();
            assert_eq!(got.dtype(), tensor.dtype());
            assert_close(
                &download(&got),
                &expected,
                tolerance,
                &format!("{what} axis {axis} log {log}"),
            );
        }
    }
}

#[test]
fn softmax_agrees_with_the_model_along_every_axis_of_every_view() {
    for (name, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for shape in shapes_for(dtype, SHAPES) {
                let array = Array::new(shape, noise(dtype)).rounded(dtype);
                let tensor = array.upload(&gpu, dtype);
                for (view, array, tensor) in views(&array, &tensor) {
                    check_softmax(&format!("{name} {dtype} {shape:?} {view}"), &array, &tensor);
                }
            }
        }
        let ints = gpu.zeros(&[3], DType::I32).unwrap();
        assert!(matches!(ints.softmax(0), Err(Error::DType { .. })));
    }
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
    for (name, gpu) in gpus() {
        // Weights of 3 and of 5 elements are not whole vec4s.
        let widths = [4, 3, 5].map(|width: usize| {
            let value = |at: usize| rows[at / width][at % width % 4];
            Array::new(&[8, width], value).rounded(DType::F32)
        });
        let all = widths
            .each_ref()
            .map(|array| (array, array.upload(&gpu, DType::F32)));
        let views = all.iter().flat_map(|(array, tensor)| views(array, tensor));
        for (view, array, tensor) in views {
            // Extremes of the type overflow along the other axis, so only rows are compared.
            if view == "transposed" {
                continue;
            }
            let last = array.shape.len() as isize - 1;
            let got = download(&tensor.softmax(last).unwrap());
            let logs = download(&tensor.log_softmax(last).unwrap());
            for row in 0..array.values.len() / array.shape[last as usize] {
                let range =
                    row * array.shape[last as usize]..(row + 1) * array.shape[last as usize];
                let (input, output) = (&array.values[range.clone()], &got.values[range.clone()]);
                let logs = &logs.values[range];
                let max = input.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let is_nan = !max.is_finite() || input.iter().any(|v| v.is_nan());
                let what = format!(
                    "{name} {view}: softmax of {input:?} is {output:?}, its logarithm {logs:?}"
                );
                match is_nan {
                    true => assert!(output.iter().chain(logs).all(|v| v.is_nan()), "{what}"),
                    false => {
                        let is_one = |sum: f64| (sum - 1.0).abs() < 1e-5;
                        assert!(is_one(output.iter().sum()), "{what}");
                        assert!(is_one(logs.iter().map(|v| v.exp()).sum()), "{what}");
                    }
                }
            }
        }
    }
}

fn layer_norm_model(
    array: &Array,
    n: usize,
    weight: Option<&Array>,
    bias: Option<&Array>,
) -> Array {
    let length: usize = array.shape[array.shape.len() - n..].iter().product();
    let stats: Vec<(f64, f64)> = (array.values.chunks(length.max(1)))
        .map(|row| {
            let mean = row.iter().sum::<f64>() / length as f64;
            let squares = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
            (mean, (squares / length as f64 + 1e-5).sqrt())
        })
        .collect();
    Array::new(&array.shape, |flat| {
        let (k, (mean, deviation)) = (flat % length, stats[flat / length]);
        let y = (array.values[flat] - mean) / deviation;
        let y = y * weight.map_or(1.0, |weight| weight.values[k]);
        y + bias.map_or(0.0, |bias| bias.values[k])
    })
}

#[test]
fn layer_norm_agrees_with_the_model_with_and_without_weight_and_bias() {
    for (name, gpu) in gpus() {
        for (dtype, affine) in [
            (DType::F32, DType::F32),
            (DType::F16, DType::F16),
            (DType::F16, DType::F32),
            (DType::Bf16, DType::Bf16),
        ] {
            for shape in shapes_for(dtype, SHAPES) {
                let array = Array::new(shape, noise(dtype)).rounded(dtype);
                let tensor = array.upload(&gpu, dtype);
                for (view, array, tensor) in views(&array, &tensor) {
                    for n in 1..=array.shape.len().min(2) {
                        let normalized = &array.shape[array.shape.len() - n..];
                        let weight = Array::new(normalized, noise(affine)).rounded(affine);
                        let bias = Array::new(normalized, |k| k as f64 / 8.0).rounded(affine);
                        let (w, b) = (weight.upload(&gpu, affine), bias.upload(&gpu, affine));
                        for (weight, w) in [(None, None), (Some(&weight), Some(&w))] {
                            for (bias, b) in [(None, None), (Some(&bias), Some(&b))] {
                                let got = tensor.layer_norm(normalized, w, b, 1e-5).unwrap();
                                let expected = layer_norm_model(&array, n, weight, bias);
                                let what = format!("{name} {dtype} {affine} {shape:?} {view} {n}");
                                let tolerance = 4.0 * tolerance(dtype);
                                assert_close(&download(&got), &expected, tolerance, &what);
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn layer_norm_checks_its_operands_and_reads_views_of_weights() {
    for (_, gpu) in gpus() {
        let array = Array::new(&[3, 8], noise(DType::F32));
        let x = array.upload(&gpu, DType::F32);
        let long = Array::new(&[17], |k| k as f64);
        let weight = long
            .upload(&gpu, DType::F32)
            .slice(0, Some(1), None, 2)
            .unwrap();
        let model = Array::new(&[8], |k| (1 + 2 * k) as f64);
        let shifted = long.upload(&gpu, DType::F32).narrow(0, 3, 8).unwrap();
        let bias = Array::new(&[8], |k| (3 + k) as f64);
        let got = x
            .layer_norm(&[8], Some(&weight), Some(&shifted), 1e-5)
            .unwrap();
        let expected = layer_norm_model(&array, 1, Some(&model), Some(&bias));
        assert_close(&download(&got), &expected, 1e-5, "views");
        assert!(matches!(
            x.layer_norm(&[], None, None, 1e-5),
            Err(Error::Shape { .. })
        ));
        assert!(matches!(
            x.layer_norm(&[3], None, None, 1e-5),
            Err(Error::Shape { .. })
        ));
        assert!(matches!(
            x.layer_norm(&[8], Some(&x), None, 1e-5),
            Err(Error::Shape { .. })
        ));
        let ints = gpu.zeros(&[8], DType::I32).unwrap();
        assert!(matches!(
            x.layer_norm(&[8], Some(&ints), None, 1e-5),
            Err(Error::DType { .. })
        ));
    }
}

#[test]
fn norms_of_channels_and_of_rows() -> Result<()> {
    for (name, gpu) in gpus() {
        let x = gpu.rand_normal(&[2, 3, 5], 4.0, 2.0, 1, DType::F32)?;
        let y = x.instance_norm(None, None, 0.0)?;
        for (number, channel) in y.reshape(&[6, 5])?.unbind(0)?.iter().enumerate() {
            assert!(
                channel.mean_all()?.item::<f32>()?.abs() < 1e-5,
                "{name} {number}"
            );
            let spread = channel.var_all(0)?.item::<f32>()?;
            assert!((spread - 1.0).abs() < 1e-4, "{name} {number}: {spread}");
        }
        assert_eq!(
            x.narrow(0, 0, 0)?.instance_norm(None, None, 0.1)?.shape(),
            [0, 3, 5]
        );
        let two = gpu.ones(&[2], DType::F32)?;
        for refused in [
            x.select(0, 0)?.instance_norm(None, None, 0.1),
            x.narrow(2, 0, 1)?.instance_norm(None, None, 0.1),
            x.instance_norm(Some(&two), None, 0.1),
            x.instance_norm(None, Some(&two), 0.1),
        ] {
            assert!(matches!(refused, Err(Error::Shape { .. })), "{refused:?}");
        }
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            // The norm of f16 is beyond its range, and a row of zeros stays.
            let x = gpu
                .tensor(&[3e4_f32, 4e4, 0.0, 0.0], &[2, 2])?
                .cast(dtype)?;
            let got = x
                .normalize(2, -1, 1e-12)?
                .cast(DType::F32)?
                .to_vec::<f32>()?;
            for (got, expected) in got.iter().zip([0.6, 0.8, 0.0, 0.0]) {
                assert!((got - expected).abs() < 4e-3, "{name} {dtype}: {got}");
            }
        }
        assert_eq!(
            gpu.scalar(-2.0_f32)?
                .normalize(1, 0, 1e-12)?
                .item::<f32>()?,
            -1.0
        );
        assert!(matches!(x.normalize(2, 3, 0.1), Err(Error::Axis { .. })));
        let ints = gpu.zeros(&[3], DType::I32)?;
        assert!(matches!(
            ints.normalize(2, 0, 0.1),
            Err(Error::DType { .. })
        ));
    }
    Ok(())
}
