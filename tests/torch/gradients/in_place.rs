//! Operations that write through their first operand, which depends on a parameter.

use lapidary::{Result, Tensor};

use super::indices;
use super::program::Call;

/// A handle of what an operation has written to.
fn written(t: &[Tensor], done: Result<()>) -> Result<Tensor> {
    done.map(|()| t[0].clone())
}

pub(super) const OTHERS: &[(&str, Call)] = &[
    ("copy_", |t, _| written(t, t[0].copy_(&t[1]))),
    ("fill_", |t, given| written(t, t[0].fill_(given.float(0)))),
    ("masked_fill_", |t, given| {
        written(t, t[0].masked_fill_(&t[1], given.float(0)))
    }),
    ("clamp_", |t, given| {
        written(t, t[0].clamp_(given.float(0), given.float(1)))
    }),
    ("nan_to_num_", |t, given| {
        let [nan, above, below] = [0, 1, 2].map(|at| given.optional(at));
        written(t, t[0].nan_to_num_(nan.unwrap_or_default(), above, below))
    }),
    ("lerp_", |t, given| {
        written(t, t[0].lerp_(&t[1], given.last(t, 2)))
    }),
    ("addcmul_", |t, given| {
        written(t, t[0].addcmul_(&t[1], &t[2], given.float(0)))
    }),
    ("addcdiv_", |t, given| {
        written(t, t[0].addcdiv_(&t[1], &t[2], given.float(0)))
    }),
    ("scatter_", |t, given| {
        written(t, t[0].scatter_(given.axis(0), &t[1], &t[2]))
    }),
    ("scatter_add_", |t, given| {
        written(t, t[0].scatter_add_(given.axis(0), &t[1], &t[2]))
    }),
    ("scatter_reduce_", |t, given| {
        let (axis, reduce) = (given.axis(0), indices::reduce(given.text(1)));
        let done = t[0].scatter_reduce_(axis, &t[1], &t[2], reduce, given.is(2));
        written(t, done)
    }),
    ("index_add_", |t, given| {
        written(t, t[0].index_add_(given.axis(0), &t[1], &t[2]))
    }),
    ("index_put_", |t, given| {
        let (named, values) = indices::named_and_values(t, given);
        written(t, t[0].index_put_(&named, values, given.is(1)))
    }),
];
