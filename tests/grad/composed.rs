//! Gradients, and gradients of gradients, of operations that are composed of others.

use lapidary::operations::{Conv, ConvTranspose, Reduction};
use lapidary::{DType, Error, Gpu, Result, Tensor};

use super::check::{check_shapes, check_twice, gpu, parameter};

/// A call of one operand, which may use others of this device.
type Call = fn(&Gpu, &Tensor) -> Result<Tensor>;

const PLAIN: ConvTranspose<2> = ConvTranspose {
    stride: [1, 1],
    padding: [0, 0],
    output_padding: [0, 0],
    dilation: [1, 1],
    groups: 1,
};

const CONVOLUTIONS: &[(&str, &[usize], &[usize], ConvTranspose<2>)] = &[
    ("plain", &[1, 2, 2, 3], &[2, 1, 2, 2], PLAIN),
    ("without samples", &[2, 2, 3], &[2, 2, 1, 2], PLAIN),
    (
        "in groups",
        &[1, 2, 2, 2],
        &[2, 2, 1, 2],
        ConvTranspose { groups: 2, ..PLAIN },
    ),
    (
        "with strides and paddings",
        &[2, 1, 2, 2],
        &[1, 1, 2, 3],
        ConvTranspose {
            stride: [2, 3],
            padding: [1, 1],
            output_padding: [1, 2],
            ..PLAIN
        },
    ),
    (
        "dilated, with more room than windows",
        &[1, 1, 2, 3],
        &[1, 2, 2, 2],
        ConvTranspose {
            output_padding: [1, 2],
            dilation: [2, 3],
            ..PLAIN
        },
    ),
];

#[test]
fn transposed_convolutions_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    for (what, x, weight, options) in CONVOLUTIONS {
        let bias = [weight[1] * options.groups];
        let convolve = |x: &[Tensor]| x[0].conv_transpose2d(&x[1], x.get(2), options);
        check_shapes(&gpu, what, &[x, weight], convolve);
        let what = format!("{what} with a bias");
        check_shapes(&gpu, &what, &[x, weight, &bias], convolve);
        check_twice(&gpu, &what, &[x, weight], convolve);
    }
    let shapes: [&[usize]; 3] = [&[1, 1, 1, 2], &[1, 2, 1, 2], &[2]];
    check_twice(&gpu, "a bias", &shapes, |x| {
        x[0].conv_transpose2d(&x[1], Some(&x[2]), &PLAIN)
    });
    check_shapes(&gpu, "conv_transpose1d", &[&[2, 3], &[2, 1, 2]], |x| {
        x[0].conv_transpose1d(&x[1], None, &ConvTranspose::default())
    });
}

#[test]
fn convolutions_that_keep_the_size_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let options = Conv {
        padding: Conv::SAME,
        ..Conv::default()
    };
    let shapes: [&[usize]; 3] = [&[1, 1, 3, 4], &[2, 1, 2, 3], &[2]];
    let convolve = |x: &[Tensor]| x[0].conv2d(&x[1], Some(&x[2]), &options);
    check_shapes(&gpu, "conv2d", &shapes, convolve);
    check_twice(&gpu, "conv2d", &shapes, convolve);
}

const CALLS: &[(&str, Call)] = &[
    ("logcumsumexp", |_, x| x.logcumsumexp(1)),
    ("logcumsumexp of columns", |_, x| x.logcumsumexp(0)),
    ("logcumsumexp of a view", |_, x| {
        x.t()?.flip(&[0])?.logcumsumexp(-1)
    }),
    ("normalize", |_, x| x.normalize(2, 1, 1e-12)),
    ("normalize by another norm", |_, x| {
        x.normalize(3.0, 0, 1e-12)
    }),
    ("instance_norm", |_, x| {
        x.unsqueeze(0)?.instance_norm(None, None, 1e-1)
    }),
    ("var with a fraction", |_, x| x.var(&[1], 0.5)),
    ("smooth_l1_loss", |_, x| {
        x.smooth_l1_loss(&x.flip(&[0, 1])?, 0.7, Reduction::Sum)
    }),
    ("binary_cross_entropy_weighted", |gpu, x| {
        let weight = gpu.tensor(&[0.5_f32, 2.0, 1.0, 3.0], &[4])?;
        let target = gpu.full(&[4], 0.25, DType::F32)?;
        x.sigmoid()?
            .binary_cross_entropy_weighted(&target, &weight, Reduction::Mean)
    }),
    ("binary_cross_entropy_with_logits_weighted", |gpu, x| {
        let weight = gpu.tensor(&[0.5_f32, 2.0, 1.0, 3.0], &[4])?;
        let target = gpu.full(&[4], 0.25, DType::F32)?;
        let positive = Some(&weight);
        x.binary_cross_entropy_with_logits_weighted(&target, &weight, positive, Reduction::Sum)
    }),
    ("outer", |_, x| x.select(0, 0)?.outer(&x.select(1, 1)?)),
    ("diag", |_, x| x.select(0, 1)?.diag(-2)),
    ("diag of a matrix", |_, x| x.diag(1)),
    ("hstack", |_, x| Tensor::hstack(&[x, &x.narrow(1, 1, 2)?])),
    ("vstack", |_, x| Tensor::vstack(&[&x.select(0, 1)?, x])),
    ("tensor_split", |_, x| Ok(x.tensor_split(3, 1)?.remove(0))),
    ("masked_scatter", |_, x| {
        x.masked_scatter(&x.gt(0)?, &x.square()?)
    }),
    ("masked_scatter_", |_, x| {
        let written = (x * 2.0)?;
        written.masked_scatter_(&x.gt(0)?, &x.square()?)?;
        Ok(written)
    }),
    ("index by a mask", |gpu, x| {
        x.index(&[Some(&gpu.tensor(&[true, false, true], &[3])?)])
    }),
    ("index_put by a mask", |gpu, x| {
        let rows = gpu.tensor(&[true, false, true], &[3])?;
        x.index_put(&[Some(&rows)], &x.select(0, 1)?.square()?, false)
    }),
    ("repeat_interleave_by", |gpu, x| {
        x.repeat_interleave_by(&gpu.tensor(&[2_u32, 0, 1], &[3])?, 0)
    }),
    ("max_with_indices_all", |_, x| {
        Ok(x.max_with_indices_all()?.0)
    }),
    ("min_with_indices_keepdim", |_, x| {
        Ok(x.min_with_indices_keepdim(1)?.0)
    }),
];

