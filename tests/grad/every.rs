//! Every operation of the library: its result is recorded, and its gradient is the slope along a
//! direction in which all operands change.

use std::collections::BTreeMap;

use lapidary::grad::Backprop;
use lapidary::{DType, Gpu, Result, Tensor, sim::SimOptions};

use crate::common::operations::{Operation, all, plain};

/// The size of the operands, in rows and columns.
const SIZES: (usize, usize) = (3, 4);

/// Operations whose results are floats without a gradient: they count or compare, or PyTorch says
/// that they are not differentiable.
const WITHOUT: &[&str] = &[
    "quantize",
    "heaviside",
    "heaviside, a number",
    "heaviside_",
    "heaviside_, a number",
];

/// Operands between whole numbers, all different, so that nothing jumps or is equal near them.
fn operands(gpu: &Gpu, operation: &Operation, step: f32) -> Vec<Tensor> {
    let operand = |number: usize| {
        let (tensor, elements) = plain(gpu, operation, DType::F32, number, SIZES).unwrap();
        if tensor.dtype() != DType::F32 {
            return tensor;
        }
        let is_share = elements.iter().all(|&element| element < 1.0);
        let moved = |(at, element): (usize, &f64)| {
            let own = ((at * 7 + number * 5) % 23) as f32 / 23.0;
            let element = match is_share {
                true => *element as f32 * 0.9 + 0.01 * own,
                false => *element as f32 + 0.28 + 0.17 * own,
            };
            element + step * direction(number, at)
        };
        let elements: Vec<f32> = elements.iter().enumerate().map(moved).collect();
        gpu.tensor(&elements, tensor.shape()).unwrap()
    };
    (0..operation.operands.len()).map(operand).collect()
}

fn direction(number: usize, at: usize) -> f32 {
    let own = (at * 13 + number * 29) % 17;
    own as f32 / 8.0 - 1.0
}

fn weight(result: usize, at: usize) -> f64 {
    0.5 + ((at * 11 + result * 3) % 19) as f64 / 19.0
}

/// The weighted sum of these results of an operation, and the sum of their sizes.
fn value(results: &[Tensor], counts: &[bool]) -> (f64, f64) {
    let (mut sum, mut size) = (0.0, 0.0);
    for (index, result) in results.iter().enumerate() {
        if !counts[index] {
            continue;
        }
        for (at, element) in result.to_vec::<f32>().unwrap().into_iter().enumerate() {
            let product = f64::from(element) * weight(index, at);
            sum += product;
            size += product.abs();
        }
    }
    (sum, size)
}

/// Parameters for an operation, and operands that depend on them: a parameter may not be written in
/// place, what depends on one may.
fn tracked(gpu: &Gpu, operation: &Operation) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
    let operands = operands(gpu, operation, 0.0).into_iter();
    let parameters = operands.map(|operand| match operand.dtype() {
        DType::F32 => operand.requires_grad(),
        _ => Ok(operand),
    });
    let parameters: Vec<Tensor> = parameters.collect::<Result<_>>()?;
    let dependent = parameters.iter().map(|parameter| match parameter.dtype() {
        DType::F32 => parameter.mul(1.0),
        _ => Ok(parameter.clone()),
    });
    let dependent = dependent.collect::<Result<_>>()?;
    Ok((parameters, dependent))
}

/// What is wrong with the gradient of an operation.
fn examine(gpu: &Gpu, operation: &Operation) -> Result<Option<String>> {
    let (parameters, dependent) = tracked(gpu, operation)?;
    let results = (operation.call)(&dependent)?;
    let is_float = |result: &&Tensor| result.dtype() == DType::F32;
    let floats: Vec<&Tensor> = results.iter().filter(is_float).collect();
    if floats.is_empty() || WITHOUT.contains(&operation.method()) {
        return Ok(None);
    }
    if floats.iter().all(|result| !result.has_grad()) {
        return Ok(Some("is not recorded".into()));
    }
    // Statistics beside a result have no gradient, as in PyTorch.
    let counts: Vec<bool> = results.iter().map(Tensor::has_grad).collect();
    let mut slope = 0.0;
    for (index, result) in results.iter().enumerate() {
        if !counts[index] {
            continue;
        }
        let weights: Vec<f32> = (0..result.len())
            .map(|at| weight(index, at) as f32)
            .collect();
        let seed = gpu.tensor(&weights, result.shape())?;
        let gradients = result.backprop().seed(&seed).keep_history().run()?;
        for (number, parameter) in parameters.iter().enumerate() {
            let Some(gradient) = gradients.get(parameter) else {
                continue;
            };
            for (at, element) in gradient.to_vec::<f32>()?.into_iter().enumerate() {
                slope += f64::from(element) * f64::from(direction(number, at));
            }
        }
    }
    const STEP: f32 = 1.0 / 256.0;
    let at = |step: f32| {
        (operation.call)(&operands(gpu, operation, step)).map(|made| value(&made, &counts))
    };
    let ((after, size), (before, _)) = (at(STEP)?, at(-STEP)?);
    let expected = (after - before) / f64::from(2.0 * STEP);
    let allowed = 0.03 * expected.abs() + 1e-6 * size / f64::from(STEP) + 2e-3;
    Ok(match (slope - expected).abs() <= allowed {
        true => None,
        false => Some(format!(
            "has the slope {slope}, and differences show {expected}"
        )),
    })
}

