//! Reductions, softmax, norms, losses, rotations, and what moves elements, at all axes and options.
//!
//! The simulation runs the references. `tests/ops_reduce` compares them with the kernels, for more
//! types, shapes and views.

use lapidary::operations::{PadMode, Reduction};
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

/// What moves elements, or adds them up.
fn moved(name: &str, given: &[isize], t: &[Tensor]) -> Result<Tensor> {
    let sizes: Vec<usize> = given.iter().map(|&size| size as usize).collect();
    let widths: Vec<_> = sizes
        .chunks(2)
        .map(|pair| (pair[0], *pair.last().unwrap()))
        .collect();
    let (first, axes) = given.split_at(given.len() / 2);
    match name {
        "stack" => Tensor::stack(&t.iter().collect::<Vec<_>>(), given[0]),
        "repeat" => t[0].repeat(&sizes),
        "repeat_interleave" => t[0].repeat_interleave(sizes[0], given[1]),
        "roll" => t[0].roll(first, axes),
        "tril" => t[0].tril(given[0]),
        "triu" => t[0].triu(given[0]),
        "pad constant" => t[0].pad(&widths, 9),
        "pad reflect" => t[0].pad_with(&widths, PadMode::Reflect),
        "pad replicate" => t[0].pad_with(&widths, PadMode::Replicate),
        "pad circular" => t[0].pad_with(&widths, PadMode::Circular),
        "cumsum" => t[0].cumsum(given[0]),
        "cumprod" => t[0].cumprod(given[0]),
        "gather" => t[0].gather(given[0], &t[1]),
        "scatter" => t[0].scatter(given[0], &t[1], &t[2]),
        "scatter_add" => t[0].scatter_add(given[0], &t[1], &t[2]),
        "index_select" => t[0].index_select(given[0], &t[1]),
        "index_add" => t[0].index_add(given[0], &t[1], &t[2]),
        _ => panic!("no call of {name}"),
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
        "cross_entropy" | "nll_loss" => (loss(name, how, t)?, 4.0 * of_type),
        _ => (moved(name, &axes, t)?, of_type),
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
