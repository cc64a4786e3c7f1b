//! Convolutions, poolings, attention, and what else networks are made of.

mod activations;
mod attention;
mod products;

use lapidary::{
    DType, Gpu, Result, Tensor,
    operations::{Activation, Conv, Epilogue, Pool},
};

use super::check::{check_shapes, check_twice, gpu, parameter, spread};
use products::quantized;

const CONVOLUTIONS: &[(&str, &[usize], &[usize], Conv<2>)] = &[
    ("plain", &[1, 1, 3, 4], &[2, 1, 2, 2], CONV),
    ("without samples", &[2, 2, 3], &[1, 2, 2, 2], CONV),
    ("of two samples", &[2, 1, 2, 3], &[2, 1, 1, 2], CONV),
    ("by matmul", &[1, 1, 2, 3], &[9, 1, 1, 1], CONV),
    (
        "in groups",
        &[1, 2, 2, 3],
        &[4, 1, 1, 2],
        Conv { groups: 2, ..CONV },
    ),
    (
        "with strides and padding",
        &[1, 1, 3, 4],
        &[1, 1, 2, 3],
        Conv {
            stride: [2, 3],
            padding: [1, 2],
            ..CONV
        },
    ),
    (
        "dilated",
        &[1, 1, 3, 4],
        &[2, 1, 2, 2],
        Conv {
            dilation: [2, 1],
            padding: [1, 0],
            ..CONV
        },
    ),
];

const CONV: Conv<2> = Conv {
    stride: [1, 1],
    padding: [0, 0],
    dilation: [1, 1],
    groups: 1,
};

#[test]
fn convolutions_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    for (what, x, weight, options) in CONVOLUTIONS {
        check_shapes(&gpu, what, &[x, weight], |x| {
            x[0].conv2d(&x[1], None, options)
        });
        let what = format!("{what} with a bias");
        check_shapes(&gpu, &what, &[x, weight, &weight[..1]], |x| {
            x[0].conv2d(&x[1], Some(&x[2]), options)
        });
    }
    let options = Conv {
        stride: [2],
        padding: [1],
        ..Conv::default()
    };
    let lines: [&[usize]; 2] = [&[2, 2, 3], &[2, 3]];
    for x in lines {
        check_shapes(&gpu, "conv1d", &[x, &[2, 2, 2], &[2]], |x| {
            x[0].conv1d(&x[1], Some(&x[2]), &options)
        });
    }
}

#[test]
fn gradients_of_convolutions_have_gradients() {
    let gpu = gpu();
    for (what, x, weight, options) in CONVOLUTIONS {
        check_twice(&gpu, what, &[x, weight, &weight[..1]], |x| {
            x[0].conv2d(&x[1], Some(&x[2]), options)
        });
    }
    let shapes: [&[usize]; 3] = [&[1, 2, 2, 2], &[1, 1, 3, 3], &[2, 1, 2, 2]];
    for wanted in 0..3 {
        check_shapes(&gpu, "conv2d_backward", &shapes, |x| {
            let all = x[0].conv2d_backward(&x[1], &x[2], &CONV)?;
            all[wanted].square()
        });
    }
}

#[test]
fn a_frozen_factor_keeps_no_input() {
    let gpu = gpu();
    let x = parameter(&gpu, &spread(4, -1.0, 1.0), &[1, 1, 2, 2]);
    let weight = gpu.tensor(&[2.0_f32], &[1, 1, 1, 1]).unwrap();
    let before = x.neg().unwrap();
    let y = before.conv2d(&weight, None, &CONV).unwrap();
    let z = before.matmul(&gpu.eye(2, DType::F32).unwrap()).unwrap();
    before.fill_(0.0).unwrap();
    let sum = (y + z).unwrap().sum_all().unwrap();
    let gradient = sum.backward().unwrap().get(&x).unwrap();
    assert_eq!(gradient.to_vec::<f32>().unwrap(), [-3.0; 4]);
}

type Pooling = fn(&Tensor) -> Result<Tensor>;

