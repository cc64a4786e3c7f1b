//! Extremes and other values along axes, with their indices.

use crate::torch::cases::{self, Call, both, one};

const CALLS: &[(&str, Call)] = &[
    ("max_with_indices", |_, t| both(t[0].max_with_indices(1))),
    ("min_with_indices", |_, t| both(t[0].min_with_indices(0))),
    ("argmax_keepdim", |_, t| one(t[0].argmax_keepdim(1))),
    ("argmin_keepdim", |_, t| one(t[0].argmin_keepdim(0))),
    ("argmax_all", |_, t| one(t[0].argmax_all())),
    ("argmin_all", |_, t| one(t[0].argmin_all())),
    ("max_with_indices_keepdim", |_, t| {
        both(t[0].max_with_indices_keepdim(1))
    }),
    ("min_with_indices_keepdim", |_, t| {
        both(t[0].min_with_indices_keepdim(0))
    }),
    ("max_with_indices_all", |_, t| {
        both(t[0].max_with_indices_all())
    }),
    ("min_with_indices_all", |_, t| {
        both(t[0].min_with_indices_all())
    }),
    ("var, a fraction", |_, t| one(t[0].var(&[1], 0.5))),
    ("var, less than none", |_, t| one(t[0].var(&[0, 1], -2))),
    ("std, two", |_, t| one(t[0].std_keepdim(&[0], 2))),
    ("norm", |_, t| one(t[0].norm(&[1], 2))),
    ("logcumsumexp", |_, t| one(t[0].logcumsumexp(1))),
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
