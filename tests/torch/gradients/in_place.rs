//! Operations that write through their first operand, which depends on a parameter.

use lapidary::{Result, Tensor};

use super::indices;
use super::program::Call;

/// A handle of what an operation has written to.
fn written(t: &[Tensor], done: Result<()>) -> Result<Tensor> {
    done.map(|()| t[0].clone())
}

macro_rules! of_one {
    ($($name:ident)*) => {
        &[$((stringify!($name), |t, _| written(t, t[0].$name())),)*]
    };
}

macro_rules! of_two {
    ($($name:ident)*) => {
        &[$((stringify!($name), |t, _| written(t, t[0].$name(&t[1]))),)*]
    };
}

macro_rules! with_number {
    ($($name:ident)*) => {
        &[$((stringify!($name), |t, given| written(t, t[0].$name(given.float(0)))),)*]
    };
}

pub(super) const OF_ONE: &[(&str, Call)] = of_one! {
    neg_ abs_ square_ relu_ floor_ ceil_ round_ trunc_ exp_ log_ sqrt_ rsqrt_ recip_ sin_ cos_
    tanh_ sigmoid_ silu_ gelu_
};

pub(super) const OF_TWO: &[(&str, Call)] = of_two! {
    add_ sub_ mul_ div_ maximum_ minimum_ rem_ remainder_ floor_divide_ pow_ atan2_ hypot_
    copysign_ xlogy_ copy_
};

pub(super) const WITH_NUMBER: &[(&str, Call)] = with_number! {
    add_scalar_ sub_scalar_ mul_scalar_ div_scalar_ maximum_scalar_ minimum_scalar_ rem_scalar_
    remainder_scalar_ floor_divide_scalar_ pow_scalar_ atan2_scalar_ hypot_scalar_ copysign_scalar_
    xlogy_scalar_ fill_
};

pub(super) const OTHERS: &[(&str, Call)] = &[
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
    ("lerp_", |t, _| written(t, t[0].lerp_(&t[1], &t[2]))),
    ("lerp_scalar_", |t, given| {
        written(t, t[0].lerp_scalar_(&t[1], given.float(0)))
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
