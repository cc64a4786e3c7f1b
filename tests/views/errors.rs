//! Errors name the method that the app called, and the app's line.

use lapidary::sim::SimOptions;
use lapidary::{Budget, DType, Error, Gpu, Result, Tensor};

use super::simulated;
use crate::common::operations::{Operation, all, plain};

const SIZES: (usize, usize) = (4, 6);
const TYPES: [DType; 4] = [DType::F32, DType::I32, DType::U32, DType::Bool];

/// Where the list of operations calls them.
const LIST: &str = "common/operations/";

/// The operands with the one of this number made wrong.
fn wrong(operands: &[Tensor], number: usize, way: usize) -> Result<Vec<Tensor>> {
    let mut operands = operands.to_vec();
    let one = &operands[number];
    operands[number] = match TYPES.get(way) {
        Some(&dtype) => one.cast(dtype)?,
        None if way == TYPES.len() => one.reshape(&[])?,
        None if way == TYPES.len() + 1 => one
            .unsqueeze(0)?
            .broadcast_to(&[&[3], one.shape()].concat())?,
        None => one.flatten()?.broadcast_to(&[7, one.len()])?,
    };
    Ok(operands)
}

/// What is wrong with an error of a method.
fn fault(method: &str, error: &Error) -> Option<String> {
    let text = error.to_string();
    // The list prepares operands of activations by `neg`. `number first` is `7 - x`.
    if text.starts_with("neg: ") || method == "number first" {
        return None;
    }
    let (has_name, has_line) = match error {
        Error::Shape { .. } | Error::DType { .. } | Error::Axis { .. } => (
            text.starts_with(&format!("{method}: ")),
            text.contains(LIST),
        ),
        Error::Gradient { .. } => (text.starts_with(&format!("{method}: ")), true),
        _ => (true, true),
    };
    (!(has_name && has_line)).then(|| format!("{method}: {text}"))
}

fn check(gpu: &Gpu, operation: &Operation, faults: &mut Vec<String>) -> Result<usize> {
    let mut errors = 0;
    for (dtype, tracked) in [(operation.dtypes[0], false), (operation.dtypes[0], true)] {
        let made: Result<Vec<Tensor>> = (0..operation.operands.len())
            .map(|number| {
                let tensor = plain(gpu, operation, dtype, number, SIZES)?.0;
                match tracked && tensor.dtype() == DType::F32 {
                    true => tensor.requires_grad(),
                    false => Ok(tensor),
                }
            })
            .collect();
        let operands = made?;
        for number in 0..operands.len() {
            for way in 0..TYPES.len() + 3 {
                let Ok(operands) = wrong(&operands, number, way) else {
                    continue;
                };
                if let Err(error) = (operation.call)(&operands) {
                    errors += 1;
                    faults.extend(fault(operation.method(), &error));
                }
            }
        }
    }
    Ok(errors)
}

#[test]
fn wrong_operands_are_refused_with_the_method_and_the_line() {
    let gpu = simulated();
    let (mut faults, mut errors) = (Vec::new(), 0);
    for operation in all() {
        errors += check(&gpu, operation, &mut faults).expect("the operands can be made");
    }
    faults.sort();
    faults.dedup();
    assert!(
        faults.is_empty(),
        "{} of {errors}:\n{}",
        faults.len(),
        faults.join("\n")
    );
    assert!(errors > 2000, "{errors}");
}

#[test]
fn a_command_that_never_fits_names_the_operation_and_the_line() {
    let gpu = simulated();
    let budget = Budget {
        device_bytes: Some(4 << 20),
        ..Budget::default()
    };
    gpu.memory().set_budget(budget).unwrap();
    let x = gpu.ones(&[1024, 600], DType::F32).unwrap();
    let line = line!() + 1;
    let y = x.matmul(&x.t().unwrap()).unwrap().named("scores");
    let text = y.force().unwrap_err().to_string();
    for part in [
        "matmul",
        "`scores`",
        &format!("views/errors.rs:{line}"),
        "never fits",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let z = x.add_scalar(1.0).unwrap();
    let text = z.force().unwrap_err().to_string();
    assert!(text.starts_with("add for the tensor made at "), "{text}");
}

#[test]
fn what_no_buffer_holds_is_refused_with_the_method_and_the_line() {
    let (mut faults, mut errors) = (Vec::new(), 0);
    for (sizes, max_buffer_bytes) in [((40, 60), 9600), ((40, 60), 3000), ((24, 300), 2400)] {
        let device = SimOptions {
            max_buffer_bytes,
            ..SimOptions::default()
        };
        let gpu = Gpu::simulated(device).expect("these options can be").0;
        for operation in all() {
            let dtype = operation.dtypes[0];
            let made = (0..operation.operands.len())
                .map(|number| Ok(plain(&gpu, operation, dtype, number, sizes)?.0));
            let Ok(operands) = made.collect::<Result<Vec<_>>>() else {
                continue;
            };
            let Err(error @ Error::NeverFits { .. }) = (operation.call)(&operands) else {
                continue;
            };
            errors += 1;
            let (text, method) = (error.to_string(), operation.method());
            let has_name = text.starts_with(&format!("{method} (called at "));
            // The list makes a longer table for it.
            let is_of_list = method == "embedding_with" && text.starts_with("vstack (");
            if !(has_name && text.contains(LIST) || is_of_list) {
                faults.push(format!("{method}: {text}"));
            }
        }
    }
    faults.sort();
    faults.dedup();
    assert!(
        faults.is_empty(),
        "{} of {errors}:\n{}",
        faults.len(),
        faults.join("\n")
    );
    assert!(errors > 20, "{errors}");
}
