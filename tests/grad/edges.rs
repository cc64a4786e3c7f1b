//! Gradients where a formula is rounded, infinite or NaN. The values are PyTorch's.

use lapidary::operations::{Causal, Epilogue, Reduction};
use lapidary::{DType, Result, Tensor};

use super::check::{gpu, parameter};

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

/// Are they the same, NaN included?
fn assert_same(found: &[f32], expected: &[f32], what: &str) {
    let is_same = |(a, b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan());
    let same = found.len() == expected.len() && found.iter().zip(expected).all(is_same);
    assert!(same, "{what}: {found:?} instead of {expected:?}");
}

fn elements(tensor: &Tensor) -> Vec<f32> {
    let wide = tensor.cast(DType::F32).unwrap();
    wide.to_vec::<f32>().unwrap()
}

type Binary = fn(&Tensor, &Tensor) -> Result<Tensor>;

#[test]
fn a_handle_of_another_type_has_no_gradient() -> Result<()> {
    let gpu = gpu();
    let w = parameter(&gpu, &[3.0], &[1]);
    let bits = gpu.tensor_of(&w.buffer().unwrap(), &[1], DType::U32)?;
    assert!(w.has_grad() && !bits.has_grad());
    let loss = (w.square()? + (bits.cast(DType::F32)? * 0.0)?)?;
    let gradient = loss.backward()?.get(&w).expect("of the square");
    assert_eq!(gradient.to_vec::<f32>()?, [6.0]);
    Ok(())
}

#[test]
fn binary_operations_at_their_edges() {
    let gpu = gpu();
    // Both operands, and both gradients.
    let cases: &[(&str, Binary, [f32; 2], [f32; 2])] = &[
        (
            "logaddexp",
            |x, z| x.logaddexp(z),
            [100.0, 100.0],
            [0.5, 0.5],
        ),
        ("logaddexp", |x, z| x.logaddexp(z), [INF, 1.0], [1.0, 0.0]),
        ("logaddexp", |x, z| x.logaddexp(z), [1.0, -INF], [1.0, 0.0]),
        (
            "logaddexp2",
            |x, z| x.logaddexp2(z),
            [100.0, 100.0],
            [0.5, 0.5],
        ),
        ("logaddexp2", |x, z| x.logaddexp2(z), [1.0, INF], [0.0, 1.0]),
        ("pow", |x, z| x.pow(z), [0.0, 2.0], [0.0, 0.0]),
        ("pow", |x, z| x.pow(z), [0.0, -1.0], [-INF, -INF]),
        ("xlogy", |x, z| x.xlogy(z), [0.0, 0.0], [0.0, NAN]),
    ];
    for dtype in [DType::F32, DType::Bf16] {
        for &(name, f, operands, expected) in cases {
            let [x, z] = operands.map(|value| {
                let made = gpu.full(&[1], value, dtype).unwrap();
                made.requires_grad().unwrap()
            });
            let gradients = f(&x, &z).unwrap().backward().unwrap();
            let found = [&x, &z].map(|x| elements(&gradients.get(x).unwrap())[0]);
            assert_same(
                &found,
                &expected,
                &format!("{name} of {operands:?}, {dtype}"),
            );
        }
    }
    // A gradient of 0 stays 0 at a pole.
    for (name, f, pole) in [
        ("xlogy", (|x, z| x.xlogy(z)) as Binary, 0.0),
        ("xlog1py", |x, z| x.xlog1py(z), -1.0),
    ] {
        let x = parameter(&gpu, &[2.0], &[1]);
        let y = f(&x, &gpu.full(&[1], pole, DType::F32).unwrap()).unwrap();
        let zero = gpu.zeros(&[1], DType::F32).unwrap();
        let gradients = y.backprop().seed(&zero).run().unwrap();
        assert_eq!(elements(&gradients.get(&x).unwrap()), [0.0], "{name}");
    }
}

type Unary = fn(&Tensor) -> Result<Tensor>;

