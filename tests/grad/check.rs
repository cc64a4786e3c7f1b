//! Gradients against finite differences.

use lapidary::{DType, Gpu, Options, Result, Tensor};

/// A device for tests of gradients.
pub(super) fn gpu() -> Gpu {
    Gpu::open(Options::default()).expect("the tests need an adapter")
}

/// A parameter with these elements.
pub(super) fn parameter(gpu: &Gpu, elements: &[f32], shape: &[usize]) -> Tensor {
    let made = gpu.tensor(elements, shape).unwrap();
    made.requires_grad().unwrap()
}

/// Numbers between `low` and `high` that are the same in every run, and all different.
pub(super) fn spread(count: usize, low: f32, high: f32) -> Vec<f32> {
    let step = |index: usize| ((index * 7919 + 13) % 10_007) as f32 / 10_007.0;
    (0..count)
        .map(|index| low + (high - low) * step(index))
        .collect()
}

/// Checks the gradients of `f` with respect to all of its operands at these elements.
///
/// The results are weighted by numbers of their own and summed. The difference quotients are those
/// of the sums in f64, of results in f32, so the step must be large and the tolerance generous.
pub(super) fn check(
    gpu: &Gpu,
    what: &str,
    operands: &[(&[f32], &[usize])],
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let value = |operands: &[Tensor], weights: &[f32]| -> f64 {
        let y = f(operands).unwrap().to_vec::<f32>().unwrap();
        y.iter()
            .zip(weights)
            .map(|(y, w)| f64::from(*y) * f64::from(*w))
            .sum()
    };
    let parameters: Vec<Tensor> = operands
        .iter()
        .map(|(elements, shape)| parameter(gpu, elements, shape))
        .collect();
    let y = f(&parameters).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(y.has_grad(), "{what} is not recorded");
    let weights = spread(y.len(), 0.5, 1.5);
    let seed = gpu.tensor(&weights, y.shape()).unwrap();
    let gradients = y.backprop().seed(&seed).run();
    let gradients = gradients.unwrap_or_else(|error| panic!("{what}: {error}"));
    for (index, (elements, shape)) in operands.iter().enumerate() {
        let got = match gradients.get(&parameters[index]) {
            Some(gradient) => {
                assert_eq!(gradient.shape(), *shape, "{what}, operand {index}");
                assert_eq!(gradient.dtype(), DType::F32, "{what}, operand {index}");
                gradient.to_vec::<f32>().unwrap()
            }
            None => vec![0.0; elements.len()],
        };
        for at in 0..elements.len() {
            let step = 4e-3_f32;
            let moved = |by: f32| -> f64 {
                let tensors: Vec<Tensor> = operands
                    .iter()
                    .enumerate()
                    .map(|(other, (elements, shape))| {
                        let mut elements = elements.to_vec();
                        if other == index {
                            elements[at] += by;
                        }
                        gpu.tensor(&elements, shape).unwrap()
                    })
                    .collect();
                value(&tensors, &weights)
            };
            let expected = (moved(step) - moved(-step)) / f64::from(2.0 * step);
            let got = f64::from(got[at]);
            let close = (got - expected).abs() <= 2e-2 * (1.0 + expected.abs());
            assert!(
                close,
                "{what}, operand {index}, element {at}: {got} instead of {expected}"
            );
        }
    }
}
