//! Views, and operations that move elements.

use lapidary::operations::PadMode;
use lapidary::{Result, Tensor};

use super::program::Call;

pub(super) const VIEWS: &[(&str, Call)] = &[
    ("t", |t, _| t[0].t()),
    ("transpose", |t, given| {
        t[0].transpose(given.axis(0), given.axis(1))
    }),
    ("permute", |t, given| t[0].permute(&given.axes(0))),
    ("slice", |t, given| {
        let end = given.has(2).then(|| given.axis(2));
        t[0].slice(given.axis(0), given.axis(1), end, given.axis(3))
    }),
    ("narrow", |t, given| {
        t[0].narrow(given.axis(0), given.axis(1), given.size(2))
    }),
    ("select", |t, given| {
        t[0].select(given.axis(0), given.axis(1))
    }),
    ("squeeze", |t, _| Ok(t[0].squeeze())),
    ("squeeze_axis", |t, given| t[0].squeeze_axis(given.axis(0))),
    ("unsqueeze", |t, given| t[0].unsqueeze(given.axis(0))),
    ("flip", |t, given| t[0].flip(&given.axes(0))),
    ("broadcast_to", |t, given| {
        t[0].broadcast_to(&given.sizes(0))
    }),
    ("view_as", |t, given| t[0].view_as(&given.sizes(0))),
    ("movedim", |t, given| {
        t[0].movedim(given.axis(0), given.axis(1))
    }),
    ("diagonal", |t, given| {
        t[0].diagonal(given.axis(0), given.axis(1), given.axis(2))
    }),
    ("unfold", |t, given| {
        t[0].unfold(given.axis(0), given.size(1), given.size(2))
    }),
    ("unflatten", |t, given| {
        t[0].unflatten(given.axis(0), &given.sizes(1))
    }),
    ("unbind", |t, given| {
        one_of(t[0].unbind(given.axis(0)), given.size(1))
    }),
    ("split", |t, given| {
        one_of(t[0].split(given.size(0), given.axis(1)), given.size(2))
    }),
    ("split_sizes", |t, given| {
        let made = t[0].split_sizes(&given.sizes(0), given.axis(1));
        one_of(made, given.size(2))
    }),
    ("chunk", |t, given| {
        one_of(t[0].chunk(given.size(0), given.axis(1)), given.size(2))
    }),
];

fn one_of(made: Result<Vec<Tensor>>, at: usize) -> Result<Tensor> {
    Ok(made?.swap_remove(at))
}

pub(super) const COPIES: &[(&str, Call)] = &[
    ("contiguous", |t, _| t[0].contiguous()),
    ("flatten", |t, _| t[0].flatten()),
    ("reshape", |t, given| t[0].reshape(&given.sizes(0))),
    ("reshape_infer", |t, given| {
        t[0].reshape_infer(&given.axes(0))
    }),
    ("flatten_axes", |t, given| {
        t[0].flatten_axes(given.axis(0), given.axis(1))
    }),
    ("concat", |t, given| {
        Tensor::concat(&t.iter().collect::<Vec<_>>(), given.axis(0))
    }),
    ("stack", |t, given| {
        Tensor::stack(&t.iter().collect::<Vec<_>>(), given.axis(0))
    }),
    ("pad", |t, given| t[0].pad(&given.pairs(0), given.float(1))),
    ("pad_with", |t, given| {
        let mode = match given.text(1) {
            "reflect" => PadMode::Reflect,
            "replicate" => PadMode::Replicate,
            _ => PadMode::Circular,
        };
        t[0].pad_with(&given.pairs(0), mode)
    }),
    ("repeat", |t, given| t[0].repeat(&given.sizes(0))),
    ("repeat_interleave", |t, given| {
        t[0].repeat_interleave(given.size(0), given.axis(1))
    }),
    ("roll", |t, given| t[0].roll(&given.axes(0), &given.axes(1))),
    ("tril", |t, given| t[0].tril(given.axis(0))),
    ("triu", |t, given| t[0].triu(given.axis(0))),
    ("glu", |t, given| t[0].glu(given.axis(0))),
];
