//! Errors name the method that the app called, and the app's line.

use lapidary::grad::Gradients;
use lapidary::optim::{Sgd, SgdOptions};
use lapidary::shares::ShareOptions;
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
        Error::Shape { .. } | Error::DType { .. } | Error::Axis { .. } | Error::Length { .. } => (
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
    let z = x.add(1.0).unwrap();
    let text = z.force().unwrap_err().to_string();
    let begin = "add for the tensor made at ";
    assert!(text.starts_with(begin), "{text}");
}

/// Lowers the budget until no command fits.
fn leave_no_memory(gpu: &Gpu) -> Result<()> {
    gpu.flush()?;
    let budget = Budget {
        device_bytes: Some(64),
        ..Budget::default()
    };
    gpu.memory().set_budget(budget).map(drop)
}

/// The error of the operation's first command, which cannot fit. `None` if it has no command.
fn error_without_memory(operation: &Operation) -> Result<Option<Error>> {
    let gpu = simulated();
    let operands = (0..operation.operands.len())
        .map(|number| Ok(plain(&gpu, operation, operation.dtypes[0], number, SIZES)?.0));
    let operands = operands.collect::<Result<Vec<_>>>()?;
    leave_no_memory(&gpu)?;
    let made = (operation.call)(&operands);
    let forced = made.and_then(|made| made.iter().try_for_each(Tensor::force));
    Ok(forced.err())
}

#[test]
fn a_command_that_runs_later_names_the_method() {
    let (mut faults, mut errors) = (Vec::new(), 0);
    for operation in all() {
        let error = error_without_memory(operation).expect("the operands can be made");
        let Some(error) = error else { continue };
        errors += 1;
        let (text, method) = (error.to_string(), operation.method());
        // The list prepares some operands, and `number first` is `7 - x`.
        let prepares = match method {
            "prelu" | "leaky_relu" => "neg",
            "binary_cross_entropy" | "binary_cross_entropy_weighted" => "sigmoid",
            "embedding_with" => "vstack",
            "number first" => "sub",
            _ => method,
        };
        let is_named = [method, prepares]
            .iter()
            .any(|name| text.starts_with(&format!("{name} for the tensor made at ")));
        // It reads an operand at once, which is no command. From a heap in the host's memory that
        // takes a buffer, which may find no room.
        let is_read =
            method.starts_with("repeat_interleave_by") && text.starts_with("out of memory: ");
        // A method in place writes a tensor that a helper made.
        if !((is_named || is_read) && text.contains("tests/common/")) {
            faults.push(format!("{method}: {text}"));
        }
    }
    assert!(
        faults.is_empty(),
        "{} of {errors}:\n{}",
        faults.len(),
        faults.join("\n")
    );
    assert!(errors > 250, "{errors}");
}

#[test]
fn fused_commands_name_the_methods_of_their_results() {
    // Commands are fused if the device has room, and the ceiling of the share refuses them.
    let share = ShareOptions::guaranteed(0).with_ceiling(4096);
    let gpu = Gpu::simulated(SimOptions::default()).unwrap().0;
    let gpu = gpu.share("narrow", share).unwrap();
    let x = gpu.tensor(&[1.0_f32; 600], &[20, 30]).unwrap();
    let begins = |result: &Tensor, method: &str| {
        let text = result.force().unwrap_err().to_string();
        let begin = format!("{method} for the tensor made at ");
        assert!(text.starts_with(&begin), "{method}: {text}");
    };
    let shifted = x.add(1.0).unwrap();
    let clipped = shifted.hardtanh(-1.0, 1.0).unwrap();
    begins(&shifted, "add");
    drop((shifted, clipped));
    // Nobody holds what is computed in between.
    let clipped = x.add(2.0).unwrap().hardtanh(-1.0, 1.0).unwrap();
    begins(&clipped, "hardtanh");
}

/// A parameter, its optimizer and its gradient, and no memory for more.
fn trained() -> Result<(Tensor, Sgd, Gradients)> {
    let gpu = simulated();
    let w = gpu.ones(&[20, 30], DType::F32)?.requires_grad()?;
    let gradients = w.mul(2.0)?.sum_all()?.backward()?;
    gradients.get(&w).map_or(Ok(()), |grad| grad.force())?;
    let sgd = Sgd::new(&[&w], SgdOptions::default())?;
    leave_no_memory(&gpu)?;
    Ok((w, sgd, gradients))
}

#[test]
fn the_commands_of_a_training_step_name_the_method() -> Result<()> {
    let begins = |tensor: &Tensor, method: &str| {
        let text = tensor.force().unwrap_err().to_string();
        let begin = format!("{method} for the tensor made at ");
        assert!(text.starts_with(&begin), "{method}: {text}");
    };
    let (_, _, mut gradients) = trained()?;
    begins(&gradients.clip_global_norm(1.0)?, "clip_global_norm");
    let (w, mut sgd, gradients) = trained()?;
    sgd.step(&gradients)?;
    begins(&w, "step");
    Ok(())
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
