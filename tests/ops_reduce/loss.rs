//! Losses, RMS and group normalization, rotary embedding.

use lapidary::{
    DType, Error, Gpu, Tensor,
    operations::{ClassLoss, Reduction},
};

use super::model::*;
use crate::devices::reference;

fn check(what: &str, gpu: &Gpu, reference: &Gpu, x: &Tensor, ignore: Option<i64>, bad: bool) {
    let mut shape = x.shape().to_vec();
    let classes = shape.remove(shape.len().min(2) - 1);
    let mut random = fastrand::Rng::with_seed(3);
    for index in [DType::I32, DType::U32] {
        let number = |_| match (random.u32(0..5), ignore) {
            (0, Some(ignore)) if ignore >= 0 || index == DType::I32 => ignore as f64,
            (1, _) if bad => classes as f64 + 1.0,
            _ => random.usize(0..classes) as f64,
        };
        let targets = Array::new(&shape, number).upload(gpu, index);
        for reduction in [Reduction::None, Reduction::Sum, Reduction::Mean] {
            let what = format!("{what} {index} ignore {ignore:?} {reduction:?}");
            let operands = [x, &targets];
            let error = 4.0 * tolerance(x.dtype());
            same(&what, reference, &operands, error, |t| {
                t[0].cross_entropy(&t[1], ignore, reduction)
            });
            same(&what, reference, &operands, error, |t| {
                t[0].nll_loss(&t[1], ignore, reduction)
            });
        }
    }
}

#[test]
fn cross_entropy_whatever_view_holds_the_classes() {
    let reference = reference();
    for (name, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            const SHAPES: &[&[usize]] = &[&[5], &[1, 1], &[6, 5], &[3, 7, 4], &[2, 1000]];
            for shape in shapes_for(dtype, SHAPES) {
                let array = Array::new(shape, noise(dtype)).rounded(dtype);
                let tensor = array.upload(&gpu, dtype);
                for (view, _, x) in views(&array, &tensor) {
                    let what = format!("{name} {dtype} {shape:?} {view}");
                    check(&what, &gpu, &reference, &x, Some(1), false);
                }
                for (ignore, bad) in [(None, false), (Some(-100), false), (Some(2), true)] {
                    check(name, &gpu, &reference, &tensor, ignore, bad);
                }
            }
        }
        let x = gpu.zeros(&[2, 3], DType::F32).unwrap();
        let none = gpu.tensor(&[-1, -1], &[2]).unwrap();
        let mean = x.cross_entropy(&none, Some(-1), Reduction::Mean).unwrap();
        assert!(mean.item::<f32>().unwrap().is_nan(), "{name}");
        let wrong = gpu.tensor(&[3, -2], &[2]).unwrap();
        for loss in [Tensor::cross_entropy, Tensor::nll_loss] {
            let got = loss(&x, &wrong, None, Reduction::None).unwrap();
            let got = got.to_vec::<f32>().unwrap();
            assert!(got.iter().all(|loss| loss.is_nan()), "{name}: {got:?}");
        }
        let empty = gpu.zeros(&[0, 3], DType::F32).unwrap();
        let nothing = gpu.zeros(&[0], DType::I32).unwrap();
        let got = empty.cross_entropy(&nothing, None, Reduction::Sum).unwrap();
        assert_eq!(got.item::<f32>().unwrap(), 0.0, "{name}");
        let classless = gpu.zeros(&[2, 0], DType::F32).unwrap();
        let got = classless
            .cross_entropy(&none, None, Reduction::None)
            .unwrap();
        assert!(
            got.to_vec::<f32>().unwrap().iter().all(|v| v.is_nan()),
            "{name}"
        );
    }
}

