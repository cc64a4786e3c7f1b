//! Operations with index tensors and masks.

use crate::torch::cases::{self, Call, one};

const CALLS: &[(&str, Call)] = &[
    ("index, together", |_, t| {
        one(t[0].index(&[Some(&t[1]), Some(&t[2])]))
    }),
    ("index, inner axes", |_, t| {
        one(t[0].index(&[None, Some(&t[1]), Some(&t[2])]))
    }),
    ("index, apart", |_, t| {
        one(t[0].index(&[Some(&t[1]), None, Some(&t[2])]))
    }),
    ("index_put", |_, t| {
        one(t[0].index_put(&[Some(&t[1]), Some(&t[2])], &t[3], false))
    }),
    ("index_put, accumulated", |_, t| {
        one(t[0].index_put(&[Some(&t[1]), Some(&t[2])], &t[3], true))
    }),
    ("masked_select", |_, t| one(t[0].masked_select(&t[1]))),
    ("nonzero", |_, t| one(t[0].nonzero())),
    (
        "index, mask of rows",
        |_, t| one(t[0].index(&[Some(&t[1])])),
    ),
    ("index, mask of two axes", |_, t| {
        one(t[0].index(&[None, Some(&t[1])]))
    }),
    ("index_put, mask", |_, t| {
        one(t[0].index_put(&[Some(&t[1])], &t[2], false))
    }),
    ("masked_scatter", |_, t| {
        one(t[0].masked_scatter(&t[1], &t[2]))
    }),
    (
        "search_sorted",
        |_, t| one(t[0].search_sorted(&t[1], false)),
    ),
    ("search_sorted, right", |_, t| {
        one(t[0].search_sorted(&t[1], true))
    }),
];

#[test]
fn what_indices_name_is_what_pytorch_names() {
    cases::check("indexing", CALLS);
}
