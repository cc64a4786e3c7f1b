//! Views, newly created tensors, and numbers as operands.

use crate::torch::cases::{self, Call, one};
use lapidary::{DType, Tensor};

const CALLS: &[(&str, Call)] = &[
    ("movedim", |_, t| one(t[0].movedim(-1, 0))),
    ("diagonal", |_, t| one(t[0].diagonal(1, 1, 2))),
    ("unfold", |_, t| one(t[0].unfold(-1, 3, 1))),
    ("unflatten", |_, t| one(t[0].unflatten(-1, &[2, 2]))),
    ("unbind", |_, t| t[0].unbind(1)),
    ("reshape_infer", |_, t| one(t[0].reshape_infer(&[-1, 6]))),
    ("flatten_axes", |_, t| one(t[0].flatten_axes(1, -1))),
    ("narrow", |_, t| one(t[0].narrow(2, -3, 2))),
    ("linspace", |gpu, _| {
        one(gpu.linspace(-1.0, 2.0, 7, DType::F32))
    }),
    ("number on the left", |_, t| one(1.0 - &t[0])),
    ("number over", |_, t| one(2.0 / &t[0])),
    ("where, number first", |_, t| one(t[0].where_(3.0, &t[1]))),
    ("where, number last", |_, t| one(t[0].where_(&t[1], -0.5))),
    ("where, numbers", |_, t| one(t[0].where_(1.0, 0.0))),
    ("exp of integers", |_, t| one(t[0].exp())),
    ("log1p of integers", |_, t| one(t[0].log1p())),
    ("sigmoid of bools", |_, t| one(t[0].sigmoid())),
    ("atan2 of integers", |_, t| one(t[0].atan2(&t[1]))),
    ("ones_like", |_, t| one(t[0].ones_like())),
    ("full_like", |_, t| one(t[0].full_like(-3))),
    ("hstack", |_, t| one(Tensor::hstack(&[&t[0], &t[1]]))),
    ("hstack of vectors", |_, t| {
        one(Tensor::hstack(&[&t[0], &t[1]]))
    }),
    ("vstack", |_, t| one(Tensor::vstack(&[&t[0], &t[1]]))),
    ("tensor_split", |_, t| t[0].tensor_split(3, 1)),
    ("tensor_split_at", |_, t| {
        t[0].tensor_split_at(&[1, -2, 7], 1)
    }),
    ("diag", |_, t| one(t[0].diag(-1))),
    ("diag of a matrix", |_, t| one(t[0].diag(1))),
    ("outer", |_, t| one(t[0].outer(&t[1]))),
    ("eye_with", |gpu, _| one(gpu.eye_with(2, 3, DType::F32))),
    ("repeat_interleave_by", |_, t| {
        one(t[0].repeat_interleave_by(&t[1], 1))
    }),
    ("one_hot, no count", |_, t| {
        one(t[0].one_hot(None, DType::F32))
    }),
];

#[test]
fn shapes_and_numbers_are_those_of_pytorch() {
    cases::check("shapes", CALLS);
}