#[test]
fn losses_refuse_what_does_not_go_together() {
    for (name, gpu) in gpus() {
        let x = gpu.zeros(&[2, 3], DType::F32).unwrap();
        let targets = gpu.zeros(&[2], DType::I32).unwrap();
        let refused = |x: &Tensor, targets: &Tensor| {
            x.cross_entropy(targets, None, Reduction::Mean)
                .expect_err("a mistake")
        };
        let bools = gpu.zeros(&[2], DType::Bool).unwrap();
        assert!(matches!(refused(&x, &bools), Error::DType { .. }));
        assert!(matches!(refused(&targets, &targets), Error::DType { .. }));
        let three = gpu.zeros(&[3], DType::I32).unwrap();
        assert!(matches!(refused(&x, &three), Error::Shape { .. }));
        let one = gpu.scalar(1.0_f32).unwrap();
        assert!(matches!(refused(&one, &targets), Error::Shape { .. }));
        assert!(matches!(
            targets.mse_loss(&targets, Reduction::Mean),
            Err(Error::DType { .. })
        ));
        let a = gpu.tensor(&[1.0_f32, 2.0, 4.0, 0.5], &[2, 2]).unwrap();
        let b = gpu.tensor(&[1.0_f32, 1.0], &[2]).unwrap();
        let got = a
            .mse_loss(&b, Reduction::None)
            .unwrap()
            .to_vec::<f32>()
            .unwrap();
        assert_eq!(got, [0.0, 1.0, 9.0, 0.25], "{name}");
        let mean = a
            .mse_loss(&b, Reduction::Mean)
            .unwrap()
            .item::<f32>()
            .unwrap();
        let sum = a
            .mse_loss(&b, Reduction::Sum)
            .unwrap()
            .item::<f32>()
            .unwrap();
        assert_eq!((mean, sum), (10.25 / 4.0, 10.25), "{name}");
    }
}

#[test]
fn rms_norm_divides_by_the_root_of_the_mean_square() {
    const SHAPES: [&[usize]; 6] = [&[5], &[3, 0], &[70, 64], &[9, 37], &[4, 8, 12], &[2, 5000]];
    let reference = reference();
    for (name, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for shape in SHAPES {
                let array = Array::new(shape, noise(dtype)).rounded(dtype);
                let tensor = array.upload(&gpu, dtype);
                for (view, _, x) in views(&array, &tensor) {
                    let width = x.shape()[x.rank() - 1];
                    let weight = Array::new(&[width], |at| at as f64 % 3.0 - 0.5);
                    let weight = weight.upload(&gpu, DType::F32);
                    let what = format!("{name} {dtype} {shape:?} {view}");
                    for operands in [&[&x][..], &[&x, &weight]] {
                        same(&what, &reference, operands, tolerance(dtype), |t| {
                            t[0].rms_norm(&[width], t.get(1), 0.25)
                        });
                    }
                }
            }
        }
        let t = gpu.zeros(&[2, 3], DType::F32).unwrap();
        assert!(matches!(
            t.rms_norm(&[2], None, 0.0),
            Err(Error::Shape { .. })
        ));
        assert!(matches!(
            t.rms_norm(&[3], Some(&t), 0.0),
            Err(Error::Shape { .. })
        ));
    }
}

#[test]
fn group_norm_of_f16_rounds_once() {
    for (name, gpu) in gpus() {
        let shape = [2, 6, 7];
        let array = Array::new(&shape, noise(DType::F16)).rounded(DType::F16);
        let weight = Array::new(&[6], |at| 1.1 + 0.7 * at as f64).rounded(DType::F32);
        let bias = Array::new(&[6], |at| 0.3 - 0.9 * at as f64).rounded(DType::F32);
        let [w, b] = [&weight, &bias].map(|one| one.upload(&gpu, DType::F32));
        let x = array.upload(&gpu, DType::F16);
        let got = x.group_norm(3, Some(&w), Some(&b), 1e-3).unwrap();
        for (at, &got) in download(&got).values.iter().enumerate() {
            let row = &array.values[at / 14 * 14..][..14];
            let mean = row.iter().sum::<f64>() / 14.0;
            let square: f64 = row.iter().map(|v| (v - mean).powi(2)).sum();
            let value = (array.values[at] - mean) / (square / 14.0 + 1e-3).sqrt();
            let channel = at / 7 % 6;
            let wanted = value * weight.values[channel] + bias.values[channel];
            // Half a unit in the last place of eleven bits, and the error of f32.
            let half = (wanted.abs().log2().floor().max(-14.0) - 11.0).exp2();
            assert!(
                (got - wanted).abs() <= half + 4e-6,
                "{name}: element {at} is {got}, not {wanted}"
            );
        }
    }
}

