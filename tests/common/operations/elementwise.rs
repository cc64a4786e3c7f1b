//! Operations on one element at a time.

use lapidary::DType;

use super::*;

/// Operations on one tensor, by their types.
macro_rules! of_one {
    ($($dtypes:ident: $($name:ident)*;)*) => {
        &[$($(op(stringify!($name), $dtypes, &[x(MATRIX)], |t| one(t[0].$name())),)*)*]
    };
}

/// Operations on one tensor that write through it.
macro_rules! in_place_of_one {
    ($($dtypes:ident: $($name:ident)*;)*) => {
        &[$($(op(stringify!($name), $dtypes, &[x(MATRIX)], |t| written(t, t[0].$name())),)*)*]
    };
}

/// Operations on two tensors.
macro_rules! of_two {
    ($($dtypes:ident: $($name:ident)*;)*) => {
        &[$($(op(stringify!($name), $dtypes, &[x(MATRIX), x(MATRIX)],
            |t| one(t[0].$name(&t[1]))),)*)*]
    };
}

/// Operations on two tensors that write through the first one.
macro_rules! in_place_of_two {
    ($($dtypes:ident: $($name:ident)*;)*) => {
        &[$($(op(stringify!($name), $dtypes, &[x(MATRIX), x(MATRIX)],
            |t| written(t, t[0].$name(&t[1]))),)*)*]
    };
}

/// Operations on a tensor and a number.
macro_rules! with_number {
    ($($dtypes:ident: $($name:ident)*;)*) => {
        &[$($(op(stringify!($name), $dtypes, &[x(MATRIX)], |t| one(t[0].$name(2))),)*)*]
    };
}

/// Operations on a tensor and a number that write through the tensor.
macro_rules! in_place_with_number {
    ($($dtypes:ident: $($name:ident)*;)*) => {
        &[$($(op(stringify!($name), $dtypes, &[x(MATRIX)], |t| written(t, t[0].$name(2))),)*)*]
    };
}

pub(super) const ALL: &[&[Operation]] = &[
    FAMILIES,
    OTHERS,
    of_one! {
        NUMBERS: abs sign square relu signbit floor ceil round trunc;
        FLOATS: exp exp2 expm1 log log2 log10 log1p sqrt rsqrt recip sin cos tan atan sinh cosh
            tanh asinh acosh erf erfc ndtr sinc sigmoid silu gelu gelu_tanh softplus log_sigmoid
            softsign mish hardsigmoid hardswish tanhshrink deg2rad rad2deg
            frac selu is_pos_inf is_neg_inf relu6;
        EVERY: logical_not is_nan is_inf is_finite;
        WHOLE: bitwise_not;
    },
    in_place_of_one! {
        NUMBERS: abs_ square_ relu_ floor_ ceil_ round_ trunc_;
        FLOATS: exp_ log_ sqrt_ rsqrt_ recip_ sin_ cos_ tanh_ sigmoid_ silu_ gelu_;
    },
    of_two! {
        NUMBERS: sub mul div rem remainder floor_divide maximum minimum pow heaviside;
        FLOATS: atan2 hypot copysign fmax fmin logaddexp logaddexp2 xlogy xlog1py gelu_backward;
        WHOLE: gcd lcm bitwise_and bitwise_or bitwise_xor left_shift right_shift;
        EVERY: eq ne le gt ge logical_and logical_or logical_xor;
    },
    in_place_of_two! {
        NUMBERS: sub_ mul_ div_ maximum_ minimum_ rem_ remainder_ floor_divide_ pow_ heaviside_;
        FLOATS: atan2_ hypot_ copysign_ xlogy_;
        WHOLE: gcd_ lcm_ bitwise_and_ bitwise_or_ bitwise_xor_ left_shift_ right_shift_;
    },
    with_number! {
        NUMBERS: sub_scalar mul_scalar div_scalar rem_scalar remainder_scalar
            floor_divide_scalar maximum_scalar minimum_scalar pow_scalar heaviside_scalar
            eq_scalar ne_scalar lt_scalar le_scalar gt_scalar ge_scalar;
        FLOATS: atan2_scalar hypot_scalar copysign_scalar fmax_scalar fmin_scalar
            logaddexp_scalar logaddexp2_scalar xlogy_scalar xlog1py_scalar;
        WHOLE: gcd_scalar lcm_scalar bitwise_and_scalar bitwise_or_scalar bitwise_xor_scalar
            left_shift_scalar right_shift_scalar;
    },
    in_place_with_number! {
        NUMBERS: sub_scalar_ mul_scalar_ div_scalar_ rem_scalar_ remainder_scalar_
            floor_divide_scalar_ maximum_scalar_ minimum_scalar_ pow_scalar_ heaviside_scalar_
            fill_;
        FLOATS: atan2_scalar_ hypot_scalar_ copysign_scalar_ xlogy_scalar_;
        WHOLE: gcd_scalar_ lcm_scalar_ bitwise_and_scalar_ bitwise_or_scalar_
            bitwise_xor_scalar_ left_shift_scalar_ right_shift_scalar_;
    },
];