const POOLINGS: &[(&str, &[usize], Pooling)] = &[
    ("max_pool1d", &[1, 2, 6], |x| x.max_pool1d(&Pool::new([2]))),
    ("avg_pool1d", &[2, 6], |x| {
        x.avg_pool1d(&Pool {
            stride: [1],
            ..Pool::new([3])
        })
    }),
    ("max_pool2d", &[1, 1, 3, 4], |x| {
        x.max_pool2d(&Pool {
            stride: [1, 2],
            ..Pool::new([2, 2])
        })
    }),
    ("max_pool2d with padding", &[1, 3, 4], |x| {
        x.max_pool2d(&Pool {
            padding: [1, 1],
            dilation: [1, 2],
            ceil_mode: true,
            ..Pool::new([2, 2])
        })
    }),
    ("avg_pool2d", &[1, 1, 3, 4], |x| {
        x.avg_pool2d(&Pool {
            stride: [1, 1],
            ..Pool::new([2, 2])
        })
    }),
    ("avg_pool2d of pixels", &[1, 1, 3, 4], |x| {
        x.avg_pool2d(&Pool {
            padding: [1, 1],
            count_include_pad: false,
            ..Pool::new([2, 3])
        })
    }),
    ("avg_pool2d by a divisor", &[2, 1, 2, 3], |x| {
        x.avg_pool2d(&Pool {
            divisor_override: Some(3),
            ..Pool::new([2, 2])
        })
    }),
    ("avg_pool2d rounded up", &[1, 1, 3, 3], |x| {
        x.avg_pool2d(&Pool {
            ceil_mode: true,
            ..Pool::new([2, 2])
        })
    }),
    ("adaptive_max_pool1d", &[1, 2, 5], |x| {
        x.adaptive_max_pool1d([3])
    }),
    ("adaptive_avg_pool1d", &[1, 2, 5], |x| {
        x.adaptive_avg_pool1d([3])
    }),
    ("adaptive_max_pool2d", &[1, 3, 4], |x| {
        x.adaptive_max_pool2d([2, 2])
    }),
    ("adaptive_avg_pool2d", &[1, 1, 3, 4], |x| {
        x.adaptive_avg_pool2d([2, 3])
    }),
    ("adaptive_avg_pool2d of a plane", &[2, 1, 2, 3], |x| {
        x.adaptive_avg_pool2d([1, 1])
    }),
    ("max_pool2d_with_indices", &[1, 1, 3, 4], |x| {
        Ok(x.max_pool2d_with_indices(&Pool::new([2, 2]))?.0)
    }),
    ("adaptive_max_pool1d_with_indices", &[1, 2, 5], |x| {
        Ok(x.adaptive_max_pool1d_with_indices([2])?.0)
    }),
];

#[test]
fn poolings_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    for (what, shape, pool) in POOLINGS {
        check_shapes(&gpu, what, &[shape], |x| pool(&x[0]));
    }
}

#[test]
fn gradients_of_poolings_have_gradients() {
    let gpu = gpu();
    for (what, shape, pool) in POOLINGS {
        check_twice(&gpu, what, &[shape], |x| pool(&x[0]));
    }
    let shapes: [&[usize]; 2] = [&[1, 1, 3], &[1, 1, 6]];
    check_shapes(&gpu, "max_pool1d_backward", &shapes, |x| {
        x[0].max_pool1d_backward(&x[1], &Pool::new([2]))
    });
    check_shapes(&gpu, "adaptive_avg_pool1d_backward", &shapes, |x| {
        x[0].adaptive_avg_pool1d_backward(&x[1])
    });
}

