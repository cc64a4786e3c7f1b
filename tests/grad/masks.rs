//! Backwards that keep bits, or positions in windows, where the elements are not kept anyhow.

use lapidary::operations::Pool;
use lapidary::{DType, Gpu, Result, Tensor};

use super::check::{gpu, parameter, spread};

type Network = fn(&Tensor) -> Result<Tensor>;

/// An operation, and the one before it whose result only this operation would keep.
struct Case {
    name: &'static str,
    before: Network,
    operation: Network,
}

/// A result that its own operation does not keep.
fn scaled(x: &Tensor) -> Result<Tensor> {
    x.mul(1.0)
}

fn overlapping() -> Pool<2> {
    Pool {
        stride: [2, 2],
        padding: [1, 1],
        ..Pool::new([3, 3])
    }
}

fn pairs(x: &Tensor) -> Result<Tensor> {
    x.max_pool2d(&Pool::new([2, 2]))
}

const CASES: [(&str, Network, Network); 17] = [
    ("clamp", scaled, |x| x.clamp(-0.5, 0.7)),
    ("leaky_relu", scaled, |x| x.leaky_relu(0.1)),
    ("hardsigmoid", scaled, |x| x.mul(5.0)?.hardsigmoid()),
    ("softshrink", scaled, |x| x.softshrink(0.3)),
    ("maximum", scaled, |x| x.maximum(&x.flip(&[0])?)),
    ("minimum", scaled, |x| x.minimum(&x.detach().flip(&[3])?)),
    ("maximum with a number", scaled, |x| x.maximum(0.25)),
    ("fmax", scaled, |x| x.fmax(&x.flip(&[2])?)),
    ("fmin", scaled, |x| x.fmin(&x.flip(&[2])?)),
    ("max of rows", scaled, |x| x.max(&[3])),
    ("min of planes", scaled, |x| x.min(&[2, 3])),
    ("pairs", scaled, pairs),
    ("overlapping windows", scaled, |x| {
        x.max_pool2d(&overlapping())
    }),
    ("dilated windows", scaled, |x| {
        let pool = Pool {
            dilation: [2, 3],
            ..overlapping()
        };
        x.max_pool2d(&pool)
    }),
    ("windows of 289 elements", scaled, |x| {
        x.max_pool2d(&Pool::new([17, 17]))
    }),
    ("adaptive windows after relu", Tensor::relu, |x| {
        x.adaptive_max_pool2d([7, 9])
    }),
    ("rows of pairs after relu6", Tensor::relu6, |x| {
        x.select(0, 0)?.max_pool1d(&Pool {
            stride: [1],
            ..Pool::new([2])
        })
    }),
];

/// An odd number of elements, many of which are equal, and some no numbers.
fn elements() -> Vec<f32> {
    let coarse = |(at, x): (usize, f32)| match (x * 8.0).round() {
        // One row has some, so that other rows have gradients.
        -7.0 if at < SHAPE[3] => f32::NAN,
        -6.0 if at < SHAPE[3] => f32::INFINITY,
        -5.0 => -0.0,
        other => other / 8.0,
    };
    let count = SHAPE.iter().product();
    let elements = spread(count, -1.0, 1.0).into_iter();
    elements.enumerate().map(coarse).collect()
}

const SHAPE: [usize; 4] = [1, 3, 149, 151];

/// The gradients of a case, and their own gradients, as bits. If `is_kept`, another operation keeps
/// the operand.
fn gradients_of(gpu: &Gpu, case: &Case, is_kept: bool) -> Result<[Vec<u32>; 2]> {
    let x = parameter(gpu, &elements(), &SHAPE);
    let operand = (case.before)(&x)?;
    let other = is_kept.then(|| operand.square()).transpose()?;
    let y = (case.operation)(&operand)?;
    drop(operand);
    let first = y.square()?.sum_all()?.backprop().record().run()?;
    let first = first.get(&x).expect("it depends on it");
    let second = first.square()?.sum_all()?.backward()?;
    let second = second.get(&x).expect("it depends on it");
    drop(other);
    let bits = |x: &Tensor| -> Result<Vec<u32>> {
        let elements = x.to_vec::<f32>()?.into_iter();
        // The bits of a NaN are the adapter's choice.
        let bits = elements.map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() });
        Ok(bits.collect())
    };
    Ok([bits(&first)?, bits(&second)?])
}

fn compare(gpu: &Gpu, which: impl Fn(&str) -> bool) {
    for (name, before, operation) in CASES.into_iter().filter(|(name, ..)| which(name)) {
        let case = Case {
            name,
            before,
            operation,
        };
        let [kept, reduced] = [true, false].map(|is_kept| gradients_of(gpu, &case, is_kept));
        let (kept, reduced) = (kept.unwrap(), reduced.unwrap());
        for (order, (kept, reduced)) in kept.iter().zip(&reduced).enumerate() {
            let differ = kept.iter().zip(reduced).filter(|(a, b)| a != b).count();
            assert_eq!(differ, 0, "{}, order {}", case.name, order + 1);
            let some = kept.iter().any(|&bits| f32::from_bits(bits) != 0.0);
            assert!(some, "{}, order {}: all are 0", case.name, order + 1);
        }
    }
}