#[test]
fn group_norm_normalizes_the_channels_of_a_group_together() {
    let reference = reference();
    for (name, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for (shape, groups) in [
                (&[2, 6][..], 3),
                (&[3, 4, 5], 1),
                (&[2, 8, 3, 4], 4),
                (&[1, 4, 33], 4),
                (&[0, 4, 3], 2),
            ] {
                let x = Array::new(shape, noise(dtype))
                    .rounded(dtype)
                    .upload(&gpu, dtype);
                let weight = Array::new(&shape[1..2], |at| at as f64 - 1.5);
                let bias = Array::new(&shape[1..2], |at| 0.5 * at as f64);
                let [w, b] = [weight, bias].map(|one| one.upload(&gpu, DType::F32));
                let what = format!("{name} {dtype} {shape:?} {groups}");
                for operands in [&[&x][..], &[&x, &w, &b]] {
                    same(&what, &reference, operands, 3.0 * tolerance(dtype), |t| {
                        t[0].group_norm(groups, t.get(1), t.get(2), 1e-2)
                    });
                }
            }
        }
        let t = gpu.zeros(&[2, 6], DType::F32).unwrap();
        for groups in [0, 4] {
            let refused = t.group_norm(groups, None, None, 0.0);
            assert!(matches!(refused, Err(Error::Shape { .. })));
        }
        assert!(matches!(
            t.group_norm(2, Some(&t), None, 0.0),
            Err(Error::Shape { .. })
        ));
        let flat = gpu.zeros(&[6], DType::F32).unwrap();
        assert!(matches!(
            flat.group_norm(2, None, None, 0.0),
            Err(Error::Shape { .. })
        ));
    }
}

#[test]
fn pairs_are_turned_by_the_angle_of_their_position() {
    let reference = reference();
    for (name, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for (shape, pairs) in [
                (&[5, 4][..], 2),
                (&[3, 7, 9], 3),
                (&[2, 3, 6, 8], 4),
                (&[4, 2], 0),
            ] {
                let array = Array::new(shape, noise(dtype)).rounded(dtype);
                let tensor = array.upload(&gpu, dtype);
                for (view, _, x) in views(&array, &tensor) {
                    let [.., positions, width] = *x.shape() else {
                        continue;
                    };
                    if width < 2 * pairs {
                        continue;
                    }
                    let of = |f: fn(f64) -> f64| {
                        let angles = Array::new(&[positions, pairs], |at| f(0.37 * at as f64));
                        angles.rounded(DType::F32).upload(&gpu, DType::F32)
                    };
                    let operands = [&x, &of(f64::cos), &of(f64::sin)];
                    for interleaved in [false, true] {
                        let what = format!("{name} {dtype} {shape:?} {view} {interleaved}");
                        same(&what, &reference, &operands, tolerance(dtype), |t| {
                            t[0].rotary(&t[1], &t[2], interleaved)
                        });
                    }
                }
            }
        }
        let x = gpu.zeros(&[5, 4], DType::F32).unwrap();
        let angles = gpu.zeros(&[5, 2], DType::F32).unwrap();
        let wide = gpu.zeros(&[5, 3], DType::F32).unwrap();
        assert!(matches!(
            x.rotary(&wide, &wide, false),
            Err(Error::Shape { .. })
        ));
        assert!(matches!(
            x.rotary(&angles, &wide, false),
            Err(Error::Shape { .. })
        ));
        assert!(matches!(
            angles.rotary(&x.t().unwrap(), &x, true),
            Err(Error::Shape { .. })
        ));
        let ints = gpu.zeros(&[5, 4], DType::I32).unwrap();
        assert!(matches!(
            ints.rotary(&angles, &angles, true),
            Err(Error::DType { .. })
        ));
    }
}

/// −ln of the probability that softmax gives to each class, along axis 1.
fn surprise(logits: &Array) -> Array {
    let (classes, inner) = (logits.shape[1], logits.shape[2..].iter().product::<usize>());
    let mut made = logits.clone();
    for row in 0..logits.values.len() / classes {
        let at = |class: usize| (row / inner * classes + class) * inner + row % inner;
        let sum: f64 = (0..classes)
            .map(|class| logits.values[at(class)].exp())
            .sum();
        (0..classes).for_each(|class| made.values[at(class)] = sum.ln() - logits.values[at(class)]);
    }
    made
}

