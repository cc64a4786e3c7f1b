//! Ten steps of each optimizer against PyTorch's.

use std::path::Path;

use lapidary::optim::{AdamW, AdamWOptions, Sgd, SgdOptions};
use lapidary::{Gpu, Result, Tensor, grad::Gradients};
use serde_json::Value;

use super::{elements, gradients, parameter};
use crate::devices::gpus;

const SHAPES: [&[usize]; 4] = [&[5], &[2, 3], &[], &[17]];

/// PyTorch rounds after each operation, and the kernels after each fused one.
const MOST_DIFFERENCE: f64 = 2e-6;

fn start(number: usize, at: usize) -> f32 {
    ((at * 7 + number * 3) % 11) as f32 / 8.0 - 0.625
}

fn gradient(step: usize, number: usize, at: usize) -> f32 {
    let element = ((at * 5 + number * 7 + step * 3) % 13) as f32 - 6.0;
    element / 16.0 * (1 + step % 3) as f32
}

fn of(shape: &[usize], element: impl Fn(usize) -> f32) -> Vec<f32> {
    (0..shape.iter().product()).map(element).collect()
}

/// Either optimizer.
enum Either {
    Sgd(Sgd),
    AdamW(AdamW),
}

impl Either {
    fn of(case: &Value, parameters: &[&Tensor]) -> Result<Either> {
        let given = &case["options"];
        let number = |name: &str, otherwise: f64| given[name].as_f64().unwrap_or(otherwise);
        if case["algorithm"] == "SGD" {
            let options = SgdOptions {
                lr: number("lr", 1e-3),
                momentum: number("momentum", 0.0),
                dampening: number("dampening", 0.0),
                weight_decay: number("weight_decay", 0.0),
                nesterov: given["nesterov"].as_bool().unwrap_or(false),
                ..SgdOptions::default()
            };
            return Sgd::new(parameters, options).map(Either::Sgd);
        }
        let own = AdamWOptions::default();
        let beta = |index: usize, otherwise| given["betas"][index].as_f64().unwrap_or(otherwise);
        let options = AdamWOptions {
            lr: number("lr", own.lr),
            betas: (beta(0, own.betas.0), beta(1, own.betas.1)),
            eps: number("eps", own.eps),
            weight_decay: number("weight_decay", own.weight_decay),
            ..own
        };
        AdamW::new(parameters, options).map(Either::AdamW)
    }

    fn step(&mut self, gradients: &Gradients) -> Result<()> {
        match self {
            Either::Sgd(sgd) => sgd.step(gradients),
            Either::AdamW(adam) => adam.step(gradients),
        }
    }

    fn halve_rate(&mut self) -> Result<()> {
        match self {
            Either::Sgd(sgd) => sgd.set_learning_rate(sgd.learning_rate() * 0.5),
            Either::AdamW(adam) => adam.set_learning_rate(adam.learning_rate() * 0.5),
        }
    }
}

/// The largest difference between numbers and PyTorch's.
fn difference(made: &[f32], expected: &Value) -> f64 {
    let expected = expected.as_array().expect("a list");
    assert_eq!(made.len(), expected.len());
    let pairs = made.iter().zip(expected);
    let differences = pairs.map(|(made, expected)| {
        let expected = expected.as_f64().expect("a number");
        assert!(made.is_finite(), "{made}, not {expected}");
        (f64::from(*made) - expected).abs() / expected.abs().max(1.0)
    });
    differences.fold(0.0, f64::max)
}

fn check(gpu: &Gpu, case: &Value) -> Result<f64> {
    let parameters = [0, 1, 2, 3].map(|number| {
        let elements = of(SHAPES[number], |at| start(number, at));
        parameter(gpu, &elements, SHAPES[number])
    });
    let mut optimizer = Either::of(case, &parameters.each_ref())?;
    let mut norms = Vec::new();
    for step in 0..10 {
        if step == 5 {
            optimizer.halve_rate()?;
        }
        let there = (0..4).filter(|&number| number != 1 || step % 3 != 1);
        let made = there.map(|number| {
            let elements = of(SHAPES[number], |at| gradient(step, number, at));
            (&parameters[number], elements)
        });
        let made: Vec<(&Tensor, Vec<f32>)> = made.collect();
        let made: Vec<_> = made.iter().map(|(of, all)| (*of, &all[..])).collect();
        let mut gradients = gradients(&made);
        if let Some(max_norm) = case["max_norm"].as_f64() {
            norms.push(gradients.clip_global_norm(max_norm)?.item::<f32>()?);
        }
        optimizer.step(&gradients)?;
    }
    let mut largest = difference(&norms, &case["norms"]);
    for (parameter, expected) in parameters.iter().zip(0..) {
        let results: &Value = &case["results"][expected as usize];
        largest = largest.max(difference(&elements(parameter), results));
    }
    Ok(largest)
}

#[test]
fn ten_steps_are_those_of_pytorch() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/torch/optim.jsonl");
    let text = std::fs::read_to_string(path).expect("the script writes this file");
    let mut faults = Vec::new();
    for (device, gpu) in gpus() {
        for line in text.lines() {
            let case: Value = serde_json::from_str(line).expect("a line of JSON");
            let what = format!("{} {} on the {device}", case["algorithm"], case["options"]);
            match check(&gpu, &case) {
                Ok(difference) if difference <= MOST_DIFFERENCE => {}
                Ok(difference) => faults.push(format!("{what}: {difference:.2e}")),
                Err(error) => faults.push(format!("{what}: {error}")),
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