#[test]
fn what_a_nan_gives_back() {
    let gpu = gpu();
    let cases: &[(&str, Unary, [f32; 4])] = &[
        ("max", |x| x.max(&[1]), [NAN, NAN, 0.0, 1.0]),
        ("min", |x| x.min(&[1]), [NAN, NAN, 1.0, 0.0]),
        ("norm", |x| x.norm(&[1], INF), [NAN, NAN, 0.0, 1.0]),
        ("hardtanh", |x| x.hardtanh(0.0, 2.0), [1.0, 1.0, 0.0, 0.0]),
        ("clamp", |x| x.clamp(0.0, 2.0), [1.0, 0.0, 1.0, 1.0]),
        ("clamp_min", |x| x.clamp(0.0, INF), [1.0, 0.0, 1.0, 1.0]),
    ];
    for &(name, f, expected) in cases {
        let x = parameter(&gpu, &[1.0, NAN, 0.0, 2.0], &[2, 2]);
        let loss = f(&x).unwrap().sum_all().unwrap();
        let gradients = loss.backward().unwrap();
        assert_same(&elements(&gradients.get(&x).unwrap()), &expected, name);
    }
}

#[test]
fn a_target_that_is_no_class_has_a_gradient_of_nan() {
    let gpu = gpu();
    let third = 1.0 / 3.0;
    for logits in [true, false] {
        let x = parameter(&gpu, &[0.0; 12], &[4, 3]);
        let targets = gpu.tensor(&[1_i32, 3, -100, -1], &[4]).unwrap();
        let loss = match logits {
            true => x.cross_entropy(&targets, Some(-100), Reduction::Sum),
            false => x.nll_loss(&targets, Some(-100), Reduction::Sum),
        };
        let gradients = loss.unwrap().backward().unwrap();
        let found = elements(&gradients.get(&x).unwrap());
        let first = match logits {
            true => [third, third - 1.0, third],
            false => [0.0, -1.0, 0.0],
        };
        for (found, expected) in found.iter().zip(first) {
            assert!((found - expected).abs() < 1e-6, "{found} for {expected}");
        }
        let rest = [[NAN; 3], [0.0; 3], [NAN; 3]].concat();
        assert_same(&found[3..], &rest, &format!("logits: {logits}"));
    }
}

#[test]
fn a_product_with_eight_bits_is_rounded_after_its_epilogue() {
    let gpu = gpu();
    let ones = gpu.ones(&[4, 1024], DType::F32).unwrap();
    let weights = ones.quantize(None).unwrap();
    let x = gpu.full(&[1, 1024], 100.0, DType::F16).unwrap();
    let end = Epilogue::new().scale(1e-3);
    let plain = x.matmul_quantized_with(&weights, &end).unwrap();
    let x = x.requires_grad().unwrap();
    let y = x.matmul_quantized_with(&weights, &end).unwrap();
    // The product itself, 102400, is no f16.
    assert_eq!(elements(&y), elements(&plain));
    assert!((elements(&y)[0] - 102.4).abs() < 0.1);
    let gradients = y.sum_all().unwrap().backward().unwrap();
    let found = elements(&gradients.get(&x).unwrap());
    assert!(found.iter().all(|x| (x - 4e-3).abs() < 1e-5), "{found:?}");
}

#[test]
fn the_largest_shift_is_shifted_back() {
    let gpu = gpu();
    for shift in [isize::MIN, isize::MAX] {
        let x = parameter(&gpu, &[1.0, 2.0, 3.0], &[3]);
        let seed = gpu.tensor(&[5.0_f32, 6.0, 8.0], &[3]).unwrap();
        let y = x.roll(&[shift], &[0]).unwrap();
        let gradients = y.backprop().seed(&seed).run().unwrap();
        let product = (&y.detach() * &seed).unwrap().sum_all().unwrap();
        let back = (gradients.get(&x).unwrap() * x.detach()).unwrap();
        let back = back.sum_all().unwrap();
        assert_eq!(elements(&back), elements(&product), "{shift}");
    }
}

