//! Operations on elements that are rows of a table, and those composed of them, at special and
//! ordinary numbers.
//!
//! The simulation runs the references of the rows. `tests/ops_elementwise` compares them with the
//! kernels, for more numbers, types and shapes.

use std::collections::BTreeSet;

use lapidary::internal::BinaryRow;
use lapidary::{Result, Tensor};

use crate::common::operands::numbers;
use crate::ops_elementwise::model::close;
use crate::ops_elementwise::{binary, unary};
use crate::torch::cases::{Case, gpus, read};

/// Says where a result differs from a case's. `at` gives the relative and absolute error of an
/// element, or nothing if it is not defined.
fn compare(case: &Case, made: &Tensor, at: impl Fn(usize) -> Option<[f32; 2]>) -> Vec<String> {
    let stored = &case.tensors("results")[0];
    let kind = (stored.held_as(), &stored.shape[..]);
    assert_eq!((made.dtype(), made.shape()), kind, "{}", case.name());
    let got = numbers(made).expect("a result");
    let differs = |&index: &usize| match at(index) {
        Some(_) if !made.dtype().is_float() => got[index] != stored.values[index],
        Some([relative, absolute]) => {
            let (got, wanted) = (got[index] as f32, stored.values[index] as f32);
            !close(got, wanted, relative, absolute)
        }
        None => false,
    };
    let operands = case.tensors("operands");
    let fault = |index: usize| {
        let all = operands.iter();
        let of: Vec<f64> = all
            .filter_map(|one| one.values.get(index).copied())
            .collect();
        format!(
            "{}{of:?} is {}, not {}",
            case.name(),
            got[index],
            stored.values[index]
        )
    };
    (0..got.len()).filter(differs).map(fault).collect()
}

/// The name of a case's operation.
fn name_of(case: &Case) -> &str {
    case.name().split(" of ").next().unwrap_or_default()
}

/// May the device treat this number as 0? A real adapter may if it is subnormal.
fn is_flushed(device: &str, x: f32) -> bool {
    device == "adapter" && x.is_subnormal()
}

#[test]
fn operations_on_one_element_are_those_of_pytorch() -> Result<()> {
    let mut faults = Vec::new();
    for (device, gpu) in gpus() {
        for case in &read("elementwise") {
            let operation = unary::cases().find(|one| one.0 == name_of(case));
            let Some(unary::Case(name, method, error)) = operation else {
                continue;
            };
            let operands = case.operands(&gpu)?;
            let x = numbers(&operands[0])?;
            let found = compare(case, &method(&operands[0])?, |at| {
                let x = x[at] as f32;
                (unary::is_defined(name, x) && !is_flushed(device, x)).then_some(error)
            });
            let on = |fault: String| format!("{fault} on the {device}");
            faults.extend(found.into_iter().map(on));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

/// The relative and absolute error of an operation at two numbers, if it is defined there.
fn error_at(row: &BinaryRow, a: f32, b: f32, wanted: f64) -> Option<[f32; 2]> {
    let is_exact = [0.0, 1.0].contains(&a.abs()) || !a.is_finite() || !b.is_finite() || b == 0.0;
    match row.name {
        "pow" if is_exact => Some([0.0, 0.0]),
        // The exponent multiplies an adapter's rounding error, and an intermediate overflows.
        "pow" if (a.abs() - 1.0).abs() < 1e-3 || wanted.abs() > 1e36 => None,
        "xlogy" | "xlog1py" if a.is_finite() => Some([row.error[0], 1e-6 * a.abs()]),
        _ => Some([row.error[0], binary::absolute(row, a)]),
    }
}

#[test]
fn operations_on_two_elements_are_those_of_pytorch() -> Result<()> {
    let mut faults = Vec::new();
    for (device, gpu) in gpus() {
        for case in &read("elementwise") {
            let Some((row, method)) = binary::cases().find(|one| one.0.name == name_of(case))
            else {
                continue;
            };
            let operands = case.operands(&gpu)?;
            let [x, y] = [numbers(&operands[0])?, numbers(&operands[1])?];
            let made = method(&operands[0], &operands[1])?;
            let (got, stored) = (numbers(&made)?, &case.tensors("results")[0].values);
            let at_both = |at: usize| error_at(row, x[at] as f32, y[at] as f32, stored[at]);
            let mut found = compare(case, &made, at_both);
            // The sign of 0 counts.
            let has_sign = ["atan2", "copysign", "pow"].contains(&row.name);
            let is_wrong =
                |&at: &usize| !stored[at].is_nan() && got[at].signum() != stored[at].signum();
            let wrong = (0..got.len()).filter(|at| has_sign && is_wrong(at));
            found.extend(
                wrong.map(|at| format!("{}({}, {}) is {}", row.name, x[at], y[at], got[at])),
            );
            let on = |fault: String| format!("{fault} on the {device}");
            faults.extend(found.into_iter().map(on));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

/// Operations on several elements whose methods take more than tensors.
const COMPOSED: [&str; 6] = ["lerp", "addcmul", "addcdiv", "is_close", "prelu", "glu"];

fn composed(name: &str, t: &[Tensor]) -> Result<Tensor> {
    match name {
        "lerp" if t.len() == 2 => t[0].lerp(&t[1], 0.25),
        "lerp" => t[0].lerp(&t[1], &t[2]),
        "addcmul" => t[0].addcmul(&t[1], &t[2], -0.5),
        "addcdiv" => t[0].addcdiv(&t[1], &t[2], 2),
        "is_close" => {
            let given = t[2].to_vec::<f32>()?;
            t[0].is_close(&t[1], given[0], given[1], given[2] != 0.0)
        }
        "prelu" => t[0].prelu(&t[1]),
        _ => t[0].glu(t[1].to_vec::<i32>()?[0] as isize),
    }
}

#[test]
fn composed_operations_are_those_of_pytorch() -> Result<()> {
    let mut faults = Vec::new();
    for (device, gpu) in gpus() {
        for case in &read("elementwise") {
            let name = name_of(case);
            if !COMPOSED.contains(&name) {
                continue;
            }
            let mut operands = case.operands(&gpu)?;
            let made = composed(name, &operands)?;
            operands[0] = operands[0].zeros_like()?;
            let term = numbers(&composed(name, &operands)?)?;
            let found = compare(case, &made, |at| match name {
                "is_close" | "prelu" => Some([0.0, 0.0]),
                "glu" => Some([2e-5, 1e-7]),
                // After cancellation the error is that of the terms.
                _ => Some([1e-6, 1e-6 * (1.0 + term[at].abs().min(1e30) as f32)]),
            });
            let on = |fault: String| format!("{fault} on the {device}");
            faults.extend(found.into_iter().map(on));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

#[test]
fn every_row_has_pytorchs_values() {
    let cases = read("elementwise");
    let asked: BTreeSet<&str> = cases.iter().map(name_of).collect();
    let rows = unary::cases().map(|one| one.0);
    let rows = rows.chain(binary::cases().map(|one| one.0.name));
    let known: BTreeSet<&str> = rows.chain(COMPOSED).collect();
    assert_eq!(asked, known);
}
