//! Running extremes, and scattered reductions.

use lapidary::operations::ScatterReduce::{Max, Mean, Min, Prod, Sum};
use lapidary::{Result, Tensor, operations::ScatterReduce};

use crate::torch::cases::{self, Call, both, one};

fn named(t: &[Tensor], reduce: ScatterReduce, include_self: bool) -> Result<Vec<Tensor>> {
    one(t[0].scatter_reduce(1, &t[1], &t[2], reduce, include_self))
}

const CALLS: &[(&str, Call)] = &[
    ("cummax", |_, t| both(t[0].cummax(1))),
    ("cummin", |_, t| both(t[0].cummin(0))),
    ("cummax, equal ones", |_, t| both(t[0].cummax(1))),
    ("cummin, equal ones", |_, t| both(t[0].cummin(1))),
    ("cummax of a number", |_, t| both(t[0].cummax(0))),
    ("sum, with self", |_, t| named(t, Sum, true)),
    ("sum", |_, t| named(t, Sum, false)),
    ("prod, with self", |_, t| named(t, Prod, true)),
    ("prod", |_, t| named(t, Prod, false)),
    ("mean, with self", |_, t| named(t, Mean, true)),
    ("mean", |_, t| named(t, Mean, false)),
    ("amax, with self", |_, t| named(t, Max, true)),
    ("amax", |_, t| named(t, Max, false)),
    ("amin, with self", |_, t| named(t, Min, true)),
    ("amin", |_, t| named(t, Min, false)),
    ("sum, with self, of i32", |_, t| named(t, Sum, true)),
    ("sum, of i32", |_, t| named(t, Sum, false)),
    ("prod, with self, of i32", |_, t| named(t, Prod, true)),
    ("prod, of i32", |_, t| named(t, Prod, false)),
    ("mean, with self, of i32", |_, t| named(t, Mean, true)),
    ("mean, of i32", |_, t| named(t, Mean, false)),
    ("amax, with self, of i32", |_, t| named(t, Max, true)),
    ("amax, of i32", |_, t| named(t, Max, false)),
    ("amin, with self, of i32", |_, t| named(t, Min, true)),
    ("amin, of i32", |_, t| named(t, Min, false)),
    ("scatter_add of bools", |_, t| {
        one(t[0].scatter_add(1, &t[1], &t[2]))
    }),
];

#[test]
fn folds_give_what_pytorch_gives() {
    cases::check("folds", CALLS);
}
