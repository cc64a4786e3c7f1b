//! Extremes and other values along axes, with their indices.

use crate::torch::cases::{self, Call, both, one};

const CALLS: &[(&str, Call)] = &[
    ("max_with_indices", |_, t| both(t[0].max_with_indices(1))),
    ("min_with_indices", |_, t| both(t[0].min_with_indices(0))),
    ("sum of a number", |_, t| one(t[0].sum(&[-1]))),
    ("softmax of a number", |_, t| one(t[0].softmax(0))),
    ("sort of a number", |_, t| both(t[0].sort(0, false))),
    ("cumsum of a number", |_, t| one(t[0].cumsum(-1))),
    ("gather of a number", |_, t| one(t[0].gather(0, &t[1]))),
];

#[test]
fn values_along_axes_are_those_of_pytorch() {
    cases::check("reductions", CALLS);
}
