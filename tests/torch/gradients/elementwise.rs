//! Operations on one element at a time.

use lapidary::DType;

use super::program::Call;

macro_rules! of_one {
    ($($name:ident)*) => {
        &[$((stringify!($name), |t, _| t[0].$name()),)*]
    };
}

macro_rules! of_two {
    ($($name:ident)*) => {
        &[$((stringify!($name), |t, _| t[0].$name(&t[1])),)*]
    };
}

macro_rules! with_number {
    ($($name:ident)*) => {
        &[$((stringify!($name), |t, given| t[0].$name(given.float(0))),)*]
    };
}

pub(super) const OF_ONE: &[(&str, Call)] = of_one! {
    neg abs sign square relu exp exp2 expm1 log log2 log10 log1p sqrt rsqrt recip sin cos tan asin
    acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv ndtr sinc logit deg2rad rad2deg floor
    ceil round trunc frac sigmoid silu gelu gelu_tanh softplus log_sigmoid softsign mish hardsigmoid
    hardswish tanhshrink selu relu6 copy
};

pub(super) const OF_TWO: &[(&str, Call)] = of_two! {
    add sub mul div rem remainder floor_divide atan2 hypot copysign maximum minimum fmax fmin
    logaddexp logaddexp2 xlogy xlog1py pow gelu_backward prelu
};

pub(super) const WITH_NUMBER: &[(&str, Call)] = with_number! {
    add_scalar sub_scalar mul_scalar div_scalar rem_scalar remainder_scalar floor_divide_scalar
    atan2_scalar hypot_scalar copysign_scalar maximum_scalar minimum_scalar fmax_scalar fmin_scalar
    logaddexp_scalar logaddexp2_scalar xlogy_scalar xlog1py_scalar pow_scalar hardshrink softshrink
    leaky_relu elu celu
};

pub(super) const OTHERS: &[(&str, Call)] = &[
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
    ("lerp", |t, _| t[0].lerp(&t[1], &t[2])),
    ("lerp_scalar", |t, given| {
        t[0].lerp_scalar(&t[1], given.float(0))
    }),
    ("addcmul", |t, given| {
        t[0].addcmul(&t[1], &t[2], given.float(0))
    }),
    ("addcdiv", |t, given| {
        t[0].addcdiv(&t[1], &t[2], given.float(0))
    }),
];