#[test]
fn composed_operations_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    for (name, call) in CALLS {
        // Means have small gradients, beside which a fault must not pass for an error of rounding.
        let larger = |x: &[Tensor]| call(&gpu, &x[0])? * 16.0;
        check_shapes(&gpu, name, &[&[3, 4]], larger);
        check_twice(&gpu, name, &[&[3, 4]], |x| call(&gpu, &x[0]));
    }
}

#[test]
fn composed_operations_have_gradients_of_short_floats_and_of_no_elements() -> Result<()> {
    let gpu = gpu();
    for (name, call) in CALLS {
        let x = parameter(&gpu, &super::check::spread(12, -1.0, 1.5), &[3, 4]);
        let short = x.detach().cast(DType::F16)?.requires_grad()?;
        // Those with operands of f32 refuse it.
        let y = match call(&gpu, &short) {
            Err(Error::DType { .. }) => continue,
            y => y?,
        };
        assert_eq!(y.dtype(), DType::F16, "{name}");
        let got = y.sum_all()?.backward()?.get(&short).expect(name);
        let expected = call(&gpu, &x)?.sum_all()?.backward()?.get(&x).expect(name);
        let (got, expected) = (
            got.cast(DType::F32)?.to_vec::<f32>()?,
            expected.to_vec::<f32>()?,
        );
        for (got, expected) in got.iter().zip(&expected) {
            let off = (got - expected).abs();
            assert!(
                off < 0.02 * (1.0 + expected.abs()),
                "{name}: {got} for {expected}"
            );
        }
    }
    let empty: &[(&str, &[usize], Call)] = &[
        ("logcumsumexp", &[0, 3], |_, x| x.logcumsumexp(1)),
        ("logcumsumexp of nothing", &[3, 0], |_, x| x.logcumsumexp(1)),
        ("normalize", &[0, 3], |_, x| x.normalize(2, 1, 1e-12)),
        ("instance_norm", &[0, 2, 3], |_, x| {
            x.instance_norm(None, None, 0.1)
        }),
        ("smooth_l1_loss", &[0], |_, x| {
            x.smooth_l1_loss(x, 1.0, Reduction::Mean)
        }),
        ("l1_loss", &[0], |_, x| x.l1_loss(x, Reduction::Sum)),
        ("diag", &[0], |_, x| x.diag(2)),
        ("outer", &[0], |_, x| x.outer(x)),
        ("masked_scatter", &[0, 2], |_, x| {
            x.masked_scatter(&x.gt(0)?, x)
        }),
        ("index by a mask", &[0, 2], |_, x| {
            x.index(&[Some(&x.gt(0)?)])
        }),
        ("hstack", &[0], |_, x| Tensor::hstack(&[x, x])),
        ("conv_transpose2d", &[0, 2, 2, 2], |gpu, x| {
            let weight = gpu.ones(&[2, 1, 2, 2], DType::F32)?;
            x.conv_transpose2d(&weight, None, &ConvTranspose::default())
        }),
    ];
    for (name, shape, call) in empty {
        let x = parameter(&gpu, &[], shape);
        let y = call(&gpu, &x).unwrap_or_else(|error| panic!("{name}: {error}"));
        let gradients = y.sum_all()?.backward()?;
        assert_eq!(gradients.get(&x).expect(name).shape(), *shape, "{name}");
    }
    Ok(())
}
