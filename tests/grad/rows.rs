//! Everything over rows: softmax, normalization, losses, scans, sorting, extremes.

use lapidary::operations::{ClassLoss, Reduction};
use lapidary::{DType, Gpu, Result, Tensor};

use super::check::{check as check_within, gpu, parameter, spread};

const REDUCTIONS: [Reduction; 3] = [Reduction::None, Reduction::Mean, Reduction::Sum];

/// As `check_within`, of results that are larger: gradients here are small, and so would be a
/// mistake in them.
fn check(
    gpu: &Gpu,
    what: &str,
    operands: &[(&[f32], &[usize])],
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    check_within(gpu, what, operands, |x| f(x)? * 16.0);
}

type Unary = fn(&Tensor) -> Result<Tensor>;
type Captures<'a> = &'a dyn Fn(&Tensor) -> Result<Tensor>;

/// Elements in no order, at least 0.2 apart.
const APART: [f32; 12] = [
    0.3, -1.1, 0.8, -0.4, 1.2, -0.7, 0.1, 1.5, -1.4, 0.55, -0.2, 1.9,
];

const OF_ROWS: &[(&str, Unary)] = &[
    ("softmax", |x| x.softmax(-1)),
    ("softmax of columns", |x| x.softmax(0)),
    ("softmax of a view", |x| x.t()?.softmax(0)),
    ("log_softmax", |x| x.log_softmax(1)),
    ("log_softmax of columns", |x| x.log_softmax(0)),
    ("var", |x| x.var(&[1], 1)),
    ("var_keepdim", |x| x.var_keepdim(&[0], 0)),
    ("var_all", |x| x.var_all(0)),
    ("std", |x| x.std(&[0], 1)),
    ("std_all", |x| x.std_all(1)),
    ("logsumexp", |x| x.logsumexp(&[1])),
    ("logsumexp_keepdim", |x| x.logsumexp_keepdim(&[0])),
    ("logsumexp_all", |x| x.logsumexp_all()),
    ("cumsum", |x| x.cumsum(1)),
    ("cumsum of columns", |x| x.cumsum(0)),
    ("cumprod", |x| x.cumprod(-1)),
    ("cumprod of columns", |x| x.cumprod(0)),
    ("cummax", |x| Ok(x.cummax(1)?.0)),
    ("cummin of columns", |x| Ok(x.cummin(0)?.0)),
    ("sort", |x| Ok(x.sort(1, false)?.0)),
    ("sort of columns", |x| Ok(x.sort(0, true)?.0)),
    ("top_k", |x| Ok(x.top_k(2, 1, true)?.0)),
    ("top_k of columns", |x| Ok(x.top_k(1, 0, false)?.0)),
    ("max_with_indices", |x| Ok(x.max_with_indices(1)?.0)),
    ("min_with_indices", |x| Ok(x.min_with_indices(-2)?.0)),
];

#[test]
fn operations_over_rows_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    for &(name, f) in OF_ROWS {
        check(&gpu, name, &[(&APART, &[3, 4])], |x| f(&x[0]));
    }
}

#[test]
fn a_tensor_without_axes_is_one_row() {
    let gpu = gpu();
    let operations: &[(&str, Unary)] = &[
        ("softmax", |x| x.softmax(0)),
        ("logsumexp", Tensor::logsumexp_all),
        ("cumsum", |x| x.cumsum(0)),
        ("cumprod", |x| x.cumprod(-1)),
        ("cummax", |x| Ok(x.cummax(0)?.0)),
        ("sort", |x| Ok(x.sort(0, false)?.0)),
        ("max_with_indices", |x| Ok(x.max_with_indices(0)?.0)),
    ];
    for &(name, f) in operations {
        check(&gpu, name, &[(&[0.7], &[])], |x| f(&x[0])?.square());
    }
}

