//! Values along axes, with where they are.

use crate::cases::{self, Call, both};

const CALLS: &[(&str, Call)] = &[
    ("max_with_indices", |_, t| both(t[0].max_with_indices(1))),
    ("min_with_indices", |_, t| both(t[0].min_with_indices(0))),
];

#[test]
fn values_along_axes_are_those_of_pytorch() {
    cases::check("reductions", CALLS);
}
