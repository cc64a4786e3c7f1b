//! Reductions.

use lapidary::{Result, Tensor};

use super::check::{check, gpu, spread};

type Reduction = fn(&Tensor) -> Result<Tensor>;

const REDUCTIONS: &[(&str, Reduction)] = &[
    ("sum", |x| x.sum(&[1])),
    ("sum_keepdim", |x| x.sum_keepdim(&[0])),
    ("sum_all", Tensor::sum_all),
    ("mean", |x| x.mean(&[0])),
    ("prod", |x| x.prod(&[0, 1])),
    ("max", |x| x.max(&[1])),
    ("min", |x| x.min(&[0])),
    ("norm 1", |x| x.norm(&[1], 1.0)),
    ("norm 2", |x| x.norm(&[1], 2.0)),
    ("norm 3", |x| x.norm(&[0], 3.0)),
    ("norm infinity", |x| x.norm(&[1], f32::INFINITY)),
];

#[test]
fn reductions_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let x = spread(6, -1.5, 1.5);
    for &(name, f) in REDUCTIONS {
        check(&gpu, name, &[(&x, &[2, 3])], |x| f(&x[0]));
    }
}
