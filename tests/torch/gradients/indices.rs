//! Operations with indices and masks.

use lapidary::Tensor;
use lapidary::operations::ScatterReduce;

use super::program::{Call, Given};

pub(super) const ALL: &[(&str, Call)] = &[
    ("gather", |t, given| t[0].gather(given.axis(0), &t[1])),
    ("take_along", |t, given| {
        t[0].take_along(given.axis(0), &t[1])
    }),
    ("index_select", |t, given| {
        t[0].index_select(given.axis(0), &t[1])
    }),
    ("embedding", |t, _| t[0].embedding(&t[1])),
    ("scatter", |t, given| {
        t[0].scatter(given.axis(0), &t[1], &t[2])
    }),
    ("scatter_add", |t, given| {
        t[0].scatter_add(given.axis(0), &t[1], &t[2])
    }),
    ("index_add", |t, given| {
        t[0].index_add(given.axis(0), &t[1], &t[2])
    }),
    ("scatter_reduce", |t, given| {
        let reduce = reduce(given.text(1));
        t[0].scatter_reduce(given.axis(0), &t[1], &t[2], reduce, given.is(2))
    }),
    ("index", |t, given| t[0].index(&named(&t[1..], given))),
    ("index_put", |t, given| {
        let (named, values) = named_and_values(t, given);
        t[0].index_put(&named, values, given.is(1))
    }),
    ("masked_select", |t, _| t[0].masked_select(&t[1])),
    ("masked_select_first", |t, given| {
        t[0].masked_select_first(&t[1], given.size(0))
    }),
];

pub(super) fn reduce(name: &str) -> ScatterReduce {
    match name {
        "sum" => ScatterReduce::Sum,
        "prod" => ScatterReduce::Prod,
        "mean" => ScatterReduce::Mean,
        "amax" => ScatterReduce::Max,
        _ => ScatterReduce::Min,
    }
}

/// The index tensors at the axes that the first option names.
fn named<'a>(t: &'a [Tensor], given: &Given) -> Vec<Option<&'a Tensor>> {
    let mut rest = t.iter();
    let at = given.axes(0).into_iter();
    at.map(|has| (has == 1).then(|| rest.next()).flatten())
        .collect()
}

/// The index tensors, and the values behind them.
pub(super) fn named_and_values<'a>(
    t: &'a [Tensor],
    given: &Given,
) -> (Vec<Option<&'a Tensor>>, &'a Tensor) {
    let last = t.len() - 1;
    (named(&t[1..last], given), &t[last])
}
