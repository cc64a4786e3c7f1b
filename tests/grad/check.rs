//! Gradients against finite differences.

use lapidary::{DType, Gpu, Options, Result, Tensor};

/// A device for tests of gradients.
pub(super) fn gpu() -> Gpu {
    Gpu::open(Options::from_env().unwrap()).expect("the tests need an adapter")
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

/// Operands of these shapes between -1 and 1, each with elements of its own.
pub(super) fn check_shapes(
    gpu: &Gpu,
    what: &str,
    shapes: &[&[usize]],
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let elements: Vec<Vec<f32>> = (1..)
        .zip(shapes)
        .map(|(number, shape)| {
            let count: usize = shape.iter().product();
            spread(count * number, -1.0, 1.0).split_off(count * (number - 1))
        })
        .collect();
    let operands: Vec<(&[f32], &[usize])> = elements
        .iter()
        .zip(shapes)
        .map(|(elements, shape)| (&elements[..], *shape))
        .collect();
    check(gpu, what, &operands, f);
}

/// The gradients of the gradients of all operands.
pub(super) fn check_twice(
    gpu: &Gpu,
    what: &str,
    shapes: &[&[usize]],
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    check_shapes(gpu, what, shapes, |x| {
        let inner: Vec<Tensor> = x
            .iter()
            .map(|x| x.clone().requires_grad())
            .collect::<Result<_>>()?;
        let loss = f(&inner)?.sin()?.sum_all()?;
        let gradients = loss.backprop().record().run()?;
        let mut sum = gpu.zeros(&[], DType::F32)?;
        for (number, x) in inner.iter().enumerate() {
            let gradient = gradients.get(x).expect("it depends on it");
            let weight = 0.5 + number as f64;
            sum = (sum + (gradient.square()?.sum_all()? * weight)?)?;
        }
        Ok(sum)
    });
}
