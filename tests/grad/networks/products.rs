//! Products with epilogues, with quantized weights, and sums of products.

use lapidary::{
    DType, Gpu, Tensor,
    operations::{Activation, Epilogue, Quantized},
};

use super::{check_shapes, check_twice};
use crate::grad::check::{check, gpu, parameter, spread};

const ACTIVATIONS: [Activation; 6] = [
    Activation::Relu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Silu,
    Activation::Sigmoid,
    Activation::Tanh,
];

#[test]
fn every_part_of_an_epilogue_has_its_gradient() {
    let gpu = gpu();
    let shapes: [&[usize]; 5] = [&[2, 3], &[3, 2], &[2], &[2], &[1, 2]];
    // Far from the corner of `relu`.
    let high = gpu.full(&[2], 4.0, DType::F32).unwrap();
    let check_end = |what: &str, end: &dyn Fn(&[Tensor]) -> Epilogue| {
        check_shapes(&gpu, what, &shapes, |x| x[0].matmul_with(&x[1], &end(x)));
        check_twice(&gpu, what, &shapes, |x| {
            // Every operand takes part, so each has a gradient.
            let rest = ((&x[2] * &x[3])?.square()? * x[4].square()?)?;
            x[0].matmul_with(&x[1], &end(x))? + rest
        });
    };
    check_end("scale", &|_| Epilogue::new().scale(1.5));
    check_end("scale_columns", &|x| Epilogue::new().scale_columns(&x[2]));
    check_end("bias", &|x| Epilogue::new().bias(&x[3]));
    check_end("residual", &|x| Epilogue::new().residual(&x[4]));
    for activation in ACTIVATIONS {
        check_end(&format!("{activation:?}"), &|_| {
            Epilogue::new().bias(&high).activation(activation)
        });
    }
    check_end("all", &|x| {
        Epilogue::new()
            .scale(1.5)
            .scale_columns(&x[2])
            .bias(&x[3])
            .activation(Activation::Tanh)
            .residual(&x[4])
    });
    let fixed = |shape: &[usize]| gpu.full(shape, 0.5, DType::F32).unwrap();
    check_shapes(&gpu, "a bias alone", &[&[2]], |x| {
        let end = Epilogue::new().bias(&x[0]).activation(Activation::Silu);
        fixed(&[4, 3]).matmul_with(&fixed(&[3, 2]), &end)
    });
    check_shapes(&gpu, "a residual alone", &[&[4, 1]], |x| {
        fixed(&[4, 3]).matmul_with(&fixed(&[3, 2]), &Epilogue::new().residual(&x[0]))
    });
}

#[test]
fn a_wrong_epilogue_is_an_error_of_a_recorded_product_too() {
    let gpu = gpu();
    let x = parameter(&gpu, &[1.0; 6], &[2, 3]);
    let w = gpu.ones(&[3, 2], DType::F32).unwrap();
    let narrow = gpu.ones(&[2], DType::F16).unwrap();
    let wide = gpu.ones(&[4, 2, 2], DType::F32).unwrap();
    for end in [
        Epilogue::new().bias(&narrow),
        Epilogue::new().scale_columns(&wide),
        Epilogue::new().residual(&wide),
    ] {
        assert!(x.matmul_with(&w, &end).is_err());
    }
}

/// Weights of `[n, k]` whose values are whole numbers of scales.
pub(super) fn quantized(gpu: &Gpu, n: usize, k: usize, group: Option<u64>) -> Quantized {
    let weights = gpu.tensor(&spread(n * k, -1.0, 1.0), &[n, k]).unwrap();
    weights.quantize(group).unwrap()
}

