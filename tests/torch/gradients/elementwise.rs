//! Operations on one element at a time.

use lapidary::DType;

use super::program::Call;
use crate::common::rows;

/// The operations that are rows, and their forms in place.
macro_rules! unary {
    ({ $($name:ident)* } { $($in_place:ident)* } { $($by_hand:tt)* }) => {
        &[
            $((stringify!($name), |t, _| t[0].$name()),)*
            $((stringify!($in_place), |t, _| t[0].$in_place().map(|()| t[0].clone())),)*
        ]
    };
}

const UNARY: &[(&str, Call)] = lapidary::unary_methods!(unary);

macro_rules! binary {
    ({ $($name:ident)* } { $($in_place:ident)* }) => {
        &[
            $((stringify!($name), |t, given| t[0].$name(given.last(t, 1))),)*
            $((stringify!($in_place), |t, given| {
                t[0].$in_place(given.last(t, 1)).map(|()| t[0].clone())
            }),)*
        ]
    };
}

const BINARY: &[(&str, Call)] = lapidary::binary_methods!(binary);

/// The rows whose results have gradients.
pub(super) fn rows() -> impl Iterator<Item = (&'static str, Call)> {
    let unary = UNARY
        .iter()
        .filter(|(name, _)| rows::unary(name).gives_floats());
    let binary = BINARY.iter().filter(|(name, _)| {
        let row = rows::binary(name);
        row.gives_floats() && row.has_gradient()
    });
    unary.chain(binary).copied()
}

pub(super) const OTHERS: &[(&str, Call)] = &[
    ("selu", |t, _| t[0].selu()),
    ("relu6", |t, _| t[0].relu6()),
    ("copy", |t, _| t[0].copy()),
    ("gelu_backward", |t, _| t[0].gelu_backward(&t[1])),
    ("prelu", |t, _| t[0].prelu(&t[1])),
    ("hardshrink", |t, given| t[0].hardshrink(given.float(0))),
    ("softshrink", |t, given| t[0].softshrink(given.float(0))),
    ("leaky_relu", |t, given| t[0].leaky_relu(given.float(0))),
    ("elu", |t, given| t[0].elu(given.float(0))),
    ("celu", |t, given| t[0].celu(given.float(0))),
    ("number less", |t, given| given.float(0) - &t[0]),
    ("number by", |t, given| given.float(0) / &t[0]),
    ("clamp", |t, given| {
        t[0].clamp(given.float(0), given.float(1))
    }),
    ("hardtanh", |t, given| {
        t[0].hardtanh(given.float(0), given.float(1))
    }),
    ("threshold", |t, given| {
        t[0].threshold(given.float(0), given.float(1))
    }),
    ("nan_to_num", |t, given| {
        t[0].nan_to_num(given.float(0), given.optional(1), given.optional(2))
    }),
    ("cast and back", |t, _| {
        t[0].cast(DType::F16)?.cast(DType::F32)
    }),
    ("where", |t, _| t[0].where_(&t[1], &t[2])),
    ("where, number first", |t, given| {
        t[0].where_(given.float(0), &t[1])
    }),
    ("where, number last", |t, given| {
        t[0].where_(&t[1], given.float(0))
    }),
    ("masked_fill", |t, given| {
        t[0].masked_fill(&t[1], given.float(0))
    }),
    ("lerp", |t, given| t[0].lerp(&t[1], given.last(t, 2))),
    ("addcmul", |t, given| {
        t[0].addcmul(&t[1], &t[2], given.float(0))
    }),
    ("addcdiv", |t, given| {
        t[0].addcdiv(&t[1], &t[2], given.float(0))
    }),
];
