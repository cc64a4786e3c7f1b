//! Losses, RMS and group normalization, rotary embedding.

use lapidary::{
    DType, Gpu, Result, Tensor,
    operations::{ClassLoss, Reduction},
};

use super::model::*;
use crate::devices::{gives, reference, refused};

/// The losses of `x` with targets of both types, by these reductions.
fn check(
    what: &str,
    [gpu, reference]: [&Gpu; 2],
    x: &Tensor,
    (ignore, bad): (Option<i64>, bool),
    reductions: &[Reduction],
) {
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
        for &reduction in reductions {
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
fn cross_entropy_whatever_view_holds_the_classes() -> Result<()> {
    let reference = reference();
    for (name, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            const SHAPES: &[&[usize]] = &[&[5], &[1, 1], &[6, 5], &[3, 7, 4], &[2, 1000]];
            for shape in shapes_for(dtype, SHAPES) {
                let tensor = made(&gpu, shape, dtype);
                let gpus = [&gpu, &reference];
                // Each row has its loss, whatever the reduction.
                for (view, x) in views(&tensor) {
                    let what = format!("{name} {dtype} {shape:?} {view}");
                    check(&what, gpus, &x, (Some(1), false), &[Reduction::None]);
                }
                for of in [
                    (Some(1), false),
                    (None, false),
                    (Some(-100), false),
                    (Some(2), true),
                ] {
                    let all = [Reduction::None, Reduction::Sum, Reduction::Mean];
                    check(name, gpus, &tensor, of, &all);
                }
            }
        }
        let x = gpu.zeros(&[2, 3], DType::F32)?;
        let none = gpu.tensor(&[-1, -1], &[2])?;
        let mean = x.cross_entropy(&none, Some(-1), Reduction::Mean)?;
        assert!(mean.item::<f32>()?.is_nan(), "{name}");
        let wrong = gpu.tensor(&[3, -2], &[2])?;
        for loss in [Tensor::cross_entropy, Tensor::nll_loss] {
            let got = loss(&x, &wrong, None, Reduction::None)?;
            let got = got.to_vec::<f32>()?;
            assert!(got.iter().all(|loss| loss.is_nan()), "{name}: {got:?}");
        }
        let empty = gpu.zeros(&[0, 3], DType::F32)?;
        let nothing = gpu.zeros(&[0], DType::I32)?;
        let got = empty.cross_entropy(&nothing, None, Reduction::Sum)?;
        assert_eq!(got.item::<f32>()?, 0.0, "{name}");
        let classless = gpu.zeros(&[2, 0], DType::F32)?;
        let got = classless.cross_entropy(&none, None, Reduction::None)?;
        assert!(got.to_vec::<f32>()?.iter().all(|v| v.is_nan()), "{name}");
    }
    Ok(())
}

#[test]
fn losses_refuse_what_does_not_go_together() -> Result<()> {
    for gpu in each() {
        let x = gpu.zeros(&[2, 3], DType::F32)?;
        let targets = gpu.zeros(&[2], DType::I32)?;
        let loss = |x: &Tensor, of: &Tensor| x.cross_entropy(of, None, Reduction::Mean);
        let bools = gpu.zeros(&[2], DType::Bool)?;
        refused!(DType: loss(&x, &bools));
        refused!(DType: loss(&targets, &targets));
        let three = gpu.zeros(&[3], DType::I32)?;
        refused!(Shape: loss(&x, &three));
        let one = gpu.scalar(1.0_f32)?;
        refused!(Shape: loss(&one, &targets));
        refused!(DType: targets.mse_loss(&targets, Reduction::Mean));
        let a = gpu.tensor(&[1.0_f32, 2.0, 4.0, 0.5], &[2, 2])?;
        let b = gpu.tensor(&[1.0_f32, 1.0], &[2])?;
        gives!(f32: a.mse_loss(&b, Reduction::None) => [0.0, 1.0, 9.0, 0.25]);
        let mean = a.mse_loss(&b, Reduction::Mean)?.item::<f32>()?;
        let sum = a.mse_loss(&b, Reduction::Sum)?.item::<f32>()?;
        assert_eq!((mean, sum), (10.25 / 4.0, 10.25));
    }
    Ok(())
}

#[test]
fn rms_norm_divides_by_the_root_of_the_mean_square() -> Result<()> {
    const SHAPES: [&[usize]; 6] = [&[5], &[3, 0], &[70, 64], &[9, 37], &[4, 8, 12], &[2, 5000]];
    let reference = reference();
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for shape in SHAPES {
                let tensor = made(&gpu, shape, dtype);
                for (view, x) in views(&tensor) {
                    let width = x.shape()[x.rank() - 1];
                    let weight = Array::new(&[width], |at| at as f64 % 3.0 - 0.5);
                    let weight = weight.upload(&gpu, DType::F32);
                    let what = format!("{dtype} {shape:?} {view}");
                    for operands in [&[&x][..], &[&x, &weight]] {
                        same(&what, &reference, operands, tolerance(dtype), |t| {
                            t[0].rms_norm(&[width], t.get(1), 0.25)
                        });
                    }
                }
            }
        }
        let t = gpu.zeros(&[2, 3], DType::F32)?;
        refused!(Shape: t.rms_norm(&[2], None, 0.0));
        refused!(Shape: t.rms_norm(&[3], Some(&t), 0.0));
    }
    Ok(())
}

