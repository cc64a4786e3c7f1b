//! Losses.

use crate::cases::{self, Call, one};
use lapidary::Reduction;

const CALLS: &[(&str, Call)] = &[
    ("binary_cross_entropy", |_, t| {
        one(t[0].binary_cross_entropy(&t[1], Reduction::Mean))
    }),
    ("cross_entropy, ignored", |_, t| {
        one(t[0].cross_entropy(&t[1], Some(-100), Reduction::Mean))
    }),
];

#[test]
fn losses_are_those_of_pytorch() {
    cases::check("losses", CALLS);
}
