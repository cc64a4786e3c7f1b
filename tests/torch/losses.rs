//! Losses.

use lapidary::{
    Tensor,
    operations::{ClassLoss, Reduction},
};

use crate::torch::cases::{self, Call, one};

fn weighted(weights: &Tensor, label_smoothing: f32, ignore: Option<i64>) -> ClassLoss<'_> {
    ClassLoss {
        weights: Some(weights),
        ignore,
        label_smoothing,
        reduction: Reduction::Mean,
    }
}

const CALLS: &[(&str, Call)] = &[
    ("binary_cross_entropy", |_, t| {
        one(t[0].binary_cross_entropy(&t[1], Reduction::Mean))
    }),
    ("binary_cross_entropy_weighted", |_, t| {
        one(t[0].binary_cross_entropy_weighted(&t[1], &t[2], Reduction::Mean))
    }),
    ("binary_cross_entropy_with_logits_weighted", |_, t| {
        let (weight, positive) = (&t[2], Some(&t[3]));
        let (target, mean) = (&t[1], Reduction::Mean);
        one(t[0].binary_cross_entropy_with_logits_weighted(target, weight, positive, mean))
    }),
    ("l1_loss", |_, t| one(t[0].l1_loss(&t[1], Reduction::Mean))),
    ("smooth_l1_loss", |_, t| {
        one(t[0].smooth_l1_loss(&t[1], 0.25, Reduction::None))
    }),
    ("cross_entropy, ignored", |_, t| {
        one(t[0].cross_entropy(&t[1], Some(-100), Reduction::Mean))
    }),
    ("cross_entropy, weights", |_, t| {
        one(t[0].cross_entropy_with(&t[1], &weighted(&t[2], 0.0, Some(-100))))
    }),
    ("cross_entropy, weights and smoothing", |_, t| {
        one(t[0].cross_entropy_with(&t[1], &weighted(&t[2], 0.1, Some(-100))))
    }),
    ("cross_entropy, smoothing", |_, t| {
        let options = ClassLoss {
            ignore: Some(-100),
            label_smoothing: 0.1,
            reduction: Reduction::None,
            ..ClassLoss::default()
        };
        one(t[0].cross_entropy_with(&t[1], &options))
    }),
    ("cross_entropy, probabilities", |_, t| {
        one(t[0].cross_entropy(&t[1], None, Reduction::Mean))
    }),
    ("cross_entropy, probabilities and weights", |_, t| {
        one(t[0].cross_entropy_with(&t[1], &weighted(&t[2], 0.2, None)))
    }),
    ("cross_entropy, images", |_, t| {
        one(t[0].cross_entropy_with(&t[1], &weighted(&t[2], 0.0, None)))
    }),
    ("nll_loss, weights", |_, t| {
        one(t[0].nll_loss_with(&t[1], &weighted(&t[2], 0.0, Some(-100))))
    }),
    ("binary_cross_entropy_with_logits", |_, t| {
        one(t[0].binary_cross_entropy_with_logits(&t[1], None, Reduction::Mean))
    }),
    ("binary_cross_entropy_with_logits, weight", |_, t| {
        one(t[0].binary_cross_entropy_with_logits(&t[1], Some(&t[2]), Reduction::Mean))
    }),
];

#[test]
fn losses_are_those_of_pytorch() {
    cases::check("losses", CALLS);
}