#[test]
fn group_norm_of_f16_rounds_once() -> Result<()> {
    let reference = reference();
    for gpu in each() {
        let x = made(&gpu, &[2, 6, 7], DType::F16);
        let weight = Array::new(&[6], |at| 1.1 + 0.7 * at as f64).upload(&gpu, DType::F32);
        let bias = Array::new(&[6], |at| 0.3 - 0.9 * at as f64).upload(&gpu, DType::F32);
        let far = [&x.cast(DType::F32)?, &weight, &bias].map(|t| t.to(&reference).unwrap());
        let exact = far[0].group_norm(3, Some(&far[1]), Some(&far[2]), 1e-3)?;
        let got = x.group_norm(3, Some(&weight), Some(&bias), 1e-3)?;
        is_rounded_once(&got, &exact, "a group");
    }
    Ok(())
}

#[test]
fn group_norm_normalizes_the_channels_of_a_group_together() -> Result<()> {
    let reference = reference();
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for (shape, groups) in [
                (&[2, 6][..], 3),
                (&[3, 4, 5], 1),
                (&[2, 8, 3, 4], 4),
                (&[1, 4, 33], 4),
                (&[0, 4, 3], 2),
            ] {
                let x = made(&gpu, shape, dtype);
                let weight = Array::new(&shape[1..2], |at| at as f64 - 1.5);
                let bias = Array::new(&shape[1..2], |at| 0.5 * at as f64);
                let [w, b] = [weight, bias].map(|one| one.upload(&gpu, DType::F32));
                let what = format!("{dtype} {shape:?} {groups}");
                for operands in [&[&x][..], &[&x, &w, &b]] {
                    same(&what, &reference, operands, 3.0 * tolerance(dtype), |t| {
                        t[0].group_norm(groups, t.get(1), t.get(2), 1e-2)
                    });
                }
            }
        }
        let t = gpu.zeros(&[2, 6], DType::F32)?;
        for groups in [0, 4] {
            refused!(Shape: t.group_norm(groups, None, None, 0.0));
        }
        refused!(Shape: t.group_norm(2, Some(&t), None, 0.0));
        let flat = gpu.zeros(&[6], DType::F32)?;
        refused!(Shape: flat.group_norm(2, None, None, 0.0));
    }
    Ok(())
}