/// One operation for each way to address operands.
const FAMILIES: &[Operation] = &[
    family("neg", NUMBERS, &[x(MATRIX)], |t| one(t[0].neg())),
    family("neg_", NUMBERS, &[x(MATRIX)], |t| written(t, t[0].neg_())),
    family("add", NUMBERS, &[x(MATRIX), x(MATRIX)], |t| {
        one(t[0].add(&t[1]))
    }),
    family("add, a row", NUMBERS, &[x(MATRIX), x(ROW)], |t| {
        one(t[0].add(&t[1]))
    }),
    family("add, a column", NUMBERS, &[x(COLUMN), x(MATRIX)], |t| {
        one(t[0].add(&t[1]))
    }),
    family("mul, one", NUMBERS, &[x(MATRIX), x(ONE)], |t| {
        one(t[0].mul(&t[1]))
    }),
    family("sub, one first", NUMBERS, &[x(ONE), x(MATRIX)], |t| {
        one(t[0].sub(&t[1]))
    }),
    family("add_scalar", NUMBERS, &[x(MATRIX)], |t| {
        one(t[0].add_scalar(2))
    }),
    family("number first", NUMBERS, &[x(MATRIX)], |t| one(7 - &t[0])),
    family("add_", NUMBERS, &[x(MATRIX), x(MATRIX)], |t| {
        written(t, t[0].add_(&t[1]))
    }),
    family("mul_, one", NUMBERS, &[x(MATRIX), x(ONE)], |t| {
        written(t, t[0].mul_(&t[1]))
    }),
    family("add_scalar_", NUMBERS, &[x(MATRIX)], |t| {
        written(t, t[0].add_scalar_(2))
    }),
    family(
        "lt",
        EVERY,
        &[x(MATRIX), x(MATRIX)],
        |t| one(t[0].lt(&t[1])),
    ),
    family("lt, one", EVERY, &[x(MATRIX), x(ONE)], |t| {
        one(t[0].lt(&t[1]))
    }),
    family(
        "where_",
        EVERY,
        &[mask(MATRIX), x(MATRIX), x(MATRIX)],
        |t| one(t[0].where_(&t[1], &t[2])),
    ),
    op(
        "where_, number first",
        NUMBERS,
        &[mask(COLUMN), x(MATRIX)],
        |t| one(t[0].where_(3, &t[1])),
    ),
    op(
        "where_, number last",
        NUMBERS,
        &[mask(MATRIX), x(ROW)],
        |t| one(t[0].where_(&t[1], 3)),
    ),
    op("exp, of integers", WHOLE, &[x(MATRIX)], |t| one(t[0].exp())),
    family("where_, one", EVERY, &[mask(MATRIX), x(ONE), x(ROW)], |t| {
        one(t[0].where_(&t[1], &t[2]))
    }),
    family(
        "where_, mask of one",
        EVERY,
        &[mask(ONE), x(MATRIX), x(COLUMN)],
        |t| one(t[0].where_(&t[1], &t[2])),
    ),
    family("masked_fill", NUMBERS, &[x(MATRIX), mask(ROW)], |t| {
        one(t[0].masked_fill(&t[1], 3))
    }),
    family("masked_fill_", NUMBERS, &[x(MATRIX), mask(ONE)], |t| {
        written(t, t[0].masked_fill_(&t[1], 3))
    }),
    family(
        "addcmul",
        NUMBERS,
        &[x(MATRIX), x(MATRIX), x(MATRIX)],
        |t| one(t[0].addcmul(&t[1], &t[2], 2)),
    ),
    family("addcmul, one", NUMBERS, &[x(MATRIX), x(ONE), x(ROW)], |t| {
        one(t[0].addcmul(&t[1], &t[2], 2))
    }),
    family(
        "addcmul_",
        NUMBERS,
        &[x(MATRIX), x(MATRIX), x(COLUMN)],
        |t| written(t, t[0].addcmul_(&t[1], &t[2], 2)),
    ),
    family("addcdiv_, one", FLOATS, &[x(MATRIX), x(ONE), x(ONE)], |t| {
        written(t, t[0].addcdiv_(&t[1], &t[2], 2))
    }),
    family("copy", EVERY, &[x(MATRIX)], |t| one(t[0].copy())),
    family("copy_", EVERY, &[x(MATRIX), x(MATRIX)], |t| {
        written(t, t[0].copy_(&t[1]))
    }),
    family("copy_, one", EVERY, &[x(MATRIX), x(ONE)], |t| {
        written(t, t[0].copy_(&t[1]))
    }),
    family("cast", EVERY, &[x(MATRIX)], |t| one(t[0].cast(DType::F16))),
];

