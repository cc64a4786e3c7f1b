//! Operations on single elements.

use lapidary::{Result, Tensor};

use super::check::{check, gpu, spread};
use crate::common::rows;

type Unary = fn(&Tensor) -> Result<Tensor>;

/// The operations that are rows.
macro_rules! unary {
    ({ $($name:ident)* } { $($in_place:ident)* } { $($by_hand:ident($($given:expr),*);)* }) => {
        &[
            $((stringify!($name), Tensor::$name),)*
            $((stringify!($by_hand), |x| x.$by_hand($($given),*)),)*
        ]
    };
}

const UNARY_ROWS: &[(&str, Unary)] = lapidary::unary_methods!(unary);

/// Other operations, with numbers at which they are smooth.
const UNARY: &[(&str, f32, f32, Unary)] = &[
    ("elu above 0", 0.1, 2.0, |x| x.elu(1.5)),
    ("selu", -2.0, -0.1, Tensor::selu),
    ("cube", 0.3, 2.0, |x| x.pow(3.0)),
    ("number less", -2.0, 2.0, |x| 1.0 - x),
    ("number by", 0.5, 2.0, |x| 3.0 / x),
    ("half", -2.0, 2.0, |x| x / 2.0),
    ("scaled", -2.0, 2.0, |x| (x * 3.0)? + 1.0),
    ("maximum of a number", 0.6, 2.0, |x| x.maximum(0.5)),
];

#[test]
fn unary_operations_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let rows = UNARY_ROWS.iter().filter_map(|&(name, f)| {
        let row = rows::unary(name);
        let [low, high] = row.domain;
        row.gives_floats().then_some((name, low, high, f))
    });
    for (name, low, high, f) in rows.chain(UNARY.iter().copied()) {
        check(&gpu, name, &[(&spread(5, low, high), &[5])], |x| f(&x[0]));
    }
}

type Binary = fn(&Tensor, &Tensor) -> Result<Tensor>;

macro_rules! binary {
    ({ $($name:ident)* } { $($in_place:ident)* }) => {
        &[$((stringify!($name), |x, y| x.$name(y)),)*]
    };
}

const BINARY_ROWS: &[(&str, Binary)] = lapidary::binary_methods!(binary);

#[test]
fn binary_operations_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    for &(name, f) in BINARY_ROWS {
        let row = rows::binary(name);
        if !row.gives_floats() || !row.has_gradient() {
            continue;
        }
        let [a, b] = row.domain;
        let [a, b] = [spread(4, a[0], a[1]), spread(2, b[0], b[1])];
        // The second operand is broadcast.
        check(&gpu, name, &[(&a, &[2, 2]), (&b, &[2, 1])], |x| {
            f(&x[0], &x[1])
        });
    }
}
