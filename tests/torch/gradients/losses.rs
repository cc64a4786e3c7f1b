//! Losses. Their options are the reduction, the class to ignore, and the smoothing of labels.

use lapidary::Tensor;
use lapidary::operations::{ClassLoss, Reduction};

use super::program::{Call, Given};

pub(super) const ALL: &[(&str, Call)] = &[
    ("mse_loss", |t, given| {
        t[0].mse_loss(&t[1], reduction(given))
    }),
    ("binary_cross_entropy", |t, given| {
        t[0].binary_cross_entropy(&t[1], reduction(given))
    }),
    ("binary_cross_entropy_with_logits", |t, given| {
        t[0].binary_cross_entropy_with_logits(&t[1], t.get(2), reduction(given))
    }),
    ("nll_loss", |t, given| match t {
        [x, targets] => x.nll_loss(targets, ignored(given), reduction(given)),
        _ => t[0].nll_loss_with(&t[1], &of_classes(t, given, 0.0)),
    }),
    ("cross_entropy", |t, given| match (t, given.float(2)) {
        ([x, targets], 0.0) => x.cross_entropy(targets, ignored(given), reduction(given)),
        (_, smoothing) => t[0].cross_entropy_with(&t[1], &of_classes(t, given, smoothing)),
    }),
];

fn reduction(given: &Given) -> Reduction {
    match given.text(0) {
        "none" => Reduction::None,
        "sum" => Reduction::Sum,
        _ => Reduction::Mean,
    }
}

fn ignored(given: &Given) -> Option<i64> {
    given.has(1).then(|| given.axis(1) as i64)
}

fn of_classes<'a>(t: &'a [Tensor], given: &Given, label_smoothing: f32) -> ClassLoss<'a> {
    ClassLoss {
        weights: t.get(2),
        ignore: ignored(given),
        label_smoothing,
        reduction: reduction(given),
    }
}
