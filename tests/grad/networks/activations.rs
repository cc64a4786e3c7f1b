//! Activations of several operands, and those that are composed of other operations.

use lapidary::{Result, Tensor};

use super::{check_shapes, check_twice};
use crate::grad::check::{check, gpu, parameter};

#[test]
fn activations_of_several_operands_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let shapes: &[[&[usize]; 2]] = &[[&[2, 3], &[3]], [&[2, 3], &[1]], [&[1, 2, 3], &[2]]];
    for shapes in shapes {
        check_shapes(&gpu, "prelu", shapes, |x| x[0].prelu(&x[1]));
        check_twice(&gpu, "prelu", shapes, |x| x[0].prelu(&x[1]));
    }
    let fixed = gpu.tensor(&[0.3_f32], &[1]).unwrap();
    check_shapes(&gpu, "prelu by a fixed weight", &[&[5]], |x| {
        x[0].prelu(&fixed)
    });
    for axis in [0, -1] {
        check_shapes(&gpu, "glu", &[&[2, 4]], |x| x[0].glu(axis));
        check_twice(&gpu, "glu", &[&[2, 4]], |x| x[0].glu(axis));
    }
}

type Activation = fn(&Tensor) -> Result<Tensor>;

const COMPOSED: &[(&str, Activation)] = &[
    ("nan_to_num", |x| x.nan_to_num(0.5, None, None)),
    ("hardtanh", |x| x.hardtanh(-0.6, 0.6)),
    ("relu6", Tensor::relu6),
    ("threshold", |x| x.threshold(0.05, -1.0)),
    ("hardshrink", |x| x.hardshrink(0.4)),
    ("softshrink", |x| x.softshrink(0.4)),
    ("nan_to_num_", |x| {
        let y = x.square()?;
        y.nan_to_num_(0.5, None, None)?;
        y.exp()
    }),
];

#[test]
fn composed_activations_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let x = [-0.9, -0.5, -0.2, 0.1, 0.3, 0.8];
    for (what, f) in COMPOSED {
        check(&gpu, what, &[(&x, &[2, 3])], |x| f(&x[0]));
    }
}

#[test]
fn replaced_elements_have_no_gradient() {
    let gpu = gpu();
    let elements = [1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    let x = parameter(&gpu, &elements, &[4]);
    let y = x.nan_to_num(2.0, None, Some(0.0)).unwrap();
    let gradient = y.sum_all().unwrap().backward().unwrap().get(&x).unwrap();
    assert_eq!(gradient.to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0, 0.0]);
}
