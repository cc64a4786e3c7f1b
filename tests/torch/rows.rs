//! Reductions, softmax, norms, losses and rotations, at all axes and options.
//!
//! The simulation runs the references. `tests/ops_reduce` compares them with the kernels, for more
//! types, shapes and views.

use lapidary::operations::Reduction;
use lapidary::{Result, Tensor};

use crate::ops_reduce::model::{Array, assert_close, download, gpus, tolerance};
use crate::ops_reduce::reduce::FOLDS;
use crate::torch::cases::{Case, read};

fn numbers<T: std::str::FromStr>(text: &str) -> Vec<T> {
    let numbers = text.split(' ').filter_map(|number| number.parse().ok());
    numbers.collect()
}

fn loss(name: &str, how: &str, t: &[Tensor]) -> Result<Tensor> {
    let reduction = match how.split(' ').next_back() {
        Some("none") => Reduction::None,
        Some("sum") => Reduction::Sum,
        _ => Reduction::Mean,
    };
    let ignore = numbers::<i64>(how).first().copied();
    match name {
        "cross_entropy" => t[0].cross_entropy(&t[1], ignore, reduction),
        _ => t[0].nll_loss(&t[1], ignore, reduction),
    }
}

/// The result of a case, and its error.
fn call(case: &Case, t: &[Tensor]) -> Result<(Tensor, f64)> {
    let mut parts = case.name().split(": ");
    let [name, how] = [(); 2].map(|()| parts.next().unwrap_or_default());
    let axes: Vec<isize> = numbers(how);
    let of_type = tolerance(t[0].dtype());
    if let Some((_, fold, error)) = FOLDS.iter().find(|fold| fold.0 == name) {
        return Ok((fold(&t[0], &axes)?, error.max(0.0)));
    }
    Ok(match name {
        "argmax" => (t[0].argmax(axes[0])?, 0.0),
        "argmin" => (t[0].argmin(axes[0])?, 0.0),
        "softmax" => (t[0].softmax(axes[0])?, of_type),
        "log_softmax" => (t[0].log_softmax(axes[0])?, of_type),
        "layer_norm" => {
            let size = &t[0].shape()[t[0].rank() - axes[0] as usize..];
            let weight = (axes[1] & 1 == 1).then(|| &t[1]);
            let bias = (axes[1] & 2 == 2).then(|| &t[t.len() - 1]);
            (t[0].layer_norm(size, weight, bias, 1e-5)?, 4.0 * of_type)
        }
        "rms_norm" => {
            let size = &t[0].shape()[t[0].rank() - 1..];
            (t[0].rms_norm(size, t.get(1), 0.25)?, of_type)
        }
        "group_norm" => {
            let groups = axes[0] as usize;
            (
                t[0].group_norm(groups, t.get(1), t.get(2), 1e-2)?,
                3.0 * of_type,
            )
        }
        "rotary" => (t[0].rotary(&t[1], &t[2], axes[0] == 1)?, of_type),
        _ => (loss(name, how, t)?, 4.0 * of_type),
    })
}

#[test]
fn operations_on_rows_are_those_of_pytorch() -> Result<()> {
    let cases = read("rows");
    assert!(cases.len() > 500, "only {} cases", cases.len());
    for (device, gpu) in gpus() {
        for case in &cases {
            let (made, error) = call(case, &case.operands(&gpu)?)?;
            let stored = &case.tensors("results")[0];
            let expected = Array {
                shape: stored.shape.clone(),
                values: stored.values.clone(),
            };
            let what = format!("{} on {device}", case.name());
            assert_close(&download(&made), &expected, error, &what);
        }
    }
    Ok(())
}