const OTHERS: &[Operation] = &[
    op(
        "lerp",
        FLOATS,
        &[x(MATRIX), x(MATRIX), share(MATRIX)],
        |t| one(t[0].lerp(&t[1], &t[2])),
    ),
    op("lerp_", FLOATS, &[x(MATRIX), x(ROW), share(ONE)], |t| {
        written(t, t[0].lerp_(&t[1], &t[2]))
    }),
    op("lerp_scalar", FLOATS, &[x(MATRIX), x(MATRIX)], |t| {
        one(t[0].lerp_scalar(&t[1], 0.5))
    }),
    op("lerp_scalar_", FLOATS, &[x(MATRIX), x(ONE)], |t| {
        written(t, t[0].lerp_scalar_(&t[1], 0.5))
    }),
    op("addcdiv", FLOATS, &[x(MATRIX), x(MATRIX), x(MATRIX)], |t| {
        one(t[0].addcdiv(&t[1], &t[2], 2))
    }),
    op("is_close", FLOATS, &[x(MATRIX), x(MATRIX)], |t| {
        one(t[0].is_close(&t[1], 0.25, 0.5, true))
    }),
    op("prelu", FLOATS, &[x(MATRIX), x(ROW)], |t| {
        one(t[0].neg()?.prelu(&t[1]))
    }),
    op("prelu, one", FLOATS, &[x(MATRIX), x(|_, _| vec![1])], |t| {
        one(t[0].neg()?.prelu(&t[1]))
    }),
    op("asin", FLOATS, &[share(MATRIX)], |t| one(t[0].asin())),
    op("acos", FLOATS, &[share(MATRIX)], |t| one(t[0].acos())),
    op("atanh", FLOATS, &[share(MATRIX)], |t| one(t[0].atanh())),
    op("erfinv", FLOATS, &[share(MATRIX)], |t| one(t[0].erfinv())),
    op("logit", FLOATS, &[share(MATRIX)], |t| one(t[0].logit())),
    op("clamp", NUMBERS, &[x(MATRIX)], |t| one(t[0].clamp(2, 5))),
    op("clamp_", NUMBERS, &[x(MATRIX)], |t| {
        written(t, t[0].clamp_(2, 5))
    }),
    op("leaky_relu", FLOATS, &[x(MATRIX)], |t| {
        one(t[0].neg()?.leaky_relu(0.5))
    }),
    op("elu", FLOATS, &[x(MATRIX)], |t| one(t[0].elu(0.5))),
    op("celu", FLOATS, &[x(MATRIX)], |t| one(t[0].celu(0.5))),
    op("nan_to_num", FLOATS, &[x(MATRIX)], |t| {
        one(t[0].nan_to_num(0.0, None, None))
    }),
    op("nan_to_num_", FLOATS, &[x(MATRIX)], |t| {
        written(t, t[0].nan_to_num_(0.0, None, None))
    }),
    op("hardtanh", NUMBERS, &[x(MATRIX)], |t| {
        one(t[0].hardtanh(2, 5))
    }),
    op("threshold", NUMBERS, &[x(MATRIX)], |t| {
        one(t[0].threshold(3, 1))
    }),
    op("hardshrink", FLOATS, &[x(MATRIX)], |t| {
        one(t[0].hardshrink(3.0))
    }),
    op("softshrink", FLOATS, &[x(MATRIX)], |t| {
        one(t[0].softshrink(3.0))
    }),
    op(
        "contiguous",
        EVERY,
        &[x(MATRIX)],
        |t| one(t[0].contiguous()),
    ),
    op("reshape", EVERY, &[x(MATRIX)], |t| {
        one(t[0].reshape(&[t[0].len()]))
    }),
    op("flatten", EVERY, &[x(MATRIX)], |t| one(t[0].flatten())),
    op("dropout", FLOATS, &[x(MATRIX)], |t| {
        one(t[0].dropout(0.5, 3))
    }),
    op("tril", NUMBERS, &[x(MATRIX)], |t| one(t[0].tril(0))),
    op("triu", NUMBERS, &[x(MATRIX)], |t| one(t[0].triu(1))),
];
