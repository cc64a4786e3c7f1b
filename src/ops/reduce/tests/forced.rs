//! Runs every form on every device, even if it would not choose it, and compares with the host.

use super::super::*;
use crate::Gpu;
use crate::ops::argreduce::search_as;
use crate::ops::{layer_norm, layer_norm_backward, normalize, softmax};

/// An adapter, and simulations with large and small bindings.
fn gpus() -> Vec<(&'static str, Gpu)> {
    let mut gpus = vec![("adapter", Gpu::open(Default::default()).unwrap())];
    #[cfg(feature = "sim")]
    for (name, max_binding_bytes) in [("simulation", 1 << 30), ("windows", 4 << 10)] {
        let options = crate::sim::SimOptions {
            max_binding_bytes,
            max_storage_bindings: 32,
            ..Default::default()
        };
        gpus.push((name, Gpu::simulated(options).unwrap().0));
    }
    // Without the simulation there is only one device.
    gpus.truncate(3);
    gpus
}

/// Small whole numbers, several of each. Their sums are exact in any order.
fn numbers(len: usize) -> Vec<f32> {
    (0..len)
        .map(|at| ((at * 7919) % 61) as f32 - 30.0)
        .collect()
}

/// Views of a [3, 40, 36] tensor, and axes to fold.
fn cases(x: &Tensor) -> Vec<(Tensor, Vec<isize>)> {
    vec![
        (x.clone(), vec![2]),
        (x.clone(), vec![0]),
        (x.clone(), vec![0, 2]),
        (x.clone(), vec![0, 1, 2]),
        (x.flip(&[0, 2]).unwrap(), vec![1, 2]),
        (x.transpose(0, 2).unwrap(), vec![1]),
        (x.slice(2, Some(1), Some(36), 1).unwrap(), vec![2]),
        (x.slice(2, Some(1), Some(36), 3).unwrap(), vec![2]),
        (x.narrow(2, 0, 5).unwrap(), vec![0, 1]),
    ]
}

fn rows_of(view: &Tensor, folded: Axes) -> Vec<Vec<f32>> {
    let values = view.to_vec::<f32>().unwrap();
    let kept: usize = folded.fold_shape(view.shape(), false).iter().product();
    let mut rows = vec![vec![]; kept];
    for (flat, value) in values.into_iter().enumerate() {
        let (mut left, mut row, mut step) = (flat, 0, 1);
        for axis in (0..view.rank()).rev() {
            let dim = view.shape()[axis];
            if !folded.contains(axis) {
                row += left % dim * step;
                step *= dim;
            }
            left /= dim;
        }
        rows[row].push(value);
    }
    rows
}

/// The results in one dimension, without padding.
fn results(tensor: &Tensor, count: usize) -> Vec<f32> {
    let mut values = tensor.cast(DType::F32).unwrap().to_vec::<f32>().unwrap();
    values.truncate(count);
    values
}