#[test]
fn the_first_of_equal_maxima_gets_the_gradient() {
    let gpu = gpu();
    let x = parameter(&gpu, &[1.0, 1.0, 0.0, 2.0, 2.0, 2.0], &[1, 1, 6]);
    let (y, places) = x.max_pool1d_with_indices(&Pool::new([3])).unwrap();
    assert!(y.has_grad() && !places.has_grad());
    let gradient = y.sum_all().unwrap().backward().unwrap().get(&x).unwrap();
    let gradient = gradient.to_vec::<f32>().unwrap();
    assert_eq!(gradient, [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
}

#[test]
fn tensors_without_elements_have_gradients_too() {
    let gpu = gpu();
    let empty = |shape: &[usize]| {
        let made = gpu.zeros(shape, DType::F32).unwrap();
        made.requires_grad().unwrap()
    };
    let sum_of_gradient = |y: Tensor, of: &Tensor| {
        let gradients = y.sum_all().unwrap().backward().unwrap();
        gradients.get(of).map_or(0.0, |gradient| {
            assert_eq!(gradient.shape(), of.shape());
            gradient.sum_all().unwrap().item::<f32>().unwrap()
        })
    };
    let x = empty(&[0, 2, 3, 3]);
    let weight = parameter(&gpu, &[1.0; 8], &[1, 2, 2, 2]);
    let y = || x.conv2d(&weight, None, &CONV).unwrap();
    assert_eq!(sum_of_gradient(y(), &x), 0.0);
    assert_eq!(sum_of_gradient(y(), &weight), 0.0);
    for y in [
        x.max_pool2d(&Pool::new([2, 2])),
        x.avg_pool2d(&Pool::new([2, 2])),
        x.adaptive_avg_pool2d([2, 2]),
    ] {
        assert_eq!(sum_of_gradient(y.unwrap(), &x), 0.0);
    }
    let none = parameter(&gpu, &[1.0; 4], &[1, 2, 2]);
    let y = none.adaptive_avg_pool2d([0, 1]).unwrap();
    assert_eq!(sum_of_gradient(y, &none), 0.0);
    let (q, k) = (parameter(&gpu, &[1.0; 4], &[2, 2]), empty(&[0, 2]));
    let y = || q.scaled_dot_product_attention(&k, &k, None, true, None);
    assert_eq!(sum_of_gradient(y().unwrap(), &q), 0.0);
    assert_eq!(sum_of_gradient(y().unwrap(), &k), 0.0);
    let y = k.scaled_dot_product_attention(&q, &q, None, false, None);
    assert_eq!(sum_of_gradient(y.unwrap(), &q), 0.0);
    let (lines, angles) = (empty(&[0, 3, 4]), empty(&[3, 2]));
    let y = || lines.rotary(&angles, &angles, false).unwrap();
    assert_eq!(sum_of_gradient(y(), &lines), 0.0);
    assert_eq!(sum_of_gradient(y(), &angles), 0.0);
    let weights = quantized(&gpu, 2, 12, Some(8));
    let rows = empty(&[0, 12]);
    let y = rows.matmul_quantized(&weights).unwrap();
    assert_eq!(sum_of_gradient(y, &rows), 0.0);
    let y = rows.matmul(&gpu.ones(&[12, 2], DType::F32).unwrap());
    assert_eq!(sum_of_gradient(y.unwrap(), &rows), 0.0);
    let halves = empty(&[2, 0]);
    assert_eq!(sum_of_gradient(halves.glu(1).unwrap(), &halves), 0.0);
    let leaks = empty(&[0]);
    assert_eq!(sum_of_gradient(halves.prelu(&leaks).unwrap(), &halves), 0.0);
}

/// Compares the gradients of operands of this type with those of f32.
fn check_narrow(
    gpu: &Gpu,
    what: &str,
    dtype: DType,
    shapes: &[&[usize]],
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let gradients = |dtype: DType| -> Vec<Vec<f32>> {
        let operands: Vec<Tensor> = (0..)
            .zip(shapes)
            .map(|(seed, shape)| {
                let made = gpu.rand_normal(shape, 0.0, 1.0, seed, DType::F32).unwrap();
                made.cast(dtype).unwrap().requires_grad().unwrap()
            })
            .collect();
        let y = f(&operands).unwrap();
        let seed = y.ones_like().unwrap();
        let gradients = y.backprop().seed(&seed).run().unwrap();
        let of = operands.iter().map(|operand| {
            let gradient = gradients.get(operand).unwrap();
            assert_eq!(gradient.dtype(), dtype, "{what}");
            gradient.cast(DType::F32).unwrap().to_vec().unwrap()
        });
        of.collect()
    };
    let (narrow, wide) = (gradients(dtype), gradients(DType::F32));
    for (number, (narrow, wide)) in narrow.iter().zip(&wide).enumerate() {
        for (got, expected) in narrow.iter().zip(wide) {
            assert!(
                (got - expected).abs() <= 5e-2 * (1.0 + expected.abs()),
                "{what} in {dtype}, operand {number}: {got} for {expected}"
            );
        }
    }
}

#[test]
fn operands_of_16_bits_have_gradients_of_their_type() {
    let gpu = gpu();
    for dtype in [DType::F16, DType::Bf16] {
        let shapes: [&[usize]; 3] = [&[2, 2, 4, 5], &[3, 2, 2, 2], &[3]];
        check_narrow(&gpu, "conv2d", dtype, &shapes, |x| {
            x[0].conv2d(&x[1], Some(&x[2]), &CONV)
        });
        let shapes: [&[usize]; 3] = [&[2, 4, 3, 8], &[2, 2, 5, 8], &[2, 2, 5, 3]];
        check_narrow(&gpu, "attention", dtype, &shapes, |x| {
            x[0].scaled_dot_product_attention(&x[1], &x[2], None, true, None)
        });
        let shapes: [&[usize]; 3] = [&[2, 3, 8], &[3, 4], &[3, 4]];
        check_narrow(&gpu, "rotary", dtype, &shapes, |x| {
            x[0].rotary(&x[1], &x[2], false)
        });
        check_narrow(&gpu, "avg_pool2d", dtype, &[&[2, 4, 4]], |x| {
            x[0].avg_pool2d(&Pool::new([2, 2]))
        });
        check_narrow(&gpu, "glu", dtype, &[&[2, 6]], |x| x[0].glu(1));
        let shapes: [&[usize]; 4] = [&[2, 3], &[3, 4], &[4], &[2, 4]];
        check_narrow(&gpu, "matmul_with", dtype, &shapes, |x| {
            let end = Epilogue::new().scale(0.5).bias(&x[2]).residual(&x[3]);
            x[0].matmul_with(&x[1], &end.activation(Activation::Gelu))
        });
        check_narrow(&gpu, "a cast", DType::F32, &shapes[..3], |x| {
            let end = Epilogue::new().bias(&x[2]).cast(dtype);
            x[0].matmul_with(&x[1], &end)
        });
    }
}