#[test]
fn running_products_have_gradients_at_zeros() {
    let gpu = gpu();
    for zeros in [&[][..], &[0], &[2], &[1, 3], &[0, 1, 4], &[0, 1, 2, 3, 4]] {
        let mut x = [0.9, -1.3, 0.6, 1.4, -0.8];
        for &zero in zeros {
            x[zero] = 0.0;
        }
        let what = format!("cumprod with zeros at {zeros:?}");
        check(&gpu, &what, &[(&x, &[5])], |x| x[0].cumprod(0));
        let what = format!("the gradient of {what}");
        check(&gpu, &what, &[(&x, &[5])], |x| {
            slope_of(&x[0], |x| x.cumprod(0))
        });
    }
}

#[test]
fn normalizations_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let x = APART;
    let [w, b, v] = [
        spread(4, 0.5, 1.5),
        spread(4, -0.5, 0.5),
        spread(4, 0.7, 1.6),
    ];
    let of_rows: [(&[f32], &[usize]); 3] = [(&x, &[3, 4]), (&w, &[4]), (&b, &[4])];
    check(&gpu, "layer_norm", &of_rows, |x| {
        x[0].layer_norm(&[4], Some(&x[1]), Some(&x[2]), 1e-2)
    });
    check(
        &gpu,
        "layer_norm with a bias",
        &[of_rows[0], of_rows[2]],
        |x| x[0].layer_norm(&[4], None, Some(&x[1]), 1e-2),
    );
    check(
        &gpu,
        "layer_norm over two axes",
        &[(&x, &[3, 2, 2]), (&w, &[2, 2])],
        |x| x[0].layer_norm(&[2, 2], Some(&x[1]), None, 1e-2),
    );
    check(&gpu, "layer_norm over all axes", &of_rows[..1], |x| {
        x[0].layer_norm(&[3, 4], None, None, 1e-2)
    });
    check(&gpu, "rms_norm", &of_rows[..2], |x| {
        x[0].rms_norm(&[4], Some(&x[1]), 1e-2)
    });
    check(&gpu, "rms_norm without a weight", &[(&x, &[4, 3])], |x| {
        x[0].t()?.rms_norm(&[4], None, 1e-2)
    });
    let of_channels: [(&[f32], &[usize]); 5] = [
        (&x, &[3, 4]),
        (&w, &[4]),
        (&b, &[4]),
        (&b, &[4]),
        (&v, &[4]),
    ];
    check(&gpu, "group_norm", &of_channels[..3], |x| {
        x[0].group_norm(2, Some(&x[1]), Some(&x[2]), 1e-2)
    });
    check(
        &gpu,
        "group_norm of an image",
        &[(&x, &[1, 4, 3]), (&w, &[4])],
        |x| x[0].group_norm(2, Some(&x[1]), None, 1e-2),
    );
    check(
        &gpu,
        "group_norm of as many groups as elements of a channel",
        &[(&x[..8], &[1, 4, 2]), (&w, &[4])],
        |x| x[0].group_norm(2, Some(&x[1]), None, 1e-2),
    );
    check(&gpu, "group_norm alone", &[(&x, &[2, 2, 3])], |x| {
        x[0].group_norm(1, None, None, 1e-2)
    });
    check(&gpu, "batch_norm", &of_channels, |x| {
        x[0].batch_norm(&x[3], &x[4], Some(&x[1]), Some(&x[2]), 1e-2)
    });
    let image: [(&[f32], &[usize]); 3] = [(&x, &[3, 2, 2]), (&b[..2], &[2]), (&v[..2], &[2])];
    check(&gpu, "batch_norm of an image", &image, |x| {
        x[0].batch_norm(&x[1], &x[2], None, None, 1e-2)
    });
    check(&gpu, "batch_norm_train", &of_channels[..3], |x| {
        let [y, mean, variance] = x[0].batch_norm_train(Some(&x[1]), Some(&x[2]), 1e-1)?;
        assert!(!mean.has_grad() && !variance.has_grad());
        Ok(y)
    });
    check(&gpu, "batch_norm_train of an image", &image[..1], |x| {
        let [y, ..] = x[0].batch_norm_train(None, None, 1e-1)?;
        Ok(y)
    });
}

