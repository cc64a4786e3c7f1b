//! Operations on one element at a time.

use std::sync::LazyLock;

use lapidary::DType;

use super::*;
use crate::common::rows;

/// The calls of the operations on one tensor that are rows.
macro_rules! unary {
    ({ $($name:ident)* } { $($in_place:ident)* } { $($by_hand:tt)* }) => {
        &[
            $((stringify!($name), |t| one(t[0].$name())),)*
            $((stringify!($in_place), |t| written(t, t[0].$in_place())),)*
        ]
    };
}

const UNARY: &[(&str, Call)] = lapidary::unary_methods!(unary);

/// The calls of the operations on two tensors that are rows: with tensors, and with numbers.
macro_rules! binary {
    ({ $($name:ident)* } { $($in_place:ident)* }) => {
        [
            &[
                $((stringify!($name), |t| one(t[0].$name(&t[1]))),)*
                $((stringify!($in_place), |t| written(t, t[0].$in_place(&t[1]))),)*
            ],
            &[
                $((concat!(stringify!($name), ", a number"), |t| one(t[0].$name(2))),)*
                $((concat!(stringify!($in_place), ", a number"), |t| {
                    written(t, t[0].$in_place(2))
                }),)*
            ],
        ]
    };
}

const BINARY: [&[(&str, Call)]; 2] = lapidary::binary_methods!(binary);

/// The operations that are rows, except those that stand for their family.
pub(super) fn rows() -> &'static [Operation] {
    const NUMBER: &[Operand] = &[x(MATRIX)];
    const SHARE: &[Operand] = &[share(MATRIX)];
    const PAIR: &[Operand] = &[x(MATRIX), x(MATRIX)];
    static ROWS: LazyLock<Vec<Operation>> = LazyLock::new(|| {
        let unary = UNARY.iter().map(|&(name, call)| {
            let row = rows::unary(name);
            // Without a domain it takes all numbers, and so with one beyond 1.
            let is_share = row.domain[1] > 0.0 && row.domain[1] < 1.0;
            let operands = if is_share { SHARE } else { NUMBER };
            op(name, types(|dtype| row.accepts(dtype)), operands, call)
        });
        let pairs = BINARY[0].iter().map(|&(name, call)| {
            let row = rows::binary(name);
            op(name, types(|dtype| row.accepts(dtype)), PAIR, call)
        });
        let with_number = BINARY[1].iter().map(|&(name, call)| {
            let row = rows::binary(name);
            // 2 is no bool.
            let accepts = |dtype| dtype != DType::Bool && row.accepts(dtype);
            op(name, types(accepts), NUMBER, call)
        });
        let is_other = |one: &Operation| FAMILIES.iter().all(|other| other.name != one.name);
        let all = unary.chain(pairs).chain(with_number);
        all.filter(is_other).collect()
    });
    &ROWS
}

/// The types to test of those that an operation takes.
fn types(accepts: impl Fn(DType) -> bool) -> &'static [DType] {
    match [DType::F32, DType::I32, DType::Bool].map(accepts) {
        [true, false, _] => FLOATS,
        [true, true, false] => NUMBERS,
        [true, true, true] => EVERY,
        [false, ..] => WHOLE,
    }
}

pub(super) const ALL: &[&[Operation]] = &[FAMILIES, OTHERS];

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
    family("add, a number", NUMBERS, &[x(MATRIX)], |t| one(t[0].add(2))),
    family("number first", NUMBERS, &[x(MATRIX)], |t| one(7 - &t[0])),
    family("add_", NUMBERS, &[x(MATRIX), x(MATRIX)], |t| {
        written(t, t[0].add_(&t[1]))
    }),
    family("mul_, one", NUMBERS, &[x(MATRIX), x(ONE)], |t| {
        written(t, t[0].mul_(&t[1]))
    }),
    family("add_, a number", NUMBERS, &[x(MATRIX)], |t| {
        written(t, t[0].add_(2))
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
    op("gelu_backward", FLOATS, &[x(MATRIX), x(MATRIX)], |t| {
        one(t[0].gelu_backward(&t[1]))
    }),
    op("fill_", NUMBERS, &[x(MATRIX)], |t| {
        written(t, t[0].fill_(2))
    }),
    op("bitwise_not", WHOLE, &[x(MATRIX)], |t| {
        one(t[0].bitwise_not())
    }),
    op("selu", FLOATS, &[x(MATRIX)], |t| one(t[0].selu())),
    op("relu6", FLOATS, &[x(MATRIX)], |t| one(t[0].relu6())),
    op("is_pos_inf", FLOATS, &[x(MATRIX)], |t| {
        one(t[0].is_pos_inf())
    }),
    op("is_neg_inf", FLOATS, &[x(MATRIX)], |t| {
        one(t[0].is_neg_inf())
    }),
    op(
        "lerp",
        FLOATS,
        &[x(MATRIX), x(MATRIX), share(MATRIX)],
        |t| one(t[0].lerp(&t[1], &t[2])),
    ),
    op("lerp_", FLOATS, &[x(MATRIX), x(ROW), share(ONE)], |t| {
        written(t, t[0].lerp_(&t[1], &t[2]))
    }),
    op("lerp, a number", FLOATS, &[x(MATRIX), x(MATRIX)], |t| {
        one(t[0].lerp(&t[1], 0.5))
    }),
    op("lerp_, a number", FLOATS, &[x(MATRIX), x(ONE)], |t| {
        written(t, t[0].lerp_(&t[1], 0.5))
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