#[test]
fn pairs_are_turned_by_the_angle_of_their_position() -> Result<()> {
    let reference = reference();
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for (shape, pairs) in [
                (&[5, 4][..], 2),
                (&[3, 7, 9], 3),
                (&[2, 3, 6, 8], 4),
                (&[4, 2], 0),
            ] {
                let tensor = made(&gpu, shape, dtype);
                for (view, x) in views(&tensor) {
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
                        let what = format!("{dtype} {shape:?} {view} {interleaved}");
                        same(&what, &reference, &operands, tolerance(dtype), |t| {
                            t[0].rotary(&t[1], &t[2], interleaved)
                        });
                    }
                }
            }
        }
        let x = gpu.zeros(&[5, 4], DType::F32)?;
        let angles = gpu.zeros(&[5, 2], DType::F32)?;
        let wide = gpu.zeros(&[5, 3], DType::F32)?;
        refused!(Shape: x.rotary(&wide, &wide, false));
        refused!(Shape: x.rotary(&angles, &wide, false));
        refused!(Shape: angles.rotary(&x.t()?, &x, true));
        let ints = gpu.zeros(&[5, 4], DType::I32)?;
        refused!(DType: ints.rotary(&angles, &angles, true));
    }
    Ok(())
}

#[test]
fn weights_and_smoothing_change_losses_of_every_type() {
    let reference = reference();
    for gpu in each() {
        for dtype in [DType::F32, DType::F16] {
            let x = Array::new(&[3, 5, 2], |at| ((at * 7) % 11) as f64 / 4.0).upload(&gpu, dtype);
            let weights = Array::new(&[5], |class| [0.5, 1.0, 0.0, 2.0, 4.0][class]);
            let weights = weights.upload(&gpu, DType::F32);
            // Class 7 does not exist and is ignored.
            let targets = Array::new(&[3, 2], |at| [0.0, 3.0, 7.0, 2.0, 4.0, 1.0][at]);
            for index in [DType::I32, DType::U32] {
                let targets = targets.upload(&gpu, index);
                for reduction in [Reduction::None, Reduction::Sum, Reduction::Mean] {
                    let what = format!("{dtype} {index} {reduction:?}");
                    let (operands, error) = ([&x, &targets, &weights], 4.0 * tolerance(dtype));
                    same(&what, &reference, &operands, error, |t| {
                        let options = ClassLoss {
                            weights: Some(&t[2]),
                            ignore: Some(7),
                            label_smoothing: 0.25,
                            reduction,
                        };
                        t[0].cross_entropy_with(&t[1], &options)
                    });
                }
            }
        }
    }
}

#[test]
fn weights_that_do_not_fit_the_classes_are_refused() -> Result<()> {
    for gpu in each() {
        let x = gpu.zeros(&[2, 3], DType::F32)?;
        let targets = gpu.zeros(&[2], DType::I32)?;
        let [two, whole] = [gpu.ones(&[2], DType::F32)?, gpu.ones(&[3], DType::I32)?];
        let of = |weights| ClassLoss {
            weights: Some(weights),
            ..ClassLoss::default()
        };
        refused!(Shape: x.cross_entropy_with(&targets, &of(&two)));
        refused!(DType: x.nll_loss_with(&targets, &of(&whole)));
        for label_smoothing in [-0.5, 1.5, f32::NAN] {
            let options = ClassLoss {
                label_smoothing,
                ..ClassLoss::default()
            };
            refused!(Option: x.cross_entropy_with(&targets, &options));
            refused!(Option: x.nll_loss_with(&targets, &options));
        }
        refused!(Option: x.cross_entropy(&x, Some(1), Reduction::Mean));
        refused!(Shape: x.cross_entropy(&two, None, Reduction::Mean));
        let other = reference();
        let far = other.ones(&[3], DType::F32)?;
        refused!(Foreign: x.cross_entropy_with(&targets, &of(&far)));
    }
    Ok(())
}
