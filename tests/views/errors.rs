//! Errors name the method that the app called, and the app's line.

use lapidary::operations::{Conv, Pool};
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

/// Calls with wrong arguments: the method, and its error.
macro_rules! refusals {
    ($($on:ident.$method:ident($($argument:expr),*);)+) => {
        [$((stringify!($method), line!(), $on.$method($($argument),*).map(drop))),+]
    };
}

#[test]
fn wrong_arguments_are_refused_with_the_method_and_the_line() {
    let gpu = &simulated();
    let of = |shape: &[usize]| gpu.zeros(shape, DType::F32).unwrap();
    let (x, v, none, image) = (&of(&[3, 4]), &of(&[60_000]), &of(&[0]), &of(&[1, 2, 4, 4]));
    let column = &v.unsqueeze(1).unwrap();
    let rows = &gpu.zeros(&[3], DType::I32).unwrap();
    let still = Conv {
        stride: [0, 0],
        ..Conv::default()
    };
    let huge = &[1 << 20, 1 << 20][..];
    let refused = refusals! {
        x.reshape(&[5]);
        x.reshape_infer(&[-1, 5]);
        x.view_as(&[5]);
        x.permute(&[0, 0]);
        x.permute(&[0]);
        x.transpose(0, 5);
        x.narrow(0, 2, 5);
        x.narrow(5, 0, 1);
        x.select(0, 9);
        x.select(7, 0);
        x.slice(0, None, None, 0);
        x.squeeze_axis(0);
        x.squeeze_axis(7);
        x.unsqueeze(7);
        x.flip(&[0, 0]);
        x.broadcast_to(&[5]);
        x.argmax_keepdim(5);
        x.argmin_keepdim(5);
        none.argmax_all();
        none.argmin_all();
        x.max_with_indices(5);
        none.min_with_indices(0);
        x.max_with_indices_keepdim(5);
        none.min_with_indices_keepdim(0);
        none.max_with_indices_all();
        none.min_with_indices_all();
        x.index(&[None, None, Some(rows)]);
        x.index_put(&[None, None, Some(rows)], v, false);
        image.conv2d(image, None, &still);
        image.max_pool2d(&Pool::new([9, 9]));
        image.avg_pool2d(&Pool::new([9, 9]));
        gpu.zeros(huge, DType::F32);
        gpu.empty(huge, DType::F32);
        gpu.ones(huge, DType::F32);
        gpu.full(huge, 2.0, DType::F32);
        gpu.eye_with(1 << 20, 1 << 20, DType::F32);
        gpu.rand_uniform(huge, 0.0, 1.0, 1, DType::F32);
        gpu.rand_normal(&[3], 0.0, 1.0, 1, DType::I32);
        gpu.zeros(&[1; 9], DType::F32);
        v.outer(v);
        column.add(v);
        column.lt(v);
        column.lerp(v, v);
    };
    for (method, line, refused) in refused {
        let text = refused.expect_err(method).to_string();
        let has_line = text.contains(&format!(" (called at tests/views/errors.rs:{line})"));
        assert!(text.starts_with(method) && has_line, "{method}: {text}");
        let rest = &text[method.len()..];
        assert!(rest.starts_with([':', ' ']), "{method}: {text}");
    }
}