#[test]
fn losses_of_pairs_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let x = spread(6, -1.5, 1.5);
    let [p, t] = [spread(6, 0.15, 0.85), spread(3, 0.1, 0.9)];
    let weight = [1.5, 0.5];
    for reduction in REDUCTIONS {
        let what = |name: &str| format!("{name}, {reduction:?}");
        check(&gpu, &what("mse_loss"), &[(&x, &[2, 3]), (&t, &[3])], |x| {
            x[0].mse_loss(&x[1], reduction)
        });
        check(
            &gpu,
            &what("mse_loss of a column"),
            &[(&weight, &[2, 1]), (&x, &[2, 3])],
            |x| x[0].mse_loss(&x[1], reduction),
        );
        check(&gpu, &what("binary"), &[(&p, &[2, 3]), (&t, &[3])], |x| {
            x[0].binary_cross_entropy(&x[1], reduction)
        });
        check(
            &gpu,
            &what("binary of logits"),
            &[(&x[..2], &[2, 1]), (&t, &[3])],
            |x| x[0].binary_cross_entropy_with_logits(&x[1], None, reduction),
        );
        let operands: [(&[f32], &[usize]); 3] = [(&x, &[2, 3]), (&t, &[3]), (&weight, &[2, 1])];
        check(&gpu, &what("weighted binary of logits"), &operands, |x| {
            x[0].binary_cross_entropy_with_logits(&x[1], Some(&x[2]), reduction)
        });
    }
}

#[test]
fn a_certain_probability_has_a_finite_gradient() {
    let gpu = gpu();
    let x = parameter(&gpu, &[0.0, 1.0, 0.0, 1.0], &[4]);
    let target = gpu.tensor(&[0.0_f32, 1.0, 1.0, 0.0], &[4]).unwrap();
    let loss = x.binary_cross_entropy(&target, Reduction::Sum).unwrap();
    let got = loss.backward().unwrap().get(&x).unwrap();
    // PyTorch's numbers.
    assert_eq!(got.to_vec::<f32>().unwrap(), [0.0, 0.0, -1e12, 1e12]);
}

fn weighted_by<'a>(options: ClassLoss<'a>, weights: &'a Tensor) -> ClassLoss<'a> {
    ClassLoss {
        weights: Some(weights),
        ..options
    }
}

#[test]
fn losses_of_classes_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let x = APART;
    let weights = [0.5, 1.5, 1.0];
    let outside = gpu.tensor(&[2_u32, 0, 9, 1], &[4]).unwrap();
    let row = gpu.tensor(&[2_u32, 0, 2, 1], &[4]).unwrap();
    let image = gpu.tensor(&[1_i32, 0, -100, 1], &[2, 2]).unwrap();
    let number = gpu.tensor(&[1_u32], &[]).unwrap();
    let targets: [(&[usize], &Tensor, Option<i64>); 4] = [
        (&[4, 3], &outside, Some(9)),
        (&[4, 3], &row, Some(0)),
        (&[2, 3, 2], &image, Some(-100)),
        (&[3], &number, None),
    ];
    for reduction in REDUCTIONS {
        for (shape, targets, ignore) in targets {
            let x = &x[..shape.iter().product()];
            let logits: (&[f32], &[usize]) = (x, shape);
            let what = |name: &str| format!("{name} of {shape:?}, {reduction:?}, {ignore:?}");
            check(&gpu, &what("cross_entropy"), &[logits], |x| {
                x[0].cross_entropy(targets, ignore, reduction)
            });
            check(&gpu, &what("nll_loss"), &[logits], |x| {
                x[0].nll_loss(targets, ignore, reduction)
            });
            let weighted: [(&[f32], &[usize]); 2] = [logits, (&weights, &[3])];
            let plain = ClassLoss {
                ignore,
                reduction,
                ..ClassLoss::default()
            };
            let smoothed = ClassLoss {
                label_smoothing: 0.3,
                ..plain
            };
            check(&gpu, &what("weighted nll_loss"), &weighted, |x| {
                x[0].nll_loss_with(targets, &weighted_by(plain, &x[1]))
            });
            check(&gpu, &what("weighted cross_entropy"), &weighted, |x| {
                x[0].cross_entropy_with(targets, &weighted_by(plain, &x[1]))
            });
            check(&gpu, &what("smoothed cross_entropy"), &[logits], |x| {
                x[0].cross_entropy_with(targets, &smoothed)
            });
            check(&gpu, &what("cross_entropy with all"), &weighted, |x| {
                x[0].cross_entropy_with(targets, &weighted_by(smoothed, &x[1]))
            });
        }
    }
}