#[test]
fn products_with_quantized_weights_have_the_gradient_of_the_input() {
    let gpu = gpu();
    for group in [None, Some(8)] {
        let weights = quantized(&gpu, 2, 12, group);
        let what = format!("groups of {group:?}");
        let shapes: [&[usize]; 2] = [&[12], &[1, 12]];
        for shape in shapes {
            check_shapes(&gpu, &what, &[shape], |x| x[0].matmul_quantized(&weights));
        }
        let shapes: [&[usize]; 4] = [&[1, 12], &[2], &[2], &[3, 1, 2]];
        let with_end = |x: &[Tensor]| {
            let end = Epilogue::new()
                .scale(0.5)
                .scale_columns(&x[1])
                .bias(&x[2])
                .activation(Activation::Tanh);
            x[0].matmul_quantized_with(&weights, &end)? + &x[3]
        };
        check_shapes(&gpu, &what, &shapes, with_end);
        check_twice(&gpu, &what, &shapes, with_end);
        check_shapes(&gpu, "a bias alone", &[&[2]], |x| {
            let end = Epilogue::new().bias(&x[0]).activation(Activation::Silu);
            gpu.ones(&[3, 12], DType::F32)?
                .matmul_quantized_with(&weights, &end)
        });
        let scales = weights.scales.to_vec::<f32>().unwrap();
        let scales = [(&scales[..], weights.scales.shape())];
        check(&gpu, "learned scales", &scales, |scales| {
            let weights = Quantized {
                values: weights.values.clone(),
                scales: scales[0].clone(),
            };
            gpu.ones(&[3, 12], DType::F32)?.matmul_quantized(&weights)
        });
    }
    let plain = parameter(&gpu, &[1.0; 16], &[2, 8]);
    let stored = plain.quantize(None).unwrap();
    assert!(!stored.scales.has_grad() && !stored.values.has_grad());
}

#[test]
fn unscaled_products_of_16_bits_do_not_overflow_when_recorded() {
    let gpu = gpu();
    let x = gpu.full(&[1, 64], 100.0, DType::F16).unwrap();
    let x = x.requires_grad().unwrap();
    let values = gpu.full(&[3, 64], 100, DType::I8).unwrap();
    let scales = gpu.full(&[3], 1e-3, DType::F32).unwrap();
    let weights = Quantized {
        values: values.clone(),
        scales: scales.clone(),
    };
    let end = Epilogue::new().scale_columns(&scales);
    for y in [
        x.matmul_quantized(&weights).unwrap(),
        x.matmul_with(&values.t().unwrap(), &end).unwrap(),
    ] {
        let y = (y, DType::F32);
        assert_eq!(y.0.dtype(), DType::F16);
        let seed = y.0.ones_like().unwrap();
        let gradient = y.0.backprop().seed(&seed).run().unwrap().get(&x).unwrap();
        for (tensor, expected) in [(y.0, 640.0), (gradient, 0.3)] {
            for got in tensor.cast(y.1).unwrap().to_vec::<f32>().unwrap() {
                assert!((got / expected - 1.0).abs() < 1e-2, "{got} for {expected}");
            }
        }
    }
}

const EQUATIONS: &[(&str, &[&[usize]])] = &[
    ("ij,jk->ik", &[&[2, 3], &[3, 2]]),
    ("bij,bjk->bik", &[&[2, 2, 3], &[2, 3, 1]]),
    ("ii->i", &[&[3, 3]]),
    ("ii->", &[&[3, 3]]),
    ("ij->ji", &[&[2, 3]]),
    ("i,j->ij", &[&[3], &[2]]),
    ("ij,i->", &[&[2, 3], &[2]]),
    ("...i,...i->...", &[&[2, 3], &[1, 3]]),
    ("ij,jk,k->i", &[&[2, 3], &[3, 2], &[2]]),
    ("iij,j->i", &[&[2, 2, 3], &[3]]),
];

#[test]
fn sums_of_products_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    for (equation, shapes) in EQUATIONS {
        let einsum = |x: &[Tensor]| Tensor::einsum(equation, &x.iter().collect::<Vec<_>>());
        check_shapes(&gpu, equation, shapes, einsum);
        check_twice(&gpu, equation, shapes, einsum);
    }
}