#[test]
fn weights_and_smoothing_change_losses_as_their_sums_say() {
    for (name, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16] {
            let (shape, share) = ([3, 5, 2], 0.25);
            let x = Array::new(&shape, |at| ((at * 7) % 11) as f64 / 4.0).rounded(dtype);
            let surprise = surprise(&x);
            let weights = Array::new(&[5], |class| [0.5, 1.0, 0.0, 2.0, 4.0][class]);
            // Class 7 does not exist and is ignored.
            let targets = Array::new(&[3, 2], |at| [0.0, 3.0, 7.0, 2.0, 4.0, 1.0][at]);
            let (mut losses, mut counts) = (Vec::new(), 0.0);
            for (at, &target) in targets.values.iter().enumerate() {
                let of = |class: usize| {
                    weights.values[class] * surprise.values[(at / 2 * 5 + class) * 2 + at % 2]
                };
                let is_counted = target < 5.0;
                let spread: f64 = (0..5).map(of).sum::<f64>() * share / 5.0;
                losses.push(match is_counted {
                    true => of(target as usize) * (1.0 - share) + spread,
                    false => 0.0,
                });
                counts += if is_counted {
                    weights.values[target as usize]
                } else {
                    0.0
                };
            }
            let sum: f64 = losses.iter().sum();
            let (x, weights) = (x.upload(&gpu, dtype), weights.upload(&gpu, DType::F32));
            for index in [DType::I32, DType::U32] {
                let targets = targets.upload(&gpu, index);
                for (reduction, shape, values) in [
                    (Reduction::None, vec![3, 2], losses.clone()),
                    (Reduction::Sum, vec![], vec![sum]),
                    (Reduction::Mean, vec![], vec![sum / counts]),
                ] {
                    let options = ClassLoss {
                        weights: Some(&weights),
                        ignore: Some(7),
                        label_smoothing: share as f32,
                        reduction,
                    };
                    let got = x.cross_entropy_with(&targets, &options).unwrap();
                    let what = format!("{name} {dtype} {index} {reduction:?}");
                    assert_eq!(got.dtype(), dtype, "{what}");
                    let expected = Array { shape, values };
                    assert_close(&download(&got), &expected, 4.0 * tolerance(dtype), &what);
                }
            }
        }
    }
}

#[test]
fn weights_that_do_not_fit_the_classes_are_refused() {
    for (_, gpu) in gpus() {
        let x = gpu.zeros(&[2, 3], DType::F32).unwrap();
        let targets = gpu.zeros(&[2], DType::I32).unwrap();
        let [two, whole] = [
            gpu.ones(&[2], DType::F32).unwrap(),
            gpu.ones(&[3], DType::I32).unwrap(),
        ];
        let of = |weights| ClassLoss {
            weights: Some(weights),
            ..ClassLoss::default()
        };
        let got = x.cross_entropy_with(&targets, &of(&two));
        assert!(matches!(got, Err(Error::Shape { .. })));
        let got = x.nll_loss_with(&targets, &of(&whole));
        assert!(matches!(got, Err(Error::DType { .. })));
        for label_smoothing in [-0.5, 1.5, f32::NAN] {
            let options = ClassLoss {
                label_smoothing,
                ..ClassLoss::default()
            };
            let got = x.cross_entropy_with(&targets, &options);
            assert!(
                matches!(got, Err(Error::Option { .. })),
                "{label_smoothing}"
            );
            let got = x.nll_loss_with(&targets, &options);
            assert!(
                matches!(got, Err(Error::Option { .. })),
                "{label_smoothing}"
            );
        }
        let got = x.cross_entropy(&x, Some(1), Reduction::Mean);
        assert!(matches!(got, Err(Error::Option { .. })));
        let got = x.cross_entropy(&two, None, Reduction::Mean);
        assert!(matches!(got, Err(Error::Shape { .. })));
        let (_, other) = gpus().swap_remove(0);
        let far = other.ones(&[3], DType::F32).unwrap();
        let got = x.cross_entropy_with(&targets, &of(&far));
        assert!(matches!(got, Err(Error::Foreign { .. })));
    }
}