#[test]
fn every_form_that_fits_folds_right_in_one_piece_and_in_parts() {
    for (name, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16, DType::I32] {
            let x = gpu.tensor(&numbers(3 * 40 * 36), &[3, 40, 36]).unwrap();
            let x = x.cast(dtype).unwrap();
            for (view, axes) in cases(&x) {
                let folded = Axes::named("test", &axes, 3).unwrap();
                let expected = rows_of(&view.cast(DType::F32).unwrap(), folded);
                let rows = Rows::new(&view.layout, folded, true).unwrap();
                for form in Form::ALL.into_iter().filter(|form| form.fits(&rows)) {
                    for parts in [1, 3] {
                        let plan = Plan::cut(form, &rows, parts);
                        let ops = [Op::SUM, Op::MAX, Op::MIN, Op::ANY, Op::COUNT, Op::MAX_SIZE];
                        // Norms take only floats.
                        let taken = if dtype == DType::I32 { 5 } else { 6 };
                        for op in ops.into_iter().take(taken) {
                            let out = match op {
                                _ if op == Op::ANY => DType::Bool,
                                _ if op == Op::COUNT => DType::U32,
                                _ if op == Op::SUM && dtype == DType::F16 => DType::F32,
                                _ => dtype,
                            };
                            let got = fold_as(&view, None, op, &rows, plan, out).unwrap();
                            let expected: Vec<f32> = (expected.iter())
                                .map(|row| match op {
                                    _ if op == Op::SUM => row.iter().sum(),
                                    _ if op == Op::MAX => {
                                        row.iter().copied().fold(f32::MIN, f32::max)
                                    }
                                    _ if op == Op::MIN => {
                                        row.iter().copied().fold(f32::MAX, f32::min)
                                    }
                                    _ if op == Op::MAX_SIZE => {
                                        row.iter().map(|v| v.abs()).fold(0.0, f32::max)
                                    }
                                    _ if op == Op::ANY => {
                                        f32::from(u8::from(row.iter().any(|v| *v != 0.0)))
                                    }
                                    _ => row.iter().filter(|v| **v != 0.0).count() as f32,
                                })
                                .collect();
                            let got = results(&got, expected.len());
                            assert_eq!(
                                got, expected,
                                "{name} {dtype} {axes:?} {plan:?} {op:?} {view}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn every_form_that_fits_finds_the_first_extreme() {
    for (name, gpu) in gpus() {
        let x = gpu.tensor(&numbers(3 * 40 * 36), &[3, 40, 36]).unwrap();
        for (view, axes) in cases(&x).into_iter().filter(|(_, axes)| axes.len() == 1) {
            let folded = Axes::named("test", &axes, 3).unwrap();
            let rows = Rows::new(&view.layout, folded, false).unwrap();
            let host = rows_of(&view, folded);
            for form in Form::ALL.into_iter().filter(|form| form.fits(&rows)) {
                for parts in [1, 3] {
                    let plan = Plan::cut(form, &rows, parts);
                    for least in [false, true] {
                        let expected: Vec<f32> = (host.iter())
                            .map(|row| {
                                let sign = if least { -1.0 } else { 1.0 };
                                let best = row.iter().map(|v| sign * v).fold(f32::MIN, f32::max);
                                row.iter().position(|v| sign * v == best).unwrap() as f32
                            })
                            .collect();
                        let got = search_as(&view, &rows, plan, least).unwrap();
                        let got = results(&got, expected.len());
                        assert_eq!(got, expected, "{name} {axes:?} {plan:?} {least}");
                    }
                }
            }
        }
    }
}

#[test]
fn every_form_that_fits_normalizes_right() {
    for (name, gpu) in gpus() {
        // Also ragged rows, which start anywhere.
        let sizes = [
            (7, 36),
            (2, 1040),
            (70, 4),
            (7, 37),
            (2, 1042),
            (70, 3),
            (70, 17),
        ];
        for (lines, length) in sizes {
            let data: Vec<f32> = numbers(lines * length).iter().map(|v| v / 8.0).collect();
            let x = gpu.tensor(&data, &[lines, length]).unwrap();
            let weight = gpu.tensor(&numbers(length), &[length]).unwrap();
            let folded = Axes::from(1, 2);
            let rows = Rows::new(&x.layout, folded, false).unwrap();
            for form in normalize::Form::ALL {
                let soft = softmax::along_as(&x, 1, Some(&rows), form, 0).unwrap();
                let affine = layer_norm::Affine {
                    kind: 0,
                    dtype: x.dtype,
                    weight: Some(weight.clone()),
                    bias: None,
                    eps: 0.5,
                };
                let norm = layer_norm::normalize_as(&x, folded, Some(&rows), form, &affine);
                let (soft, norm) = (
                    soft.to_vec::<f32>().unwrap(),
                    norm.unwrap().to_vec::<f32>().unwrap(),
                );
                for (line, row) in data.chunks(length).enumerate() {
                    let max = row.iter().copied().fold(f32::MIN, f32::max);
                    let total: f32 = row.iter().map(|v| (v - max).exp()).sum();
                    let mean = row.iter().sum::<f32>() / length as f32;
                    let square = row.iter().map(|v| (v - mean).powi(2)).sum::<f32>();
                    let deviation = (square / length as f32 + 0.5).sqrt();
                    for (k, v) in row.iter().enumerate() {
                        let at = line * length + k;
                        let (a, b) = (
                            (v - max).exp() / total,
                            (v - mean) / deviation * numbers(k + 1)[k],
                        );
                        assert!((soft[at] - a).abs() < 1e-5, "{name} {form:?} softmax {at}");
                        assert!(
                            (norm[at] - b).abs() < 1e-3,
                            "{name} {form:?} layer_norm {at}: {} {b}",
                            norm[at]
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn every_form_finds_the_gradient_of_a_normalization() {
    for (name, gpu) in gpus() {
        for (lines, length) in [(7, 36), (2, 1040), (70, 4), (33, 64)] {
            let tensor = |by: f32| {
                let data: Vec<f32> = numbers(lines * length).iter().map(|v| v / by).collect();
                gpu.tensor(&data, &[lines, length]).unwrap()
            };
            let (x, g) = (
                tensor(8.0),
                tensor(16.0).flip(&[0]).unwrap().copy().unwrap(),
            );
            let weight = gpu.tensor(&numbers(length), &[length]).unwrap();
            for (weight, is_centred) in
                [(None, true), (Some(&weight), true), (Some(&weight), false)]
            {
                let by = layer_norm::gradient::Normalization {
                    is_centred,
                    own: vec![1],
                    repeated: vec![0],
                    eps: 0.5,
                };
                let expected = by.normalize(&x).unwrap().by_input(&g, weight).unwrap();
                let problem = layer_norm_backward::Problem {
                    x: &x,
                    weight,
                    length,
                    is_centred,
                    eps: 0.5,
                };
                let rows = x.var(&[1], 0).unwrap();
                for form in layer_norm_backward::Form::ALL {
                    let found = problem.slopes_as(&g, form).unwrap();
                    let apart = (&found.by_input - &expected).unwrap().abs().unwrap();
                    let apart = apart.max_all().unwrap().item::<f32>().unwrap();
                    assert!(apart < 1e-4, "{name} {form:?} {lines} {length}: {apart}");
                    if is_centred {
                        let expected = x.relative_to_first(&[1]).unwrap().mean(&[1]).unwrap();
                        let means = (&found.mean - expected).unwrap();
                        let scales = (&rows + 0.5).unwrap().rsqrt().unwrap();
                        let scales = (&found.scale - scales).unwrap();
                        for apart in [means, scales] {
                            let apart = apart.abs().unwrap().max_all().unwrap();
                            assert!(apart.item::<f32>().unwrap() < 1e-5, "{name} {form:?}");
                        }
                    }
                }
            }
        }
    }
}
