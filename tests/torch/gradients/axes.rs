//! Operations along axes.

use lapidary::Tensor;

use super::program::{Call, Given};

/// Each in three forms. The axes are the last option.
macro_rules! folds {
    ($($name:ident $keepdim:ident $all:ident)*) => {
        &[$(
            (stringify!($name), |t, given| t[0].$name(&given.axes(0))),
            (stringify!($keepdim), |t, given| t[0].$keepdim(&given.axes(0))),
            (stringify!($all), |t, _| t[0].$all()),
        )*]
    };
}

/// The same with an option, which the file has before the axes.
macro_rules! moments {
    ($($of:ident: $($name:ident $keepdim:ident $all:ident)*;)*) => {
        &[$($(
            (stringify!($name), |t, given| t[0].$name(&given.axes(1), $of(given))),
            (stringify!($keepdim), |t, given| t[0].$keepdim(&given.axes(1), $of(given))),
            (stringify!($all), |t, given| t[0].$all($of(given))),
        )*)*]
    };
}

pub(super) const FOLDS: &[(&str, Call)] = folds! {
    sum sum_keepdim sum_all
    mean mean_keepdim mean_all
    prod prod_keepdim prod_all
    max max_keepdim max_all
    min min_keepdim min_all
    logsumexp logsumexp_keepdim logsumexp_all
};

pub(super) const MOMENTS: &[(&str, Call)] = moments! {
    correction: var var_keepdim var_all std std_keepdim std_all;
    power: norm norm_keepdim norm_all;
};

fn correction(given: &Given) -> u32 {
    given.size(0) as u32
}

fn power(given: &Given) -> f32 {
    given.float(0)
}

pub(super) const OTHERS: &[(&str, Call)] = &[
    ("max_with_indices", |t, given| {
        Ok(t[0].max_with_indices(given.axis(0))?.0)
    }),
    ("min_with_indices", |t, given| {
        Ok(t[0].min_with_indices(given.axis(0))?.0)
    }),
    ("cumsum", |t, given| t[0].cumsum(given.axis(0))),
    ("cumprod", |t, given| t[0].cumprod(given.axis(0))),
    ("cummax", |t, given| Ok(t[0].cummax(given.axis(0))?.0)),
    ("cummin", |t, given| Ok(t[0].cummin(given.axis(0))?.0)),
    ("sort", |t, given| {
        Ok(t[0].sort(given.axis(0), given.is(1))?.0)
    }),
    ("top_k", |t, given| {
        Ok(t[0].top_k(given.size(0), given.axis(1), given.is(2))?.0)
    }),
    ("softmax", |t, given| t[0].softmax(given.axis(0))),
    ("log_softmax", |t, given| t[0].log_softmax(given.axis(0))),
    ("layer_norm", |t, given| {
        t[0].layer_norm(&given.sizes(0), t.get(1), t.get(2), given.float(1))
    }),
    ("rms_norm", |t, given| {
        t[0].rms_norm(&given.sizes(0), t.get(1), given.float(1))
    }),
    ("group_norm", |t, given| {
        t[0].group_norm(given.size(0), t.get(1), t.get(2), given.float(1))
    }),
    ("batch_norm", |t, given| {
        t[0].batch_norm(&t[1], &t[2], t.get(3), t.get(4), given.float(0))
    }),
    ("batch_norm_train", |t, given| {
        let [y, ..] = t[0].batch_norm_train(t.get(1), t.get(2), given.float(0))?;
        Ok(y)
    }),
];

/// Gradients as operations of their own. The last option says which.
pub(super) const BACKWARDS: &[(&str, Call)] = &[
    ("softmax_backward", |t, given| {
        t[0].softmax_backward(&t[1], given.axis(0))
    }),
    ("log_softmax_backward", |t, given| {
        t[0].log_softmax_backward(&t[1], given.axis(0))
    }),
    ("layer_norm_backward", |t, given| {
        let (shape, eps) = (given.sizes(0), given.float(1));
        let made = t[0].layer_norm_backward(&t[1], &shape, t.get(2), eps)?;
        Ok(piece(made, given.size(2)))
    }),
    ("batch_norm_backward", |t, given| {
        let made = t[0].batch_norm_backward(&t[1], t.get(2), given.float(0))?;
        Ok(piece(made, given.size(1)))
    }),
];

/// One of several gradients.
pub(super) fn piece(made: [Tensor; 3], at: usize) -> Tensor {
    made[at].clone()
}