#[test]
fn losses_of_probabilities_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let t = spread(12, 0.1, 0.6);
    let weights = [0.5, 1.5, 1.0];
    for reduction in REDUCTIONS {
        for shape in [&[4, 3][..], &[2, 3, 2]] {
            let what = |name: &str| format!("{name} of {shape:?}, {reduction:?}");
            let operands: [(&[f32], &[usize]); 3] =
                [(&APART, shape), (&t, shape), (&weights, &[3])];
            check(&gpu, &what("cross_entropy"), &operands[..2], |x| {
                x[0].cross_entropy(&x[1], None, reduction)
            });
            check(&gpu, &what("cross_entropy with all"), &operands, |x| {
                let options = ClassLoss {
                    weights: Some(&x[2]),
                    label_smoothing: 0.2,
                    reduction,
                    ..ClassLoss::default()
                };
                x[0].cross_entropy_with(&x[1], &options)
            });
        }
    }
}

#[test]
fn backward_operations_are_differentiable() {
    let gpu = gpu();
    let x = APART;
    let g = spread(12, -1.0, 1.0);
    let w = spread(4, 0.5, 1.5);
    let operands: [(&[f32], &[usize]); 3] = [(&g, &[3, 4]), (&x, &[3, 4]), (&w, &[4])];
    let pair = &operands[..2];
    check(&gpu, "softmax_backward", pair, |x| {
        x[0].softmax_backward(&x[1], 1)
    });
    check(&gpu, "log_softmax_backward", pair, |x| {
        x[0].log_softmax_backward(&x[1], 0)
    });
    check(&gpu, "gelu_backward", pair, |x| x[0].gelu_backward(&x[1]));
    for part in 0..3 {
        let what = format!("layer_norm_backward {part}");
        check(&gpu, &what, &operands, |x| {
            let all = x[0].layer_norm_backward(&x[1], &[4], Some(&x[2]), 1e-1)?;
            Ok(all[part].clone())
        });
        let what = format!("batch_norm_backward {part}");
        check(&gpu, &what, &operands, |x| {
            let all = x[0].batch_norm_backward(&x[1], Some(&x[2]), 1e-1)?;
            Ok(all[part].clone())
        });
    }
}

/// The gradient of a sum of squares, recorded.
fn slope_of(x: &Tensor, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let inner = x.clone().requires_grad()?;
    let gradients = f(&inner)?.square()?.sum_all()?.backprop().record().run()?;
    Ok(gradients.get(&inner).expect("it depends on it"))
}