#[test]
fn gradients_by_masks_are_those_by_operands_to_the_bit() {
    compare(&gpu(), |_| true);
}

#[test]
fn so_they_are_by_the_reference_kernels() {
    let names = ["clamp", "dilated windows", "rows of pairs after relu6"];
    let (gpu, _) = Gpu::simulated(Default::default()).unwrap();
    compare(&gpu, |name| names.contains(&name));
}

#[test]
fn each_operation_keeps_bits_where_its_operand_is_not_kept() {
    const COUNT: u64 = 1 << 16;
    const WHOLE: u64 = COUNT * 4;
    const BITS: u64 = COUNT / 8;
    let gpu = gpu();
    let shape = [1, 16, 64, 64];
    let x = parameter(&gpu, &spread(COUNT as usize, -1.0, 1.0), &shape);
    let calls: &[(&str, Network, u64)] = &[
        ("clamp", |x| x.clamp(-0.5, 0.5), BITS),
        ("hardsigmoid", |x| x.hardsigmoid(), BITS),
        ("leaky_relu", |x| x.leaky_relu(0.1), BITS),
        ("threshold", |x| x.threshold(0.5, 0.0), BITS),
        ("hardshrink", |x| x.hardshrink(0.5), BITS),
        ("softshrink", |x| x.softshrink(0.5), BITS),
        ("nan_to_num", |x| x.nan_to_num(0.0, None, None), BITS),
        (
            "masked_fill",
            |x| x.masked_fill(&x.detach().gt(0.5)?, 0.0),
            BITS,
        ),
        ("where", |x| x.detach().gt(0.0)?.where_(x, 2.0), BITS),
        (
            "a mask that broadcasts",
            |x| {
                let row = x.detach().narrow(2, 0, 1)?.gt(0.0)?;
                x.masked_fill(&row, 0.0)
            },
            COUNT / 64,
        ),
        ("maximum", |x| x.maximum(&x.detach().neg()?), 2 * BITS),
        ("fmin", |x| x.fmin(&x.detach().neg()?), BITS),
        ("max", |x| x.max(&[1]), BITS),
        ("max_pool2d", pairs, COUNT / 4),
        ("relu: its result", |x| x.relu(), WHOLE),
        (
            "relu6, then pairs",
            |x| pairs(&x.relu6()?),
            BITS + COUNT / 4,
        ),
        ("relu, then pairs", |x| pairs(&x.relu()?), BITS + COUNT / 4),
        (
            "relu, then pairs, and then a square that keeps its result",
            |x| {
                let y = x.relu()?;
                pairs(&y)?.sum_all()? + y.square()?.sum_all()?
            },
            WHOLE + BITS + COUNT / 4,
        ),
    ];
    let saved_bytes = || {
        gpu.finish().unwrap();
        gpu.memory().stats().saved_bytes
    };
    for (what, call, expected) in calls {
        let y = call(&scaled(&x).unwrap()).unwrap();
        assert_eq!(saved_bytes(), *expected, "{what}");
        y.sum_all().unwrap().backward().unwrap();
        assert_eq!(saved_bytes(), 0, "after {what}");
    }
    // A parameter is kept anyhow, and so is what another operation keeps.
    let exponential = x.exp().unwrap();
    for (operand, expected) in [(&exponential, WHOLE), (&x, 2 * WHOLE)] {
        let _pooled = pairs(operand).unwrap();
        let _clamped = operand.clamp(-0.5, 0.5).unwrap();
        assert_eq!(saved_bytes(), expected);
    }
}

#[test]
fn a_small_network_of_convolutions_keeps_less_than_a_quarter() {
    let gpu = gpu();
    let normal = |shape: &[usize], seed| gpu.rand_normal(shape, 0.0, 0.3, seed, DType::F32);
    let images = normal(&[4, 3, 64, 64], 1).unwrap();
    let filters = normal(&[16, 3, 3, 3], 2).unwrap().requires_grad().unwrap();
    let network = || -> Result<Tensor> {
        let same = lapidary::operations::Conv {
            padding: [1, 1],
            ..Default::default()
        };
        let pooled = images.conv2d(&filters, None, &same)?.relu()?;
        let pooled = pooled.max_pool2d(&Pool::new([2, 2]))?;
        pooled.detach().lt(1.0)?.where_(&pooled, 1.0)
    };
    let y = network().unwrap();
    gpu.finish().unwrap();
    let elements = 4 * 16 * 64 * 64;
    // Without bits, the result of relu and a bool for each maximum: 1.06 MiB and the images.
    // With them, the signs of relu, the positions of the maxima, and which of them are below 1.
    let masks_bytes = elements / 8 + elements / 4 + elements / 4 / 8;
    let saved_bytes = gpu.memory().stats().saved_bytes;
    assert_eq!(saved_bytes, images.size_bytes() + masks_bytes);
    let loss = y.sum_all().unwrap();
    assert_eq!(loss.backward().unwrap().len(), 1);
}