#[test]
fn every_operation_is_recorded_and_has_the_slope_that_differences_show() {
    let (gpu, _sim) = Gpu::simulated(SimOptions::default()).unwrap();
    let mut wrong = Vec::new();
    let mut count = 0;
    for operation in all().filter(|operation| operation.dtypes.contains(&DType::F32)) {
        count += 1;
        match examine(&gpu, operation) {
            Ok(None) => {}
            Ok(Some(what)) => wrong.push(format!("{} {what}", operation.name)),
            Err(error) => wrong.push(format!("{}: {error}", operation.name)),
        }
    }
    assert!(count > 200, "only {count} operations");
    assert!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Runs an operation and its backward.
fn run(gpu: &Gpu, operation: &Operation) -> Result<()> {
    let (_, dependent) = tracked(gpu, operation)?;
    for result in (operation.call)(&dependent)? {
        if result.has_grad() {
            let seed = result.detach().ones_like()?;
            result.backprop().seed(&seed).keep_history().run()?;
        }
    }
    gpu.finish()
}

#[test]
fn no_line_of_the_library_holds_what_a_recorded_operation_makes() {
    let (gpu, _sim) = Gpu::simulated(SimOptions::default()).unwrap();
    let mut strangers = BTreeMap::new();
    for operation in all().filter(|operation| operation.dtypes.contains(&DType::F32)) {
        run(&gpu, operation).unwrap_or_else(|error| panic!("{}: {error}", operation.name));
        for held in &gpu.memory().stats().tags {
            let tag = held.tag.as_ref().expect("they are few");
            if !tag.file().starts_with("tests") {
                let first = strangers.entry(tag.to_string());
                first.or_insert(operation.name);
            }
        }
    }
    assert!(strangers.is_empty(), "{strangers:#?}");
}

/// The shapes of operands, and of their gradients, where there are any.
type Shapes = Vec<(Vec<usize>, Option<Vec<usize>>)>;

/// The shapes of an operation's operands of this size.
/// `None` if the operation refuses the size.
fn shapes_of_gradients(gpu: &Gpu, operation: &Operation, sizes: (usize, usize)) -> Option<Shapes> {
    let operands = (0..operation.operands.len()).map(|number| {
        let (operand, _) = plain(gpu, operation, DType::F32, number, sizes).unwrap();
        match operand.dtype() {
            DType::F32 => operand.requires_grad().unwrap(),
            _ => operand,
        }
    });
    let parameters: Vec<Tensor> = operands.collect();
    let dependent = parameters.iter().map(|one| match one.dtype() {
        DType::F32 => one.mul(1.0).unwrap(),
        _ => one.clone(),
    });
    let results = (operation.call)(&dependent.collect::<Vec<_>>()).ok()?;
    let results: Vec<Tensor> = results.into_iter().filter(Tensor::has_grad).collect();
    let seeds: Vec<Tensor> = (results.iter())
        .map(|result| result.detach().ones_like().unwrap())
        .collect();
    let roots: Vec<_> = results.iter().zip(seeds.iter().map(Some)).collect();
    if roots.is_empty() {
        return Some(Vec::new());
    }
    let gradients = Backprop::of(&roots).run();
    let gradients = gradients.unwrap_or_else(|error| panic!("{}: {error}", operation.name));
    let of = |parameter: &Tensor| {
        let gradient = gradients.get(parameter)?;
        if results.iter().all(Tensor::is_empty) {
            let elements = gradient.to_vec::<f32>().unwrap();
            let is_zero = elements.iter().all(|&element| element == 0.0);
            assert!(is_zero, "{} of {sizes:?}: {elements:?}", operation.name);
        }
        Some(gradient.shape().to_vec())
    };
    let all = parameters.iter();
    Some(all.map(|one| (one.shape().to_vec(), of(one))).collect())
}

#[test]
fn operands_have_gradients_also_if_an_axis_is_empty() {
    let (gpu, _sim) = Gpu::simulated(SimOptions::default()).unwrap();
    let (mut wrong, mut count) = (Vec::new(), 0);
    let differentiable = |operation: &&Operation| {
        operation.dtypes.contains(&DType::F32) && !WITHOUT.contains(&operation.method())
    };
    for sizes in [(0, 4), (3, 0), (0, 0), (1, 4), (3, 1)] {
        for operation in all().filter(differentiable) {
            let Some(found) = shapes_of_gradients(&gpu, operation, sizes) else {
                continue;
            };
            let usual = shapes_of_gradients(&gpu, operation, SIZES).unwrap_or_default();
            for (number, (shape, gradient)) in found.into_iter().enumerate() {
                let is_usual = usual.get(number).is_some_and(|(_, usual)| usual.is_some());
                count += usize::from(is_usual);
                let what = format!(
                    "{} of {sizes:?}, operand {number} {shape:?}",
                    operation.name
                );
                match gradient {
                    None if is_usual => wrong.push(format!("{what}: no gradient")),
                    Some(other) if other != shape => wrong.push(format!("{what}: {other:?}")),
                    _ => {}
                }
            }
        }
    }
    assert!(count > 300, "only {count} operands");
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