#[test]
fn more_extremes_than_the_largest_f16_share_a_gradient() {
    let gpu = gpu();
    let x = gpu.zeros(&[70_000], DType::F16).unwrap();
    let x = x.requires_grad().unwrap();
    for extreme in [Tensor::max_all, Tensor::min_all] {
        // An f16 has no number near 1 / 70000 but subnormal ones.
        let loss = (extreme(&x).unwrap() * 1000.0).unwrap();
        let gradients = loss.backward().unwrap();
        let found = elements(&gradients.get(&x).unwrap());
        let expected = 1000.0 / 70_000.0;
        let is_near = |one: &f32| (one - expected).abs() < 1e-3 * expected;
        assert!(found.iter().all(is_near), "{:?}", &found[..4]);
    }
}

#[test]
fn attention_without_queries_or_keys_has_gradients_of_zeros() {
    let gpu = gpu();
    for (queries, keys) in [(0, 3), (2, 0), (0, 0)] {
        for causal in [Causal::No, Causal::FirstKey, Causal::LastKey] {
            let shapes = [
                vec![2, 4, queries, 4],
                vec![2, 2, keys, 4],
                vec![2, 2, keys, 5],
                vec![queries, keys],
            ];
            let operands = shapes.map(|shape| {
                let made = gpu.ones(&shape, DType::F32).unwrap();
                made.requires_grad().unwrap()
            });
            let [q, k, v, mask] = &operands;
            let y = q.scaled_dot_product_attention(k, v, Some(mask), causal, None);
            let gradients = y.unwrap().sum_all().unwrap().backward().unwrap();
            for operand in &operands {
                let gradient = gradients.get(operand).unwrap();
                assert_eq!(gradient.shape(), operand.shape());
                assert_eq!(elements(&gradient), vec![0.0; operand.len()]);
            }
        }
    }
}

#[test]
fn repetitions_of_nothing_and_none_have_gradients_of_zeros() {
    let gpu = gpu();
    let cases: &[(&str, Unary, &[usize], &[usize])] = &[
        ("repeat", |x| x.repeat(&[2, 3]), &[0, 3], &[0, 9]),
        ("repeat", |x| x.repeat(&[0, 2, 1]), &[2, 3], &[0, 4, 3]),
        ("repeat", |x| x.repeat(&[0]), &[], &[0]),
        (
            "interleave",
            |x| x.repeat_interleave(2, -1),
            &[3, 0],
            &[3, 0],
        ),
        (
            "interleave",
            |x| x.repeat_interleave(0, 0),
            &[3, 2],
            &[0, 2],
        ),
        ("by", |x| x.repeat_interleave(0, 1)?.t(), &[3, 2], &[0, 3]),
    ];
    for &(name, f, shape, repeated) in cases {
        let x = gpu.ones(shape, DType::F32).unwrap();
        let x = x.requires_grad().unwrap();
        let y = f(&x).unwrap();
        assert_eq!(y.shape(), repeated, "{name}");
        let gradients = y.sum_all().unwrap().backward().unwrap();
        let gradient = gradients.get(&x).unwrap();
        assert_eq!(gradient.shape(), shape, "{name}");
        assert_eq!(elements(&gradient), vec![0.0; x.len()], "{name}");
    }
}

#[test]
fn a_norm_whose_powers_vanish_has_a_gradient_of_zeros() {
    let gpu = gpu();
    for p in [1.5, 2.0, 3.0, 7.0] {
        let x = parameter(&gpu, &[1e-30, -2e-30, 0.0], &[3]);
        let y = x.norm(&[0], p).unwrap();
        // With p 1.5 the sum of the powers is a number.
        let gradients = y.backward().unwrap();
        let found = elements(&gradients.get(&x).unwrap());
        assert!(found.iter().all(|x| x.abs() <= 1.0), "{p}: {found:?}");
    }
}