#[test]
fn gradients_of_gradients_are_those_that_differences_show() {
    let gpu = gpu();
    let target = gpu.tensor(&[2_u32, 0, 3], &[3]).unwrap();
    for &(name, f) in OF_ROWS {
        let what = format!("the gradient of {name}");
        check(&gpu, &what, &[(&APART, &[3, 4])], |x| slope_of(&x[0], f));
    }
    let probabilities = spread(12, 0.1, 0.9);
    let more: &[(&str, Captures<'_>)] = &[
        ("layer_norm", &|x| x.layer_norm(&[4], None, None, 1e-1)),
        ("rms_norm", &|x| x.rms_norm(&[4], None, 1e-1)),
        ("group_norm", &|x| x.group_norm(2, None, None, 1e-1)),
        ("batch_norm_train", &|x| {
            let [y, ..] = x.batch_norm_train(None, None, 1e-1)?;
            y.exp()
        }),
        ("batch_norm", &|x| {
            let [mean, variance] = [x.mean(&[0])?, x.var(&[0], 1)?];
            x.batch_norm(&mean, &variance, None, None, 1e-1)?.exp()
        }),
        ("cross_entropy", &|x| {
            x.cross_entropy(&target, None, Reduction::Mean)
        }),
        ("smoothed cross_entropy", &|x| {
            let options = ClassLoss {
                label_smoothing: 0.2,
                ..ClassLoss::default()
            };
            x.cross_entropy_with(&target, &options)
        }),
        ("nll_loss", &|x| {
            x.nll_loss(&target, Some(0), Reduction::Sum)
        }),
        ("mse_loss", &|x| x.mse_loss(&x.flip(&[0])?, Reduction::Mean)),
        ("binary_cross_entropy", &|x| {
            let target = gpu.full(&[4], 0.3, DType::F32)?;
            x.sigmoid()?.binary_cross_entropy(&target, Reduction::Mean)
        }),
        ("binary_cross_entropy_with_logits", &|x| {
            let target = gpu.tensor(&probabilities, &[3, 4])?;
            x.binary_cross_entropy_with_logits(&target, None, Reduction::None)
        }),
    ];
    for (name, f) in more {
        let what = format!("the gradient of {name}");
        check(&gpu, &what, &[(&APART, &[3, 4])], |x| slope_of(&x[0], f));
    }
}

#[test]
fn empty_tensors_have_empty_gradients() {
    let gpu = gpu();
    let targets = gpu.zeros(&[0], DType::U32).unwrap();
    let none = gpu.zeros(&[2], DType::U32).unwrap();
    let operations: &[(&str, &[usize], Captures<'_>)] = &[
        ("softmax", &[0, 3], &|x| x.softmax(1)),
        ("var", &[0, 3], &|x| x.var(&[0], 1)),
        ("std", &[0, 3], &|x| x.std(&[1], 1)),
        ("logsumexp", &[0, 3], &|x| x.logsumexp(&[0])),
        ("cumsum", &[0, 3], &|x| x.cumsum(0)),
        ("cumprod", &[0, 3], &|x| x.cumprod(1)),
        ("cummax", &[0, 3], &|x| Ok(x.cummax(0)?.0)),
        ("sort", &[3, 0], &|x| Ok(x.sort(1, true)?.0)),
        ("max_with_indices", &[0, 3], &|x| {
            Ok(x.max_with_indices(1)?.0)
        }),
        ("layer_norm", &[0, 3], &|x| {
            x.layer_norm(&[3], None, None, 1e-5)
        }),
        ("group_norm", &[2, 2, 0], &|x| {
            x.group_norm(2, None, None, 1e-5)
        }),
        ("batch_norm_train", &[3, 0], &|x| {
            let [y, ..] = x.batch_norm_train(None, None, 1e-5)?;
            Ok(y)
        }),
        ("mse_loss", &[0, 3], &|x| x.mse_loss(x, Reduction::Mean)),
        ("cross_entropy", &[0, 3], &|x| {
            x.cross_entropy(&targets, None, Reduction::Sum)
        }),
        ("cross_entropy of no classes", &[2, 0], &|x| {
            x.cross_entropy(&none, None, Reduction::Sum)
        }),
    ];
    for &(name, shape, f) in operations {
        let x = parameter(&gpu, &[], shape);
        let y = f(&x).unwrap_or_else(|error| panic!("{name}: {error}"));
        let gradients = y.sum_all().unwrap().backward();
        let gradients = gradients.unwrap_or_else(|error| panic!("{name}: {error}"));
        let got = gradients.get(&x).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(got.shape(), shape, "{name}");
    }
}

/// The gradient of a weighted sum at an operand of this type, in f32.
fn gradient_in(gpu: &Gpu, dtype: DType, f: Captures<'_>) -> Vec<f32> {
    let x = gpu.tensor(&APART, &[3, 4]).unwrap().cast(dtype).unwrap();
    let x = x.requires_grad().unwrap();
    let y = f(&x).unwrap();
    let weights = gpu.tensor(&spread(y.len(), 0.5, 1.5), y.shape()).unwrap();
    let seed = weights.cast(y.dtype()).unwrap();
    let gradient = y.backprop().seed(&seed).run().unwrap().get(&x).unwrap();
    assert_eq!(gradient.dtype(), dtype);
    gradient.cast(DType::F32).unwrap().to_vec().unwrap()
}

#[test]
fn short_floats_have_gradients_of_their_type() {
    let gpu = gpu();
    let target = gpu.tensor(&[2_u32, 0, 3], &[3]).unwrap();
    let weight = gpu.tensor(&spread(4, 0.5, 1.5), &[4]).unwrap();
    let operations: &[(&str, Captures<'_>)] = &[
        ("softmax", &|x| x.softmax(1)),
        ("log_softmax", &|x| x.log_softmax(1)),
        ("var", &|x| x.var(&[1], 1)),
        ("std", &|x| x.std(&[1], 1)),
        ("logsumexp", &|x| x.logsumexp(&[1])),
        ("cumsum", &|x| x.cumsum(1)),
        ("cumprod", &|x| x.cumprod(1)),
        ("cummax", &|x| Ok(x.cummax(1)?.0)),
        ("sort", &|x| Ok(x.sort(1, false)?.0)),
        ("top_k", &|x| Ok(x.top_k(2, 1, false)?.0)),
        ("max_with_indices", &|x| Ok(x.max_with_indices(0)?.0)),
        ("layer_norm", &|x| {
            x.layer_norm(&[4], Some(&weight), None, 1e-1)
        }),
        ("rms_norm", &|x| x.rms_norm(&[4], Some(&weight), 1e-1)),
        ("group_norm", &|x| {
            x.group_norm(2, Some(&weight), None, 1e-1)
        }),
        ("batch_norm_train", &|x| {
            let [y, ..] = x.batch_norm_train(Some(&weight), None, 1e-1)?;
            Ok(y)
        }),
        ("cross_entropy", &|x| {
            x.cross_entropy(&target, None, Reduction::Mean)
        }),
        ("nll_loss", &|x| x.nll_loss(&target, None, Reduction::None)),
        ("mse_loss", &|x| {
            x.mse_loss(&x.detach().flip(&[0])?, Reduction::Mean)
        }),
    ];
    for dtype in [DType::F16, DType::Bf16] {
        for (name, f) in operations {
            let (got, wanted) = (
                gradient_in(&gpu, dtype, f),
                gradient_in(&gpu, DType::F32, f),
            );
            for (got, wanted) in got.iter().zip(&wanted) {
                let is_near = (got - wanted).abs() <= 0.02 * (1.0 + wanted.abs());
                assert!(is_near, "{name} of {dtype}: {got} instead of {wanted}");
            }
        }
    }
}

#[test]
fn indices_and_places_have_no_history() {
    let gpu = gpu();
    let x = parameter(&gpu, &APART, &[3, 4]);
    let results = [
        x.cummax(1).unwrap().1,
        x.sort(1, false).unwrap().1,
        x.argsort(0, true).unwrap(),
        x.top_k(1, 1, true).unwrap().1,
        x.max_with_indices(1).unwrap().1,
        x.argmin(1).unwrap(),
    ];
    assert!(results.iter().all(|result| !result.has_grad()));
}

#[test]
fn equal_elements_give_their_gradient_to_the_named_one() {
    let gpu = gpu();
    let cases: &[(&str, Unary, [f32; 4])] = &[
        ("cummax", |x| Ok(x.cummax(0)?.0), [1.0; 4]),
        ("sort", |x| Ok(x.sort(0, false)?.0), [1.0; 4]),
        (
            "top_k",
            |x| Ok(x.top_k(1, 0, true)?.0),
            [0.0, 1.0, 0.0, 0.0],
        ),
        (
            "max",
            |x| Ok(x.max_with_indices(0)?.0),
            [0.0, 1.0, 0.0, 0.0],
        ),
        ("std of equal ones", |x| (x * 0.0)?.std(&[0], 1), [0.0; 4]),
    ];
    for &(name, f, expected) in cases {
        let x = parameter(&gpu, &[1.0, 2.0, 2.0, 2.0], &[4]);
        let y = f(&x).unwrap().sum_all().unwrap();
        let got = y.backward().unwrap().get(&x).unwrap();
        assert_eq!(got.to_vec::<f32>().unwrap(), expected, "{name}");
    }
}

/// Cases of cross-entropies: the shape of the logits, and the axis of their classes.
const OF_CLASSES: [(&[usize], usize); 6] = [
    (&[5, 3], 1),
    (&[6, 8], 1),
    (&[7], 0),
    (&[2, 5, 7], 1),
    (&[3, 4, 2, 4], 1),
    (&[2, 300], 1),
];

#[test]
fn a_cross_entropy_has_the_gradient_that_a_recorded_backward_computes_by_operations() {
    let gpu = gpu();
    for (shape, axis) in OF_CLASSES {
        let count: usize = shape.iter().product();
        let mut of_targets = shape.to_vec();
        let classes = of_targets.remove(axis);
        let rows: usize = of_targets.iter().product();
        let targets: Vec<i32> = (0..rows).map(|row| (row * 7 % classes) as i32).collect();
        // The targets start in the middle of their storage.
        let longer = gpu
            .tensor(&[&[1], &targets[..]].concat(), &[rows + 1])
            .unwrap();
        let targets = longer
            .slice(0, 1, None, 1)
            .unwrap()
            .reshape(&of_targets)
            .unwrap();
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for (ignore, reduction) in [
                (None, Reduction::Mean),
                (Some(1), Reduction::Mean),
                (Some(1), Reduction::Sum),
                (None, Reduction::None),
            ] {
                for kind in [DType::I32, DType::U32] {
                    let x = parameter(&gpu, &spread(2 * count, -3.0, 3.0), &[2 * count]);
                    let x = x.detach().cast(dtype).unwrap().requires_grad().unwrap();
                    // They start beside a vec4.
                    let logits = x.narrow(0, count - 1, count).unwrap();
                    let logits = logits.reshape(shape).unwrap();
                    let targets = targets.cast(kind).unwrap();
                    let loss = logits.cross_entropy(&targets, ignore, reduction).unwrap();
                    let weights = spread(loss.len(), 0.5, 1.5);
                    let seed = gpu
                        .tensor(&weights, loss.shape())
                        .unwrap()
                        .cast(dtype)
                        .unwrap();
                    let one = loss.backprop().seed(&seed).keep_history().run().unwrap();
                    let by_operations = loss.backprop().seed(&seed).record().run().unwrap();
                    let [found, expected] = [one, by_operations].map(|gradients| {
                        let gradient = gradients.get(&x).unwrap().detach();
                        gradient.cast(DType::F32).unwrap().to_vec::<f32>().unwrap()
                    });
                    let most = if dtype == DType::F32 { 1e-5 } else { 4e-3 };
                    for (found, expected) in found.iter().zip(&expected) {
                        assert!(
                            (found - expected).abs() <= most,
                            "{shape:?} {dtype} {ignore:?} {reduction:?}: {found} for {expected}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn groups_that_are_as_long_as_their_weight_keep_their_own_channels() {
    let gpu = gpu();
    let weight = gpu.tensor(&spread(8, 0.5, 2.0), &[8]).unwrap();
    let (elements, seeds) = (spread(512, -1.0, 1.0), spread(512, 0.5, 1.5));
    let slopes = |from: usize, images: usize| {
        let (range, shape) = (from * 32..(from + images) * 32, [images, 8, 2, 2]);
        let x = parameter(&gpu, &elements[range.clone()], &shape);
        let seed = gpu.tensor(&seeds[range], &shape).unwrap();
        let y = x.group_norm(4, Some(&weight), None, 1e-3).unwrap();
        let gradients = y.backprop().seed(&seed).run().unwrap();
        let by_x = gradients.get(&x).unwrap().detach();
        by_x.to_vec::<f32>().unwrap()
    };
    // Many rows have another kernel than those of one image.
    let alone = (0..16).flat_map(|image| slopes(image, 1));
    for (at, (found, expected)) in slopes(0, 16).into_iter().zip(alone).enumerate() {
        assert!(
            (found - expected).abs() < 1e-4,
            "{at}: {found} for {expected}"
        );
    }
}
